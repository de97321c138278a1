package profile

import (
	"errors"
	"fmt"
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
	// Value is the type of value, such as alloc_objects. Empty selects the profile's
	// default, or else its last type.
	Value string
	// By is the label whose values are the rows, such as [LabelStage]. Empty selects
	// functions.
	By string
	// Stage selects the samples with this stage label; empty selects all.
	Stage string
}

// side is one profile with the options applied.
type side struct {
	source   *Source
	at       int // index of the value in each sample
	kind     *profile.ValueType
	samples  []*profile.Sample
	total    float64 // of all samples, selected or not
	scale    float64 // from a sample's value to the table's unit
	perEvent bool
	period   float64 // value of one sample; 0 where the runtime counts
}

// newSide selects the value and the samples of a profile. Errors wrap [ErrValue] or
// [ErrLabel].
func newSide(s *Source, o Options, perEvent bool) (*side, error) {
	p := s.profile
	at, err := p.SampleIndexByName(o.Value)
	if err != nil {
		var have []string
		for _, t := range p.SampleType {
			have = append(have, t.Type)
		}
		return nil, fmt.Errorf("%s: %w %q (have %s)", s.Name, ErrValue, o.Value, strings.Join(have, ", "))
	}
	out := &side{source: s, at: at, kind: p.SampleType[at], perEvent: perEvent}
	if t := p.PeriodType; t != nil && p.Period > 1 && t.Unit == out.kind.Unit {
		out.period = float64(p.Period)
	}
	labelled := o.By == "" || len(p.Sample) == 0
	for _, sample := range p.Sample {
		out.total += float64(sample.Value[at])
		labelled = labelled || len(sample.Label[o.By]) > 0
		if o.Stage == "" || slices.Contains(sample.Label[LabelStage], o.Stage) {
			out.samples = append(out.samples, sample)
		}
	}
	if !labelled {
		return nil, fmt.Errorf("%s: %w %q: only CPU and goroutine profiles of labelled work have labels", s.Name, ErrLabel, o.By)
	}
	switch {
	case atMoment(out.kind):
		out.scale = 1
	case perEvent:
		out.scale = 1 / s.Events
	case out.total > 0:
		out.scale = 100 / out.total
	}
	return out, nil
}

// labelOf returns a sample's value of a label.
func labelOf(s *profile.Sample, key string) string {
	if values := s.Label[key]; len(values) > 0 {
		return strings.Join(values, "+")
	}
	return unlabelled
}

// unlabelled stands for samples without the label: the runtime's work, such as garbage
// collection, and unlabelled parts of the workload.
const unlabelled = "(no label)"

// frames calls f with the functions of a stack, outermost first.
func frames(s *profile.Sample, f func(function string)) {
	for _, loc := range slices.Backward(s.Location) {
		// An inlined function comes before its caller.
		for _, line := range slices.Backward(loc.Line) {
			name := "?"
			if line.Function != nil && line.Function.Name != "" {
				name = line.Function.Name
			}
			f(name)
		}
		if len(loc.Line) == 0 {
			f(fmt.Sprintf("%#x", loc.Address))
		}
	}
}

// short keeps only the last element of package paths, also in type parameters.
func short(function string) string {
	var b strings.Builder
	for function != "" {
		end := strings.IndexAny(function, "[]*(), ") + 1
		if end == 0 {
			end = len(function)
		}
		part := function[:end]
		b.WriteString(part[strings.LastIndexByte(part, '/')+1:])
		function = function[end:]
	}
	return b.String()
}

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
