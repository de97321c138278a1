package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Table shows one profile, or two side by side. The rows with the largest change come
// first; those within the sampling error come last.
type Table struct {
	Kind   string `json:"value"`            // type of the values, such as cpu or alloc_space
	Unit   string `json:"unit"`             // of all figures, such as ns/event
	By     string `json:"by,omitempty"`     // label whose values are the rows; empty for functions
	Before *Total `json:"before,omitempty"` // nil for a table of one profile
	After  Total  `json:"after"`            // the profile, or the second of two
	Rows   []Row  `json:"rows"`             // sorted by change, or by value for one profile
}

// Total is the sum of a profile.
type Total struct {
	Name    string  `json:"name"`              // of the source
	Value   float64 `json:"value"`             // in the table's unit
	Samples float64 `json:"samples,omitempty"` // number of samples; 0 if the runtime counts instead of sampling
}

// Row is a function, or a value of a label.
type Row struct {
	Name string `json:"name"` // the function or the value of the label
	Flat Pair   `json:"flat"` // of the function itself
	Cum  Pair   `json:"cum"`  // with its callees; a recursive function counts once
}

// Pair is one figure in both profiles.
type Pair struct {
	Before float64 `json:"before"` // 0 for a table of one profile
	After  float64 `json:"after"`
	// Chance: the change is within 3 standard errors of sampling. Samples are nearly independent,
	// so the error of a count is its square root. Differences between plays come on top.
	Chance   bool    `json:"chance,omitempty"`
	variance float64 // of the change, in the table's unit squared
}

// Change is After minus Before.
func (p Pair) Change() float64 { return p.After - p.Before }

// add adds a sample's value to one of the figures.
func (p *Pair) add(v *view, figure *float64, value float64) {
	*figure += value * v.scale
	p.variance += value * v.period * v.scale * v.scale
}

// setChance sets Chance.
func (p *Pair) setChance() {
	const errors = 3
	p.Chance = p.variance > 0 && math.Abs(p.Change()) <= errors*math.Sqrt(p.variance)
}

// Compare makes a table of one profile (before is nil) or of the differences between
// two. Figures are per event if the events of all profiles are known. Otherwise they
// are shares of the whole: a function with a larger share is not necessarily slower.
//
// Errors wrap [ErrKinds], [ErrValue], [ErrLabel] or [ErrEmpty].
func Compare(before, after *Source, o Options) (*Table, error) {
	perEvent := after.Events > 0 && (before == nil || before.Events > 0)
	a, err := newView(after, o, perEvent)
	if err != nil {
		return nil, err
	}
	total, names := a.total, after.Name
	rows := map[string]*Row{}
	t := &Table{Kind: a.kind.Type, Unit: unitOf(a.kind, perEvent), By: o.By}
	t.After = a.fill(rows, o.By, func(p *Pair) *float64 { return &p.After })
	if before != nil {
		b, err := newView(before, o, perEvent)
		switch {
		case err != nil:
			return nil, err
		case *b.kind != *a.kind:
			return nil, fmt.Errorf("%w: %s has %s in %s, %s has %s in %s",
				ErrKinds, before.Name, b.kind.Type, b.kind.Unit, after.Name, a.kind.Type, a.kind.Unit)
		}
		total, names = max(total, b.total), before.Name+" and "+after.Name
		t.Before = new(b.fill(rows, o.By, func(p *Pair) *float64 { return &p.Before }))
		for _, r := range rows {
			r.Flat.setChance()
			r.Cum.setChance()
		}
	}
	if total <= 0 {
		return nil, fmt.Errorf("%s: %w", names, ErrEmpty)
	}
	for _, r := range rows {
		t.Rows = append(t.Rows, *r)
	}
	slices.SortFunc(t.Rows, func(x, y Row) int {
		return cmp.Or(
			compareMoves(x.Flat, y.Flat),
			compareMoves(x.Cum, y.Cum),
			cmp.Compare(y.Cum.After, x.Cum.After),
			strings.Compare(x.Name, y.Name))
	})
	return t, nil
}

// SortByCum sorts the rows by the change of Cum.
func (t *Table) SortByCum() {
	slices.SortStableFunc(t.Rows, func(x, y Row) int { return compareMoves(x.Cum, y.Cum) })
}

// compareMoves sorts larger changes first, and changes that may be chance last.
func compareMoves(x, y Pair) int {
	switch {
	case y.Chance && !x.Chance && x.Change() != 0:
		return -1
	case x.Chance && !y.Chance && y.Change() != 0:
		return 1
	}
	return cmp.Compare(math.Abs(y.Change()), math.Abs(x.Change()))
}
