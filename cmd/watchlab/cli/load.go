package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/pipeline"
)

// loadFlags are the flags of what is asked of a pipeline's reading side, and of
// how closely it is looked at.
type loadFlags struct {
	consumers int
	readers   int
	cost      time.Duration
	stalled   bool
	procs     int
	stamps    string
	noProbe   bool
}

// loadFlagNames are their names.
var loadFlagNames = []string{"consumers", "readers", "handler-cost", "stalled", "procs", "stamps", "no-probe"}

func (f *loadFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.consumers, "consumers", 0, "goroutines that take from deltafifo or queue in the queue pipeline (default 1); a variant that lets only one take at once is played with one")
	fl.IntVar(&f.readers, "readers", 0, "goroutines that list a namespace of the indexer after the other, without a pause, in the informer pipeline")
	fl.DurationVar(&f.cost, "handler-cost", 0, "processor time that the handler takes for each event, such as 10us: in the informer pipeline the event handler, in the queue pipeline the consumer")
	fl.BoolVar(&f.stalled, "stalled", false, "hold the consumer until all events are queued, then measure the bytes that each takes and how they drain; queue pipeline, unpaced, unbounded")
	fl.IntVar(&f.procs, "procs", 0, "GOMAXPROCS while a cell is played (default: the process's)")
	fl.StringVar(&f.stamps, "stamps", "", "none, sampled or all: which events of an unpaced deltafifo or queue get a reading of the clock (default sampled)")
	fl.BoolVar(&f.noProbe, "no-probe", false, "leave out the probe that asks the queue of a paced cell every 3.7 ms, for the longest lock hold")
}

// apply puts the flags into a comparison.
func (f *loadFlags) apply(s *pipeline.Config) error {
	for _, n := range []struct {
		flag string
		n    int
	}{{"consumers", f.consumers}, {"readers", f.readers}, {"procs", f.procs}} {
		if n.n < 0 {
			return badFlag(n.flag, fmt.Errorf("%d is negative", n.n))
		}
	}
	if f.cost < 0 {
		return badFlag("handler-cost", fmt.Errorf("%v is negative", f.cost))
	}
	var allowed []string
	for _, a := range pipeline.AllStamps() {
		allowed = append(allowed, string(a))
	}
	if f.stamps != "" && !slices.Contains(allowed, f.stamps) {
		return badFlag("stamps", oneOf(f.stamps, allowed...))
	}
	s.Consumers, s.Readers, s.HandlerCost, s.Stalled = f.consumers, f.readers, f.cost, f.stalled
	s.Procs, s.Stamps, s.NoProbe = f.procs, pipeline.Stamps(f.stamps), f.noProbe
	return nil
}

// refuseLoad refuses the flags where a live cluster is followed: its cells are
// played at the same time, on one machine.
func refuseLoad(cmd *cobra.Command) error {
	for _, name := range loadFlagNames {
		if cmd.Flags().Changed(name) {
			return badFlag(name, errors.New("needs a storm that is played, not a live cluster"))
		}
	}
	return nil
}
