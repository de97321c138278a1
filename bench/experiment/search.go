package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/loadgen/storm"
)

const defaultUnit = stats.UnitEventsPerSec

// Axis is a label with the values that a search tries.
type Axis struct {
	Label  string   // key of the cells' label
	Values []string // values in the order of the report
	dimension
}

// dimension is a field that a search can vary.
type dimension struct {
	flag        string                       // sets the field
	plain       func(string) (string, error) // returns the spelling of a value in the label
	workers     bool                         // they share something: the Universal Scalability Law applies
	everywhere  bool                         // the label is also added to cells of variants without the knob
	surfaceOnly bool                         // the values are no plain numbers, so a scaling is impossible
}

// dimensions by label.
var dimensions = []Axis{
	{Label: "producers", dimension: dimension{flag: "producers", plain: positive, workers: true, everywhere: true}},
	{Label: "consumers", dimension: dimension{flag: "consumers", plain: positive, workers: true}},
	{Label: "procs", dimension: dimension{flag: "procs", plain: positive, workers: true, everywhere: true}},
	{Label: "shards", dimension: dimension{flag: "shards", plain: natural}},
	{Label: "capacity", dimension: dimension{flag: "capacity", plain: natural}},
	{Label: "batch", dimension: dimension{flag: "batch-size", plain: natural}},
	{Label: "readers", dimension: dimension{flag: "readers", plain: natural, everywhere: true}},
	{Label: "handler", dimension: dimension{flag: "handler-cost", plain: duration, everywhere: true, surfaceOnly: true}},
	{Label: "throttle", dimension: dimension{flag: "throttle", plain: word, surfaceOnly: true}},
	{Label: "stamps", dimension: dimension{flag: "stamps", plain: word, everywhere: true, surfaceOnly: true}},
	{Label: "encoding", dimension: dimension{flag: "encoding", plain: word, everywhere: true, surfaceOnly: true}},
	{Label: "decode", dimension: dimension{flag: "decode", plain: word, everywhere: true, surfaceOnly: true}},
	{Label: "initial-list", dimension: dimension{flag: "initial-list", plain: word, everywhere: true, surfaceOnly: true}},
	{Label: "store", dimension: dimension{flag: "store", plain: word, surfaceOnly: true}},
	{Label: "workqueue", dimension: dimension{flag: "workqueue", plain: word, surfaceOnly: true}},
	{Label: "events", dimension: dimension{flag: "events", plain: positive, everywhere: true}},
	{Label: keysLabel, dimension: dimension{flag: "pods", plain: positive, everywhere: true}},
	{Label: "nodes", dimension: dimension{flag: "nodes", plain: positive, everywhere: true}},
	{Label: "skew", dimension: dimension{flag: "skew", plain: skew, everywhere: true, surfaceOnly: true}},
}

// keysLabel is the label and another name of the dimension pods: each pod is a key.
const keysLabel = "keys"

func positive(s string) (string, error) { return whole(s, 1, "above 0") }
func natural(s string) (string, error)  { return whole(s, 0, "from 0") }

func whole(s string, least int, allowed string) (string, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < least {
		return "", fmt.Errorf("%q is not a whole number %s", s, allowed)
	}
	return strconv.Itoa(v), nil
}

func duration(s string) (string, error) {
	v, err := time.ParseDuration(s)
	switch {
	case err != nil || v < 0:
		return "", fmt.Errorf("%q is not a duration such as 10us", s)
	case v == 0:
		return "0", nil
	}
	return v.String(), nil
}

// word accepts any value; the field's own validation checks it.
func word(s string) (string, error) { return s, nil }

func skew(s string) (string, error) {
	v, err := storm.ParseSkew(s)
	return v.String(), err
}

func unknownDimension(name string, surface bool) error {
	var names []string
	for _, d := range dimensions {
		if surface || !d.surfaceOnly {
			names = append(names, d.flag)
		}
	}
	return OneOf(name, names...)
}

// parseAxis reads NAME=VALUE,VALUE,…
func parseAxis(text string, surface bool) (Axis, error) {
	name, list, ok := strings.Cut(text, "=")
	if !ok {
		return Axis{}, fmt.Errorf("%q is not of the form NAME=VALUE,VALUE,…", text)
	}
	if name == keysLabel {
		name = "pods"
	}
	at := slices.IndexFunc(dimensions, func(d Axis) bool { return d.flag == name && (surface || !d.surfaceOnly) })
	if at < 0 {
		return Axis{}, unknownDimension(name, surface)
	}
	if n := strings.Count(list, ",") + 1; n > maxValues {
		return Axis{}, fmt.Errorf("%s: %d values (allowed: %d)", name, n, maxValues)
	}
	a := dimensions[at]
	for v := range strings.SplitSeq(list, ",") {
		plain, err := a.plain(strings.TrimSpace(v))
		switch {
		case err != nil:
			return Axis{}, fmt.Errorf("%s: %w", name, err)
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

// isKnee reports whether the Spec has a knee search.
func (s *Spec) isKnee() bool { return s.Search != nil && s.Search.Knee != nil }

func (s *Spec) validateSearch() error {
	if s.Search == nil {
		return nil
	}
	kinds := 0
	for _, set := range []bool{s.Search.Knee != nil, s.Search.Scale != nil, s.Search.Surface != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return badField("search", errors.New("needs one of knee, scale, surface"))
	case s.isKnee() && len(s.Paces) > 0:
		return badField("paces", errors.New("a knee search chooses the rates"))
	case s.isKnee():
		full := s.withDefaults()
		_, err := full.knee()
		return err
	}
	axes, err := s.axes()
	if err != nil {
		return err
	}
	for _, a := range axes {
		path := Path(a.flag)
		if slices.ContainsFunc(Given(s), func(f Field) bool { return f.Path == path }) {
			return badField(path, errors.New("is varied and cannot be set too"))
		}
	}
	return nil
}

func (s *Spec) axes() ([]Axis, error) {
	type field struct{ path, text, example string }
	var fields []field
	surface := s.Search.Surface
	if surface == nil {
		fields = []field{{"search.scale.over", s.Search.Scale.Over, "producers=1,2,4,8"}}
	} else {
		const example = "batch-size=1,10,100,1000"
		fields = []field{{"search.surface.columns", surface.X, example}, {"search.surface.rows", surface.Y, example}}
	}
	var axes []Axis
	for _, f := range fields {
		if f.text == "" {
			return nil, badField(f.path, fmt.Errorf("is needed, as in %s", f.example))
		}
		a, err := parseAxis(f.text, surface != nil)
		if err != nil {
			return nil, badField(f.path, err)
		}
		axes = append(axes, a)
	}
	switch {
	case surface == nil:
	case axes[0].Label == axes[1].Label:
		return nil, badField("search.surface.rows", fmt.Errorf("%s is varied by --x", axes[1].flag))
	case strings.ContainsAny(surface.Unit, " \t\n"):
		return nil, badField("search.surface.unit", fmt.Errorf("%q is no unit", surface.Unit))
	}
	return axes, nil
}

func (p *planner) planSearch(plan *Plan) error {
	if plan.Spec.isKnee() {
		return p.planKnee(plan)
	}
	axes, err := plan.Spec.axes()
	if err != nil {
		return err
	}
	plan.Comparisons, err = Grid(axes, func(point []lab.Label) ([]lab.Comparison, error) { return p.point(plan.Spec, axes, point) })
	plan.finish = func(o *lab.Outcome) {
		for i := range o.Comparisons {
			c := &o.Comparisons[i]
			if len(axes) == 1 {
				o.Scalings = append(o.Scalings, Scalings(c, axes[0].Label, axes[0].workers)...)
			} else {
				o.Surfaces = append(o.Surfaces, Surfaces(c, axes[0], axes[1], plan.Spec.Search.Surface.Unit)...)
			}
		}
	}
	return err
}

func (p *planner) point(s Spec, axes []Axis, point []lab.Label) ([]lab.Comparison, error) {
	s.Search = nil
	for i, l := range point {
		if err := s.set(axes[i].flag, l.Value); err != nil {
			return nil, badField(Path(axes[i].flag), err)
		}
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	config, err := p.config(s)
	if err != nil {
		return nil, err
	}
	comparisons, err := compare(config)
	for i, a := range axes {
		if a.Label == keysLabel && strconv.Itoa(config.Storm.Keys) != point[i].Value {
			return nil, badField(Path(a.flag), fmt.Errorf("storm %s has %d keys with %s pods: vary the pods of one whose keys they are, such as steady",
				config.Storm.Name, config.Storm.Keys, point[i].Value))
		}
		for _, c := range comparisons {
			for j := range c.Cells {
				if a.everywhere {
					c.Cells[j].Labels = withLabel(c.Cells[j].Labels, point[i])
				}
			}
		}
	}
	return comparisons, err
}
