package pipeline_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// profileStorm returns the first storm of a profile with a cluster of a few pods.
func profileStorm(t testing.TB, name string) *storm.Storm {
	t.Helper()
	p := must(storm.NewProfile(name))(t)
	switch name {
	case "leases", "hotkey":
		p.Resize(0, 0, 0.02)
	case "resync", "relist":
		// Enough events for the marks to come between events.
		p.Resize(0, 0, 0.01)
	default:
		p.Resize(0, 100, 0)
	}
	set := must(p.Set(1))(t)
	return set.Storms[0]
}

// TestEveryProfile plays every profile through every delta queue in the informer
// pipeline, and some profiles through the queue pipeline. No event is lost.
func TestEveryProfile(t *testing.T) {
	for _, profile := range storm.Names() {
		s := profileStorm(t, profile)
		pipelines := []string{pipeline.InformerPipeline}
		if profile == "gang" || profile == "relist" {
			// For the queue pipeline the other profiles are alike.
			pipelines = append(pipelines, pipeline.QueuePipeline)
		}
		for _, p := range pipelines {
			comparisons, err := pipeline.Compare(pipeline.Config{
				Family: impls.DeltaFIFO, Pipeline: p, Storm: s, Events: len(s.Events) - s.Initial,
			})
			if err != nil {
				t.Fatal(err)
			}
			// The cells run in parallel, as a relist waits 1 to 2 s for the Reflector.
			var wg sync.WaitGroup
			for _, c := range comparisons {
				for _, cl := range c.Cells {
					if strings.Contains(name(cl), planted) {
						continue
					}
					wg.Go(func() {
						res, runErr, checkErr := play(t.Context(), t, cl)
						if err := errors.Join(runErr, checkErr); err != nil {
							t.Errorf("%s: %v", name(cl), err)
						}
						for _, n := range res.Notes {
							if n.Unit == "relists" && (n.Value > 0) != (profile == "relist") {
								t.Errorf("%s: %v relists", name(cl), n.Value)
							}
						}
					})
				}
			}
			wg.Wait()
		}
	}
}

// cellOf returns the cell of a delta queue's variant on a whole storm.
func cellOf(t *testing.T, config pipeline.Config, impl string, s *storm.Storm) lab.Cell {
	t.Helper()
	config.Family, config.Impls, config.Storm = impls.DeltaFIFO, []string{impl}, s
	made := must(pipeline.Compare(config))(t)
	return made[0].Cells[0]
}

// TestResyncIsPlayed: with resyncs, handlers get more calls than there are events.
func TestResyncIsPlayed(t *testing.T) {
	s := profileStorm(t, "resync")
	faster := must(pace.Parse("trace:300x"))(t)
	none := *s
	none.Marks = nil
	config := pipeline.Config{Pipeline: pipeline.InformerPipeline, Events: len(s.Events) - s.Initial, Paces: []pace.Pace{faster}}
	for _, impl := range []string{"clientgo-realfifo-batch", "cond", "clientgo-deltafifo", "sharded"} {
		// Each of the three resyncs has 300 pods. A slow worker coalesces some of them.
		with, _ := noted(measure(t, cellOf(t, config, impl, s)), "worked")
		if without, ok := noted(measure(t, cellOf(t, config, impl, &none)), "worked"); !ok || with < without+100 {
			t.Errorf("%s: %v keys were worked on with resyncs, %v without", impl, with, without)
		}
	}
}

// TestRelistIsPlayed: the queue gets the whole state at the relist's place.
func TestRelistIsPlayed(t *testing.T) {
	t.Parallel()
	s := profileStorm(t, "relist")
	for _, impl := range []string{"clientgo-realfifo-batch", "cond", "clientgo-deltafifo", "ring"} {
		res := measure(t, cellOf(t, pipeline.Config{Pipeline: pipeline.QueuePipeline, Events: len(s.Events) - s.Initial}, impl, s))
		// The relist repeats the objects that changed after the initial list.
		if res.DeltasOut <= res.EventsIn {
			t.Errorf("%s: %d deltas for %d events and a relist", impl, res.DeltasOut, res.EventsIn)
		}
	}
}

// TestRoundLength: each pace plays its number of events.
func TestRoundLength(t *testing.T) {
	t.Parallel()
	s := profileStorm(t, "rollout")
	whole := uint64(len(s.Events) - s.Initial)
	const long, short = 200 * time.Millisecond, time.Millisecond
	for _, tc := range []struct {
		pace        string
		duration    time.Duration
		events      int
		least, most uint64
	}{
		{"max", 0, 2000, 2000, 2000 + whole},
		{"max", 0, 1, whole, whole}, // fewer than there are
		{"5000", long, 0, 1000, 1000},
		{"5000", short, 0, 100, 100}, // a hundred at least
		{"20000", short, 321, 321, 321},
		{"poisson:2000", long, 0, 399, 401},
		{"trace:1000x", long, 0, whole, whole},
	} {
		t.Run(tc.pace, func(t *testing.T) {
			p := must(pace.Parse(tc.pace))(t)
			cl := cellOf(t, pipeline.Config{Pipeline: pipeline.QueuePipeline, Paces: []pace.Pace{p}, Events: tc.events, Duration: tc.duration}, "cond", s)
			if rate := cl.Label("rate"); rate != tc.pace {
				t.Errorf("rate %s", rate)
			}
			res := measure(t, cl)
			if res.EventsIn < tc.least || res.EventsIn > tc.most {
				t.Errorf("%d events, want %d to %d", res.EventsIn, tc.least, tc.most)
			}
			if p.Paced() && (res.Lag == nil || res.Lag.Count != res.EventsIn) {
				t.Errorf("lag %+v of %d events", res.Lag, res.EventsIn)
			}
		})
	}
}
