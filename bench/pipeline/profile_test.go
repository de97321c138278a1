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
	p, err := storm.NewProfile(name)
	if err != nil {
		t.Fatal(err)
	}
	switch name {
	case "leases", "hotkey":
		p.Resize(0, 0, 0.02)
	case "resync", "relist":
		// Enough events for the marks to come between events.
		p.Resize(0, 0, 0.01)
	default:
		p.Resize(0, 100, 0)
	}
	set, err := p.Set(1)
	if err != nil {
		t.Fatal(err)
	}
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

// TestResyncIsPlayed: with resyncs, handlers get more calls than there are events.
func TestResyncIsPlayed(t *testing.T) {
	s := profileStorm(t, "resync")
	faster, err := pace.Parse("trace:300x")
	if err != nil {
		t.Fatal(err)
	}
	none := *s
	none.Marks = nil
	worked := func(s *storm.Storm, impl string) float64 {
		comparisons, err := pipeline.Compare(pipeline.Config{
			Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Impls: []string{impl}, Storm: s,
			Events: len(s.Events) - s.Initial, Paces: []pace.Pace{faster},
		})
		if err != nil {
			t.Fatal(err)
		}
		res, runErr, checkErr := play(t.Context(), t, comparisons[0].Cells[0])
		if err := errors.Join(runErr, checkErr); err != nil {
			t.Fatal(err)
		}
		for _, n := range res.Notes {
			if n.Unit == "worked" {
				return n.Value
			}
		}
		t.Fatal("no note of the look-ups")
		return 0
	}
	for _, impl := range []string{"clientgo-realfifo-batch", "cond", "clientgo-deltafifo", "sharded"} {
		// Each of the three resyncs has 300 pods. A slow worker coalesces some of them.
		if with, without := worked(s, impl), worked(&none, impl); with < without+100 {
			t.Errorf("%s: %v keys were worked on with resyncs, %v without", impl, with, without)
		}
	}
}

// TestRelistIsPlayed: the queue gets the whole state at the relist's place.
func TestRelistIsPlayed(t *testing.T) {
	t.Parallel()
	s := profileStorm(t, "relist")
	for _, impl := range []string{"clientgo-realfifo-batch", "cond", "clientgo-deltafifo", "ring"} {
		comparisons, err := pipeline.Compare(pipeline.Config{
			Family: impls.DeltaFIFO, Impls: []string{impl}, Pipeline: pipeline.QueuePipeline, Storm: s, Events: len(s.Events) - s.Initial,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range comparisons {
			res, runErr, checkErr := play(t.Context(), t, c.Cells[0])
			if err := errors.Join(runErr, checkErr); err != nil {
				t.Fatal(err)
			}
			// The relist repeats the objects that changed after the initial list.
			if res.DeltasOut <= res.EventsIn {
				t.Errorf("%s: %d deltas for %d events and a relist", name(c.Cells[0]), res.DeltasOut, res.EventsIn)
			}
		}
	}
}

// TestPaces: each shape of pace plays its number of events.
func TestPaces(t *testing.T) {
	t.Parallel()
	s := profileStorm(t, "rollout")
	own := uint64(len(s.Events) - s.Initial)
	for text, want := range map[string]uint64{
		"poisson:2000": 400, "step:1000..3000/100ms": 400, "ramp:0..4000/200ms": 400, "sine:1000..3000/100ms": 400,
		"trace:1000x": own,
	} {
		t.Run(text, func(t *testing.T) {
			p, err := pace.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			comparisons, err := pipeline.Compare(pipeline.Config{
				Family: impls.DeltaFIFO, Pipeline: pipeline.QueuePipeline, Impls: []string{"cond"}, Storm: s,
				Paces: []pace.Pace{p}, Duration: 200 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			cl := comparisons[0].Cells[0]
			if label := cl.Labels[len(cl.Labels)-1]; label != (lab.Label{Key: "rate", Value: strings.ReplaceAll(text, "/", "@")}) {
				t.Errorf("label %v", label)
			}
			res, runErr, checkErr := play(t.Context(), t, cl)
			if err := errors.Join(runErr, checkErr); err != nil {
				t.Fatal(err)
			}
			if res.EventsIn < want-1 || res.EventsIn > want+1 {
				t.Errorf("%d events, want %d", res.EventsIn, want)
			}
			if res.Lag == nil || res.Lag.Count != res.EventsIn {
				t.Errorf("lag %+v of %d events", res.Lag, res.EventsIn)
			}
		})
	}
}
