package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/bench/sweep"
)

// surfaceFlags are the flags of surface.
type surfaceFlags struct {
	runFlags
	x, y string
	unit string
}

func newSurface(args []string) *cobra.Command {
	f := surfaceFlags{}
	cmd := &cobra.Command{
		Use:   "surface",
		Short: "See how a figure lies over two knobs, such as batch size and skew",
		Long: `surface plays a storm as fast as it goes at all combinations of two knobs'
values, all of them interleaved, and prints a figure of each variant over both.`,
		Example: `  # How badly do hot keys defeat batches?
  watchlab surface --family deltafifo --delivery in-order --storm hotkey \
    --x batch-size=1,10,100,1000 --y skew=uniform,zipf:0.8,zipf:1.1,zipf:1.5

  # How much do readers of the store cost, by what the handler costs?
  watchlab surface --family deltafifo --pipeline informer --x readers=0,1,4 --y handler-cost=0,1us,10us`,
		Args: noArgs,
		RunE: plays(args, f.plan),
	}
	f.add(cmd)
	fl := cmd.Flags()
	all := strings.Join(dimensionNames(func(dimension) bool { return true }), ", ")
	fl.StringVar(&f.x, "x", "", "what is varied from left to right: NAME=VALUE,VALUE,…, with "+all+" (keys is another name for pods)")
	fl.StringVar(&f.y, "y", "", "what is varied from top to bottom, likewise")
	fl.StringVar(&f.unit, "unit", stats.UnitEventsPerSec, "the figure, by its unit in bench.txt, such as allocs/op or p99-ns")
	return cmd
}

// plan makes the plan of a surface.
func (f *surfaceFlags) plan(cmd *cobra.Command) (*plan, error) {
	p, err := f.check(cmd)
	if err != nil {
		return nil, err
	}
	var axes []axis
	for _, a := range []struct{ flag, text string }{{"x", f.x}, {"y", f.y}} {
		if a.text == "" {
			return nil, badFlag(a.flag, errors.New("is needed, as in batch-size=1,10,100,1000"))
		}
		parsed, err := parseAxis(a.flag, a.text)
		if err != nil {
			return nil, err
		}
		axes = append(axes, parsed)
	}
	switch {
	case axes[0].label == axes[1].label:
		return nil, badFlag("y", fmt.Errorf("%s is varied by --x", axes[1].flag))
	case f.unit == "" || strings.ContainsAny(f.unit, " \t\n"):
		return nil, badFlag("unit", fmt.Errorf("%q is no unit", f.unit))
	}
	if err := f.refuseLive(); err != nil {
		return nil, err
	}
	f.sweptFamily()
	if p.comparisons, err = f.grid(cmd, axes...); err != nil {
		return nil, err
	}
	p.name = "surface"
	p.defaultRounds(defaultRounds)
	p.finish = func(o *lab.Outcome) error {
		for i := range o.Comparisons {
			o.Surfaces = append(o.Surfaces, sweep.Surfaces(&o.Comparisons[i], axes[0].Axis, axes[1].Axis, f.unit)...)
		}
		return nil
	}
	return p, nil
}
