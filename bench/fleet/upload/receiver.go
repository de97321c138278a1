package upload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Damage describes an incomplete or damaged bundle.
type Damage struct {
	Where string // name of the object or file
	Of    Header // known part of the header; its Index is -1 if nothing is known
	Why   string // reason, in one line
	id    string // that of the bundle; empty if unknown
}

func (d Damage) String() string {
	if d.Of.Index < 0 {
		return fmt.Sprintf("%s: %s", d.Where, d.Why)
	}
	return fmt.Sprintf("%s: pod %d/%d: %s", d.Where, d.Of.Index, d.Of.Of, d.Why)
}

// receiver selects the bundles of one run, joins their parts, and passes each to take, once.
type receiver struct {
	run  string // empty for the only run
	take func(Bundle) error

	found   []string        // names of runs, if run is empty
	taken   map[string]bool // IDs of complete bundles
	pending map[string]*pending
	damage  []Damage
}

// pending is a bundle of the current source. A damaged one is kept until the source's end.
type pending struct {
	Header
	of    int            // number of parts
	parts map[int][]byte // those present, by number
	why   string         // damage of a part; empty for none
}

// part is a piece of a bundle. Run, Index and Of of its header are known.
type part struct {
	Header
	id            string
	number, parts int // number counts from 1
	data          []byte
}

func newReceiver(run string, take func(Bundle) error) *receiver {
	return &receiver{run: run, take: take, taken: map[string]bool{}, pending: map[string]*pending{}}
}

// wants reports whether to read a bundle of the run. The error wraps [ErrRuns].
func (r *receiver) wants(run string) (bool, error) {
	if r.run != "" {
		return run == r.run, nil
	}
	if !slices.Contains(r.found, run) {
		r.found = append(r.found, run)
	}
	if len(r.found) > 1 {
		slices.Sort(r.found)
		return false, fmt.Errorf("%w: %q", ErrRuns, r.found)
	}
	return true, nil
}

// whole receives a complete bundle. The error is that of take, or wraps [ErrRuns].
func (r *receiver) whole(where string, data []byte) error {
	p, err := Decode(data)
	if err != nil {
		r.damaged(where, err)
		return nil
	}
	if ok, err := r.wants(p.Run); !ok || r.taken[p.ID()] {
		return err
	}
	r.taken[p.ID()] = true
	return r.take(p)
}

// part receives a part, or its damage; in any order and repeatedly. The error is as in whole.
func (r *receiver) part(p part, damage error) error {
	if ok, err := r.wants(p.Run); !ok || r.taken[p.id] {
		return err
	}
	b, ok := r.pending[p.id]
	if !ok {
		b = &pending{Header: p.Header, of: p.parts, parts: map[int][]byte{}}
		r.pending[p.id] = b
	}
	switch {
	case damage != nil:
		b.why = fmt.Sprintf("part %d: %v", p.number, damage)
		return nil
	case p.parts != b.of:
		b.why = fmt.Sprintf("parts disagree on their number: %d, %d", b.of, p.parts)
		return nil
	case b.parts[p.number] != nil:
		return nil
	}
	b.parts[p.number] = p.data
	if len(b.parts) < b.of {
		return nil
	}
	var whole []byte
	for number := 1; number <= b.of; number++ {
		whole = append(whole, b.parts[number]...)
	}
	bundle, err := Decode(whole)
	if err != nil {
		b.why = err.Error()
		return nil //nolint:nilerr // The damage is recorded.
	}
	delete(r.pending, p.id)
	r.taken[p.id] = true
	return r.take(bundle)
}

// damaged records damage of which no header is known.
func (r *receiver) damaged(where string, err error) {
	r.damage = append(r.damage, Damage{Where: where, Of: Header{Index: -1}, Why: err.Error()})
}

// end records the incomplete bundles of a source as damaged.
func (r *receiver) end(source string) {
	for _, id := range slices.SortedFunc(maps.Keys(r.pending), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.pending[a].Index, r.pending[b].Index), cmp.Compare(a, b))
	}) {
		b := r.pending[id]
		why := fmt.Sprintf("%d of %d parts are present", len(b.parts), b.of)
		if b.why != "" {
			why += "; " + b.why
		}
		r.damage = append(r.damage, Damage{Where: source, Of: b.Header, Why: why, id: id})
	}
	clear(r.pending)
}

// unrepaired returns the damage of bundles that were not found complete elsewhere.
func (r *receiver) unrepaired() []Damage {
	return slices.DeleteFunc(r.damage, func(d Damage) bool { return r.taken[d.id] })
}
