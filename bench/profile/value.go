package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

var (
	// ErrValue is wrapped by the errors for a value that the samples lack.
	ErrValue = errors.New("no such value")
	// ErrLabel is wrapped by the errors for a label that none of the samples has.
	ErrLabel = errors.New("no such label")
	// ErrKinds is wrapped by the error for two profiles of different values.
	ErrKinds = errors.New("profiles of different kinds")
	// ErrEmpty is wrapped by the errors for profiles without a sample. One of two may
	// be empty, such as the allocations of a cell that allocates nothing.
	ErrEmpty = errors.New("no samples")
)

// Options select what a table shows.
type Options struct {
	Value string // type of the samples' value; empty: the profile's default, else its last
	By    string // label whose values are rows; empty: functions
	Stage string // only samples with this label of a stage; empty: all
}

// side is one of the profiles, as the options select it.
type side struct {
	source   *Source
	at       int // place of the value in each sample
	kind     *profile.ValueType
	samples  []*profile.Sample
	total    float64 // of all samples, selected or not
	scale    float64 // from a sample's value to the table's unit
	perEvent bool
	period   float64 // value of one sample; 0 where the runtime counts
}

func newSide(s *Source, o Options, perEvent bool) (*side, error) {
	p := s.profile
	value := o.Value
	if value == "" {
		value = p.DefaultSampleType
	}
	at := len(p.SampleType) - 1
	if value != "" {
		at = typeIndex(p, value)
	}
	if at < 0 {
		var have []string
		for _, t := range p.SampleType {
			have = append(have, t.Type)
		}
		return nil, fmt.Errorf("%s: %w %q (have %s)", s.Name, ErrValue, value, strings.Join(have, ", "))
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

// labelOf is a sample's value of a label.
func labelOf(s *profile.Sample, key string) string {
	if values := s.Label[key]; len(values) > 0 {
		return strings.Join(values, "+")
	}
	return unlabelled
}

// unlabelled stands for samples without the label: the runtime's work, such as garbage
// collection, and unlabelled parts of the workload.
const unlabelled = "(no label)"

// frames calls f with the functions of a stack, the outermost first.
func frames(s *profile.Sample, f func(function string)) {
	for _, loc := range slices.Backward(s.Location) {
		// What was inlined stands before what it was inlined into.
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

// short cuts the paths of packages, also those of type parameters, to their last
// part.
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

// atMoment reports whether a value is of one moment, such as the live heap: more
// events do not make it larger.
func atMoment(kind *profile.ValueType) bool {
	return strings.HasPrefix(kind.Type, "inuse_") || kind.Type == "goroutine"
}

// unitOf is the unit of a kind's scaled values.
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
