package profile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

var (
	// ErrValue is wrapped if the samples lack a value.
	ErrValue = errors.New("no such value")
	// ErrLabel is wrapped if no sample has a label.
	ErrLabel = errors.New("no such label")
	// ErrKinds is wrapped if two profiles have different types of values.
	ErrKinds = errors.New("profiles of different kinds")
	// ErrEmpty is wrapped if a profile has no samples. One of two may be empty, such as
	// the allocations of a cell without any.
	ErrEmpty = errors.New("no samples")
)

// Options select what a table shows.
type Options struct {
	Value string // type of value, such as alloc_objects; empty for the profile's default, or else its last type
	By    string // label whose values are the rows, such as [LabelStage]; empty for functions
	Stage string // selects the samples with this stage label; empty selects all
}

// view is one profile with the options applied.
type view struct {
	name    string
	kind    *profile.ValueType
	at      int // index of the value in each sample
	samples []*profile.Sample
	total   float64 // of all samples, selected or not
	scale   float64 // from a sample's value to the table's unit
	period  float64 // value of one sample; 0 where the runtime counts
}

// newView selects the value and the samples of a profile. Errors wrap [ErrValue] or [ErrLabel].
func newView(s *Source, o Options, perEvent bool) (*view, error) {
	p := s.profile
	at, err := p.SampleIndexByName(o.Value)
	if err != nil {
		var have []string
		for _, t := range p.SampleType {
			have = append(have, t.Type)
		}
		return nil, fmt.Errorf("%s: %w %q (have %s)", s.Name, ErrValue, o.Value, strings.Join(have, ", "))
	}
	v := &view{name: s.Name, kind: p.SampleType[at], at: at, scale: 1}
	if t := p.PeriodType; t != nil && p.Period > 1 && t.Unit == v.kind.Unit {
		v.period = float64(p.Period)
	}
	labelled := o.By == "" || len(p.Sample) == 0
	for _, sample := range p.Sample {
		v.total += float64(sample.Value[at])
		labelled = labelled || len(sample.Label[o.By]) > 0
		if o.Stage == "" || slices.Contains(sample.Label[LabelStage], o.Stage) {
			v.samples = append(v.samples, sample)
		}
	}
	switch {
	case !labelled:
		return nil, fmt.Errorf("%s: %w %q: only CPU and goroutine profiles of labelled work have labels", s.Name, ErrLabel, o.By)
	case atMoment(v.kind):
	case perEvent:
		v.scale = 1 / s.Events
	case v.total > 0:
		v.scale = 100 / v.total
	}
	return v, nil
}

// fill adds the samples to the rows: to those of the functions, or of the values of a
// label. It returns their sum.
func (v *view) fill(rows map[string]*Row, by string, figure func(*Pair) *float64) Total {
	t := Total{Name: v.name}
	for _, sample := range v.samples {
		value := float64(sample.Value[v.at])
		t.Value += value * v.scale
		if v.period > 0 {
			t.Samples += value / v.period
		}
		stack := frames(sample)
		if by != "" {
			stack = []string{cmp.Or(strings.Join(sample.Label[by], "+"), unlabelled)}
		}
		for i, name := range stack {
			r := rows[name]
			if r == nil {
				r = &Row{Name: name}
				rows[name] = r
			}
			if !slices.Contains(stack[:i], name) {
				r.Cum.add(v, figure(&r.Cum), value)
			}
			if i == len(stack)-1 {
				r.Flat.add(v, figure(&r.Flat), value)
			}
		}
	}
	t.Samples = math.Round(t.Samples)
	return t
}

// unlabelled stands for samples without the label: the runtime's work, such as garbage
// collection, and unlabelled parts of the workload.
const unlabelled = "(no label)"

// frames returns the functions of a stack, outermost first.
func frames(s *profile.Sample) []string {
	var names []string
	for _, loc := range slices.Backward(s.Location) {
		// An inlined function comes before its caller.
		for _, line := range slices.Backward(loc.Line) {
			name := "?"
			if line.Function != nil && line.Function.Name != "" {
				name = line.Function.Name
			}
			names = append(names, name)
		}
		if len(loc.Line) == 0 {
			names = append(names, fmt.Sprintf("%#x", loc.Address))
		}
	}
	return names
}

// short keeps only the last element of package paths, also in type parameters.
func short(function string) string { return packagePath.ReplaceAllString(function, "") }

var packagePath = regexp.MustCompile(`[^][*(), ]*/`)

// atMoment reports whether a value is of one moment, such as the live heap. Such values
// do not grow with the number of events.
func atMoment(kind *profile.ValueType) bool {
	return strings.HasPrefix(kind.Type, "inuse_") || kind.Type == "goroutine"
}

// unitOf returns the unit of scaled values.
func unitOf(kind *profile.ValueType, perEvent bool) string {
	switch {
	case atMoment(kind) && kind.Unit == "bytes":
		return "B"
	case atMoment(kind):
		return kind.Type
	case !perEvent:
		return "%"
	}
	switch kind.Unit {
	case "nanoseconds":
		return "ns/event"
	case "bytes":
		return "B/event"
	case "count", "":
		return kind.Type + "/event"
	}
	return kind.Unit + "/event"
}
