package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/lab"
	"watchlab/loadgen/manifest"
)

// Axis is a label with the values that a search tries.
type Axis struct {
	Label      string   // key of the cells' label
	Values     []string // values in the order of the report
	flag       string   // sets the field
	positive   bool     // 0 means the default
	workers    bool     // they share something: the Universal Scalability Law applies
	everywhere bool     // the label is also added to cells of variants without the knob
}

// dimensions are the fields that a search can vary, by label.
var dimensions = []Axis{
	{Label: "producers", flag: "producers", positive: true, workers: true, everywhere: true},
	{Label: "procs", flag: "procs", positive: true, workers: true, everywhere: true},
	{Label: "shards", flag: "shards"},
	{Label: "capacity", flag: "capacity"},
	{Label: "batch", flag: "batch-size"},
	{Label: "readers", flag: "readers", everywhere: true},
	{Label: "handler", flag: "handler-cost", everywhere: true},
	{Label: "throttle", flag: "throttle"},
	{Label: "stamps", flag: "stamps", everywhere: true},
	{Label: "encoding", flag: "encoding", everywhere: true},
	{Label: "decode", flag: "decode", everywhere: true},
	{Label: "initial-list", flag: "initial-list", everywhere: true},
	{Label: "store", flag: "store"},
	{Label: "workqueue", flag: "workqueue"},
	{Label: "events", flag: "events", positive: true, everywhere: true},
	{Label: keysLabel, flag: "pods", positive: true, everywhere: true},
	{Label: "nodes", flag: "nodes", positive: true, everywhere: true},
	{Label: "skew", flag: "skew", everywhere: true},
}

// keysLabel is the label and another name of the dimension pods: each pod is a key.
const keysLabel = "keys"

// parseAxis reads NAME=VALUE,VALUE,…
func parseAxis(text string) (Axis, error) {
	name, list, ok := strings.Cut(text, "=")
	if !ok {
		return Axis{}, fmt.Errorf("%q is not of the form NAME=VALUE,VALUE,…", text)
	}
	if name == keysLabel {
		name = "pods"
	}
	var names []string
	for _, d := range dimensions {
		names = append(names, d.flag)
	}
	at := slices.Index(names, name)
	if at < 0 {
		return Axis{}, manifest.OneOf(name, names...)
	}
	if n := strings.Count(list, ",") + 1; n > maxValues {
		return Axis{}, fmt.Errorf("%s: %d values (allowed: %d)", name, n, maxValues)
	}
	a := dimensions[at]
	for v := range strings.SplitSeq(list, ",") {
		plain, err := new(Spec).set(name, strings.TrimSpace(v))
		switch {
		case err != nil:
			return Axis{}, err
		case a.positive && plain == "0":
			return Axis{}, fmt.Errorf("%s: 0 is not a value", name)
		case slices.Contains(a.Values, plain):
			return Axis{}, fmt.Errorf("%s: %s is named twice", name, v)
		}
		a.Values = append(a.Values, plain)
	}
	if len(a.Values) < 2 {
		return Axis{}, fmt.Errorf("%s: one value is nothing to compare", name)
	}
	return a, nil
}

// Like reports whether a search is of the same kind as another; nil stands for any.
func (s *Search) Like(other *Search) bool {
	return other == nil || (s.Knee == nil) == (other.Knee == nil) && (s.Scale == nil) == (other.Scale == nil)
}

// isKnee reports whether the Spec has a knee search.
func (s *Spec) isKnee() bool { return s.Search != nil && s.Search.Knee != nil }

func (s *Spec) validateSearch() error {
	if s.Search == nil {
		return nil
	}
	switch {
	case s.isKnee() == (s.Search.Scale != nil):
		return manifest.Bad("search", "needs knee or scale")
	case s.isKnee() && len(s.Paces) > 0:
		return manifest.Bad("paces", "a knee search chooses the rates")
	case s.isKnee():
		full := s.withDefaults()
		_, err := full.knee()
		return err
	}
	axis, err := s.axis()
	if err != nil {
		return err
	}
	path := Path(axis.flag)
	if slices.ContainsFunc(Given(s), func(f Field) bool { return f.Path == path }) {
		return manifest.Bad(path, "is varied and cannot be set too")
	}
	return nil
}

func (s *Spec) axis() (Axis, error) {
	const path = "search.scale.over"
	if s.Search.Scale.Over == "" {
		return Axis{}, manifest.Bad(path, "is needed, as in producers=1,2,4,8")
	}
	axis, err := parseAxis(s.Search.Scale.Over)
	return axis, manifest.BadField(path, err)
}

func (p *planner) planSearch(plan *Plan) error {
	if plan.Spec.isKnee() {
		return p.planKnee(plan)
	}
	axis, err := plan.Spec.axis()
	if err != nil {
		return err
	}
	plan.Comparisons, err = AlongAxis(axis, func(at lab.Label) ([]lab.Comparison, error) { return p.at(plan.Spec, axis, at) })
	plan.finish = func(o *lab.Outcome) {
		for i := range o.Comparisons {
			o.Scalings = append(o.Scalings, Scalings(&o.Comparisons[i], axis.Label, axis.workers)...)
		}
	}
	return err
}

// at returns the comparisons at one value of the axis.
func (p *planner) at(s Spec, axis Axis, at lab.Label) ([]lab.Comparison, error) {
	s.Search = nil
	if _, err := s.set(axis.flag, at.Value); err != nil {
		return nil, manifest.BadField(Path(axis.flag), err)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	config, err := p.config(s)
	if err != nil {
		return nil, err
	}
	if axis.Label == keysLabel && strconv.Itoa(config.Storm.Keys) != at.Value {
		return nil, manifest.Bad(Path(axis.flag), "storm %s has %d keys with %s pods: vary the pods of one whose keys they are, such as steady",
			config.Storm.Name, config.Storm.Keys, at.Value)
	}
	comparisons, err := compare(config)
	if axis.everywhere {
		for _, c := range comparisons {
			for j := range c.Cells {
				c.Cells[j].Labels = withLabel(c.Cells[j].Labels, at)
			}
		}
	}
	return comparisons, err
}
