package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/stats"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

const (
	// kneeEvents bounds the events of a round, which may shorten its schedule: the
	// events of all rates of a search are in memory at once.
	kneeEvents = 200_000

	defaultUnit = stats.UnitEventsPerSec
)

// dimension is a field that a search can vary.
type dimension struct {
	// flag sets the field; label is the label of the cells.
	flag, label string
	// plain returns the spelling of a value in the label.
	plain func(string) (string, error)
	// workers: the dimension is a number of workers that share something, so the
	// Universal Scalability Law applies.
	workers bool
	// everywhere: the label is also added to cells of variants without the knob.
	everywhere bool
	// surfaceOnly: the values are no plain numbers, so a scaling is impossible.
	surfaceOnly bool
}

var dimensions = []dimension{
	{flag: "producers", label: "producers", plain: positive, workers: true, everywhere: true},
	{flag: "consumers", label: "consumers", plain: positive, workers: true},
	{flag: "procs", label: "procs", plain: positive, workers: true, everywhere: true},
	{flag: "shards", label: "shards", plain: natural},
	{flag: "capacity", label: "capacity", plain: natural},
	{flag: "batch-size", label: "batch", plain: natural},
	{flag: "readers", label: "readers", plain: natural, everywhere: true},
	{flag: "handler-cost", label: "handler", plain: duration, everywhere: true, surfaceOnly: true},
	{flag: "stamps", label: "stamps", plain: word, everywhere: true, surfaceOnly: true},
	{flag: "events", label: "events", plain: positive, everywhere: true},
	{flag: "pods", label: "keys", plain: positive, everywhere: true},
	{flag: "nodes", label: "nodes", plain: positive, everywhere: true},
	{flag: "skew", label: "skew", plain: skew, everywhere: true, surfaceOnly: true},
}

// keysAlias is another name of the dimension pods: each pod is a key.
const keysAlias = "keys"

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

// Dimensions returns the names of the dimensions of a scale or a surface.
func Dimensions(surface bool) []string {
	var names []string
	for _, d := range dimensions {
		if surface || !d.surfaceOnly {
			names = append(names, d.flag)
		}
	}
	return names
}

// varied is a dimension with the values to try.
type varied struct {
	dimension
	Axis
}

// parseAxis reads NAME=VALUE,VALUE,…
func parseAxis(text string) (varied, error) {
	name, list, ok := strings.Cut(text, "=")
	if !ok {
		return varied{}, fmt.Errorf("%q is not of the form NAME=VALUE,VALUE,…", text)
	}
	if name == keysAlias {
		name = "pods"
	}
	at := slices.IndexFunc(dimensions, func(d dimension) bool { return d.flag == name })
	if at < 0 {
		return varied{}, OneOf(name, Dimensions(true)...)
	}
	a := varied{dimension: dimensions[at], Axis: Axis{Label: dimensions[at].label}}
	for _, v := range strings.Split(list, ",") {
		plain, err := a.plain(strings.TrimSpace(v))
		switch {
		case err != nil:
			return varied{}, fmt.Errorf("%s: %w", name, err)
		case slices.Contains(a.Values, plain):
			return varied{}, fmt.Errorf("%s: %s is named twice", name, v)
		}
		a.Values = append(a.Values, plain)
	}
	if len(a.Values) < 2 {
		return varied{}, fmt.Errorf("%s: one value is nothing to compare", name)
	}
	return a, nil
}

// validateSearch validates the search; a Spec without one is valid.
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
	case s.Search.Knee != nil && len(s.Paces) > 0:
		return badField("paces", errors.New("a knee search chooses the rates"))
	case s.Search.Knee != nil:
		spec := s.withDefaults()
		_, err := spec.knee()
		return err
	}
	axes, err := s.axes()
	if err != nil {
		return err
	}
	for _, a := range axes {
		path := Path(a.flag)
		if slices.ContainsFunc(Given(s), func(f Field) bool { return f.Path == path }) {
			return badField(path, errors.New("is varied, and can't be set besides"))
		}
	}
	return nil
}

// axes returns the dimensions of the scale or the surface.
func (s *Spec) axes() ([]varied, error) {
	if s.Search.Scale != nil {
		const at = "search.scale.over"
		over := s.Search.Scale.Over
		if over == "" {
			return nil, badField(at, errors.New("is needed, as in producers=1,2,4,8"))
		}
		a, err := parseAxis(over)
		if err == nil && a.surfaceOnly {
			err = OneOf(a.flag, Dimensions(false)...)
		}
		if err != nil {
			return nil, badField(at, err)
		}
		return []varied{a}, nil
	}
	f := s.Search.Surface
	var axes []varied
	for _, a := range []struct{ path, text string }{{"search.surface.columns", f.X}, {"search.surface.rows", f.Y}} {
		if a.text == "" {
			return nil, badField(a.path, errors.New("is needed, as in batch-size=1,10,100,1000"))
		}
		parsed, err := parseAxis(a.text)
		if err != nil {
			return nil, badField(a.path, err)
		}
		axes = append(axes, parsed)
	}
	switch {
	case axes[0].label == axes[1].label:
		return nil, badField("search.surface.rows", fmt.Errorf("%s is varied by --x", axes[1].flag))
	case strings.ContainsAny(f.Unit, " \t\n"):
		return nil, badField("search.surface.unit", fmt.Errorf("%q is no unit", f.Unit))
	}
	return axes, nil
}

func (p *planner) planSearch(plan *Plan) error {
	if plan.Spec.Search.Knee != nil {
		return p.planKnee(plan)
	}
	axes, err := plan.Spec.axes()
	if err != nil {
		return err
	}
	if plan.Comparisons, err = p.grid(plan.Spec, axes); err != nil {
		return err
	}
	plan.finish = func(o *lab.Outcome) error {
		for i := range o.Comparisons {
			c := &o.Comparisons[i]
			if len(axes) == 1 {
				o.Scalings = append(o.Scalings, Scalings(c, axes[0].label, axes[0].workers)...)
			} else {
				o.Surfaces = append(o.Surfaces, Surfaces(c, axes[0].Axis, axes[1].Axis, plan.Spec.Search.Surface.Unit)...)
			}
		}
		return nil
	}
	return nil
}

// grid returns the comparisons of all combinations of the axes' values.
func (p *planner) grid(s Spec, axes []varied) ([]lab.Comparison, error) {
	plain := make([]Axis, len(axes))
	for i, a := range axes {
		plain[i] = a.Axis
	}
	return Grid(plain, func(point []lab.Label) ([]lab.Comparison, error) {
		at := s
		at.Search = nil
		for i, l := range point {
			if err := at.set(axes[i].flag, l.Value); err != nil {
				return nil, badField(Path(axes[i].flag), err)
			}
		}
		if err := at.Validate(); err != nil {
			return nil, err
		}
		ps, err := p.pipelineSpec(at)
		if err != nil {
			return nil, err
		}
		for i, a := range axes {
			if a.label == keysAlias && strconv.Itoa(ps.Storm.Keys) != point[i].Value {
				return nil, badField(Path(a.flag), fmt.Errorf("storm %s has %d keys with %s pods: vary the pods of one whose keys they are, such as steady",
					ps.Storm.Name, ps.Storm.Keys, point[i].Value))
			}
		}
		comparisons, err := compare(ps)
		for i, a := range axes {
			if a.everywhere {
				label(comparisons, point[i])
			}
		}
		return comparisons, err
	})
}

// label adds a label to all cells, before the rate, which is last.
func label(comparisons []lab.Comparison, l lab.Label) {
	for _, c := range comparisons {
		for i := range c.Cells {
			labels := c.Cells[i].Labels
			if slices.ContainsFunc(labels, func(have lab.Label) bool { return have.Key == l.Key }) {
				continue
			}
			c.Cells[i].Labels = slices.Insert(slices.Clone(labels), max(0, len(labels)-1), l)
		}
	}
}

// knee returns the search without its At.
func (s *Spec) knee() (Knee, error) {
	const in = "search.knee."
	k := s.Search.Knee
	objectives, err := parseObjectives(k.SLO)
	if err != nil {
		return Knee{}, badField(in+"slo", err)
	}
	resolution, err := parseShare(k.Resolution)
	if err != nil {
		return Knee{}, badField(in+"resolution", err)
	}
	for _, r := range []struct {
		field string
		rate  float64
	}{{"from", k.From}, {"to", k.To}} {
		if _, err := pace.ParseRate(Rate(r.rate)); err != nil {
			return Knee{}, badField(in+r.field, err)
		}
	}
	if k.To < k.From {
		return Knee{}, badField(in+"to", fmt.Errorf("%v is below --from %v", k.To, k.From))
	}
	return Knee{Objectives: objectives, From: k.From, To: k.To, Resolution: resolution}, nil
}

// planKnee plans a search for each comparison.
func (p *planner) planKnee(plan *Plan) error {
	s := plan.Spec
	knee, err := s.knee()
	if err != nil {
		return err
	}
	spec, err := p.pipelineSpec(s)
	if err != nil {
		return err
	}
	at := func(rate float64) ([]lab.Comparison, error) {
		return compare(atRate(spec, rate))
	}
	first, err := at(knee.From)
	if err != nil {
		return err
	}
	var searches []*Knee
	for i := range first {
		k := knee
		k.At = func(rate float64) (lab.Comparison, error) {
			if rate == k.From {
				return first[i], nil
			}
			all, err := at(rate)
			if err != nil {
				return lab.Comparison{}, err
			}
			return all[i], nil
		}
		c, err := k.Comparison()
		if err != nil {
			return err
		}
		c.Title += ", knee for " + s.Search.Knee.SLO
		searches = append(searches, &k)
		plan.Comparisons = append(plan.Comparisons, c)
	}
	plan.finish = func(o *lab.Outcome) error {
		var errs []error
		for i, k := range searches {
			errs = append(errs, k.Err())
			o.Knees = append(o.Knees, k.Knees(&o.Comparisons[i])...)
		}
		return errors.Join(errs...)
	}
	return nil
}

// atRate returns the config at one rate, with at most kneeEvents events.
func atRate(spec pipeline.Config, rate float64) pipeline.Config {
	spec.Paces = []pace.Pace{pace.Rate(rate).Pace()}
	spec.Duration = min(spec.Duration, time.Duration(kneeEvents/rate*float64(time.Second)))
	return spec
}

// objectiveUnits are the allowed quantiles of an objective.
var objectiveUnits = []struct{ name, unit string }{
	{"p50", stats.UnitP50}, {"p90", stats.UnitP90}, {"p99", stats.UnitP99}, {"p99.9", stats.UnitP999}, {"max", stats.UnitMax},
}

// parseObjectives reads QUANTILE=DURATION,…
func parseObjectives(text string) ([]stats.Objective, error) {
	var out []stats.Objective
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		at := slices.IndexFunc(objectiveUnits, func(u struct{ name, unit string }) bool { return u.name == name })
		most, err := time.ParseDuration(value)
		if !ok || at < 0 || err != nil || most <= 0 {
			return nil, fmt.Errorf("%q is not QUANTILE=DURATION, such as p99=1ms (quantiles: p50, p90, p99, p99.9, max)", part)
		}
		o := stats.Objective{Unit: objectiveUnits[at].unit, Most: most}
		if slices.ContainsFunc(out, func(have stats.Objective) bool { return have.Unit == o.Unit }) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		out = append(out, o)
	}
	return out, nil
}

// parseShare reads a percentage above 0, up to 100.
func parseShare(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v > 0) || v > 100 {
		return 0, fmt.Errorf("%q is not a percentage above 0, up to 100, such as 5%%", text)
	}
	return v / 100, nil
}
