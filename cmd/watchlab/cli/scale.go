package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/sweep"
	"watchlab/impls"
)

// sweptFamily is the family of a sweep that doesn't name one: the one that its
// pipeline is for.
func (f *runFlags) sweptFamily() {
	switch {
	case f.family != "":
	case f.pipeline == pipeline.KubeletPipeline:
		f.family = string(impls.Merge)
	default:
		f.family = string(impls.DeltaFIFO)
	}
}

// refuseLive: a sweep plays the same again and again, which a live cluster
// doesn't.
func (f *runFlags) refuseLive() error {
	if liveSource(f.source) {
		return badFlag("source", errors.New("a sweep plays the same storm again and again, which a live cluster doesn't"))
	}
	return nil
}

func newScale(args []string) *cobra.Command {
	f, over := runFlags{}, ""
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "See how throughput goes with a number, such as that of producers",
		Long: `scale plays a storm as fast as it goes at each value of a number, all of them
interleaved, and prints the throughput of each variant.

Where the number is one of workers (producers, consumers, procs), the Universal
Scalability Law is fitted to it: what one worker does (lambda), which share is done
one after the other (sigma), what they pay for agreeing with each other (kappa), and
where the peak is; each with an interval. It takes four numbers or more.`,
		Example: `  # How many producers does each queue take?
  watchlab scale --family deltafifo --delivery per-key --over producers=1,2,4,8

  # And processors?
  watchlab scale --family queue --producers 8 --over procs=1,2,4,8

  # How much do shards bring?
  watchlab scale --family deltafifo --impl sharded --producers 8 --over shards=1,2,4,8,16`,
		Args: noArgs,
		RunE: plays(args, func(cmd *cobra.Command) (*plan, error) { return f.scale(cmd, over) }),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&over, "over", "", "what is varied: NAME=VALUE,VALUE,…, with "+strings.Join(dimensionNames(dimension.number), ", ")+" (keys is another name for pods)")
	return cmd
}

// number reports whether the values are numbers by themselves.
func (d dimension) number() bool {
	return d.flag != "skew" && d.flag != "handler-cost" && d.flag != "stamps"
}

// scale makes the plan of a scaling.
func (f *runFlags) scale(cmd *cobra.Command, over string) (*plan, error) {
	p, err := f.check(cmd)
	if err != nil {
		return nil, err
	}
	if over == "" {
		return nil, badFlag("over", errors.New("is needed, as in producers=1,2,4,8"))
	}
	a, err := parseAxis("over", over)
	if err != nil {
		return nil, err
	}
	if !a.number() {
		return nil, badFlag("over", oneOf(a.flag, dimensionNames(dimension.number)...))
	}
	if err := f.refuseLive(); err != nil {
		return nil, err
	}
	f.sweptFamily()
	if p.comparisons, err = f.grid(cmd, a); err != nil {
		return nil, err
	}
	p.name = "scale"
	p.defaultRounds(defaultRounds)
	p.finish = func(o *lab.Outcome) error {
		for i := range o.Comparisons {
			o.Scalings = append(o.Scalings, sweep.Scalings(&o.Comparisons[i], a.label, a.workers)...)
		}
		return nil
	}
	return p, nil
}
