package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/sweep"
	"watchlab/loadgen/storm"
)

// dimension is a flag that can be given several values, one after the other, to
// see what comes of it.
type dimension struct {
	flag, label string

	plain func(string) (string, error)

	workers bool

	everywhere bool
}

// dimensions, by the names that --over, --x and --y take.
var dimensions = []dimension{
	{flag: "producers", label: "producers", plain: positive, workers: true, everywhere: true},
	{flag: "consumers", label: "consumers", plain: positive, workers: true},
	{flag: "procs", label: "procs", plain: positive, workers: true, everywhere: true},
	{flag: "shards", label: "shards", plain: natural},
	{flag: "capacity", label: "capacity", plain: natural},
	{flag: "batch-size", label: "batch", plain: natural},
	{flag: "readers", label: "readers", plain: natural, everywhere: true},
	{flag: "handler-cost", label: "handler", plain: duration, everywhere: true},
	{flag: "stamps", label: "stamps", plain: word, everywhere: true},
	{flag: "events", label: "events", plain: positive, everywhere: true},
	{flag: "pods", label: "keys", plain: positive, everywhere: true},
	{flag: "nodes", label: "nodes", plain: positive, everywhere: true},
	{flag: "skew", label: "skew", plain: skew, everywhere: true},
}

// keysAlias is another name for pods, whose number is that of the keys.
const keysAlias = "keys"

func positive(s string) (string, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < 1 {
		return "", fmt.Errorf("%q is not a whole number above 0", s)
	}
	return strconv.Itoa(v), nil
}

func natural(s string) (string, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < 0 {
		return "", fmt.Errorf("%q is not a whole number from 0", s)
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

// word is a value that the flag itself checks.
func word(s string) (string, error) { return s, nil }

func skew(s string) (string, error) {
	v, err := storm.ParseSkew(s)
	return v.String(), err
}

// dimensionNames are what can be varied, for help and errors.
func dimensionNames(wanted func(dimension) bool) []string {
	var names []string
	for _, d := range dimensions {
		if wanted(d) {
			names = append(names, d.flag)
		}
	}
	return names
}

// axis is a dimension with the values that it is given.
type axis struct {
	dimension
	sweep.Axis
}

// parseAxis reads NAME=VALUE,VALUE,…
func parseAxis(flag, text string) (axis, error) {
	name, list, ok := strings.Cut(text, "=")
	if !ok {
		return axis{}, badFlag(flag, fmt.Errorf("%q is not of the form NAME=VALUE,VALUE,…", text))
	}
	if name == keysAlias {
		name = "pods"
	}
	at := slices.IndexFunc(dimensions, func(d dimension) bool { return d.flag == name })
	if at < 0 {
		return axis{}, badFlag(flag, oneOf(name, dimensionNames(func(dimension) bool { return true })...))
	}
	a := axis{dimension: dimensions[at]}
	a.Axis.Label = a.label
	for _, v := range strings.Split(list, ",") {
		plain, err := a.plain(strings.TrimSpace(v))
		switch {
		case err != nil:
			return axis{}, badFlag(flag, fmt.Errorf("%s: %w", name, err))
		case slices.Contains(a.Values, plain):
			return axis{}, badFlag(flag, fmt.Errorf("%s: %s stands there twice", name, v))
		}
		a.Values = append(a.Values, plain)
	}
	if len(a.Values) < 2 {
		return axis{}, badFlag(flag, fmt.Errorf("%s: one value is nothing to compare", name))
	}
	return a, nil
}

// grid makes the comparisons of all combinations of the axes, by setting the flags
// as a user would.
func (f *runFlags) grid(cmd *cobra.Command, axes ...axis) ([]lab.Comparison, error) {
	swept := make([]sweep.Axis, 0, len(axes))
	for _, a := range axes {
		if cmd.Flags().Changed(a.flag) {
			return nil, badFlag(a.flag, errors.New("is varied, and can't be set besides"))
		}
		swept = append(swept, a.Axis)
	}
	comparisons, err := sweep.Grid(swept, func(point []lab.Label) ([]lab.Comparison, error) {
		for i, l := range point {
			if err := cmd.Flags().Set(axes[i].flag, l.Value); err != nil {
				return nil, badFlag(axes[i].flag, err)
			}
		}
		if _, err := f.check(cmd); err != nil {
			return nil, err
		}
		spec, err := f.loaded(cmd)
		if err != nil {
			return nil, err
		}
		for i, a := range axes {
			if a.label == keysAlias && strconv.Itoa(spec.Storm.Keys) != point[i].Value {
				return nil, badFlag(a.flag, fmt.Errorf("storm %s has %d keys with %s pods: vary the pods of one whose keys they are, such as steady",
					spec.Storm.Name, spec.Storm.Keys, point[i].Value))
			}
		}
		at, err := compare(spec)
		if err != nil {
			return nil, err
		}
		for i, a := range axes {
			if a.everywhere {
				label(at, point[i])
			}
		}
		return at, nil
	})
	if errors.Is(err, sweep.ErrSweep) {
		return nil, usageError{err}
	}
	return comparisons, err
}

// label sees to it that all cells have a label; it stands before the rate, which
// is the last.
func label(comparisons []lab.Comparison, l lab.Label) {
	for _, c := range comparisons {
		for i := range c.Cells {
			labels := c.Cells[i].Labels
			if slices.ContainsFunc(labels, func(have lab.Label) bool { return have.Key == l.Key }) {
				continue
			}
			at := max(0, len(labels)-1)
			c.Cells[i].Labels = slices.Insert(slices.Clone(labels), at, l)
		}
	}
}
