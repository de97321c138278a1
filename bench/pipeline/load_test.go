package pipeline_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/impls"
)

// noted returns a note of a round.
func noted(r cell.Result, unit string) (float64, bool) {
	for _, n := range r.Notes {
		if n.Unit == unit {
			return n.Value, true
		}
	}
	return 0, false
}

// comparisons returns the comparisons of a config on the small storm, without planted variants.
func comparisons(t testing.TB, spec pipeline.Config) []lab.Cell {
	t.Helper()
	spec.Storm, spec.Duration = smallStorm(t), 50*time.Millisecond
	made := must(pipeline.Compare(spec))(t)
	var cells []lab.Cell
	for _, c := range made {
		for _, cl := range c.Cells {
			if spec.Impls != nil || !strings.HasPrefix(cl.Labels[0].Value, planted) {
				cells = append(cells, cl)
			}
		}
	}
	return cells
}

// measure plays a cell and fails the test if the cell breaks an invariant.
func measure(t *testing.T, cl lab.Cell) cell.Result {
	t.Helper()
	res, runErr, checkErr := play(t.Context(), t, cl)
	noError(t, errors.Join(runErr, checkErr))
	return res
}

// TestReaders: readers list all objects. Cells that stamp every event report the staleness.
func TestReaders(t *testing.T) {
	t.Parallel()
	spec := pipeline.Config{
		Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{"clientgo-realfifo-batch", "cond"},
		Events: 600, Readers: 2, HandlerCost: 10 * time.Microsecond, Paces: rates(0, 2000),
	}
	for _, cl := range comparisons(t, spec) {
		t.Run(name(cl), func(t *testing.T) {
			t.Parallel()
			res := measure(t, cl)
			if n, ok := noted(res, "reads/s"); !ok || n <= 0 {
				t.Errorf("reads/s: %v, %v", n, ok)
			}
			if n, _ := noted(res, "objects/read"); n <= 0 || n > 20 {
				t.Errorf("%v objects a read, of 20 pods", n)
			}
			if l, ok := res.At(observe.Listed); !ok || l.Count == 0 {
				t.Errorf("%s: %v, %+v", observe.Listed, ok, l)
			}
			paced := cl.Labels[len(cl.Labels)-1].Value != "max"
			for _, unit := range []string{"staleness-p50-events", "staleness-p99-events", "staleness-max-events", "list-staleness-max-events"} {
				if n, ok := noted(res, unit); ok != paced || n < 0 || n > float64(res.EventsIn) {
					t.Errorf("%s: %v, %v", unit, n, ok)
				}
			}
			for _, b := range []cell.Boundary{observe.Staleness, observe.ListStaleness} {
				if l, ok := res.At(b); ok != paced || l.Negative != 0 {
					t.Errorf("%s: %v, %+v", b, ok, l)
				}
			}
		})
	}
}

// TestHandlerCost: if the consumer is the handler, the handler's time is a boundary of its own.
func TestHandlerCost(t *testing.T) {
	t.Parallel()
	spec := pipeline.Config{Family: impls.Queue, Pipeline: "queue", Impls: []string{"clientgo-fifo", "ring"}, HandlerCost: 100 * time.Microsecond, Paces: rates(2000)}
	for _, cl := range comparisons(t, spec) {
		res := measure(t, cl)
		if l, ok := res.At(observe.PoppedHandled); !ok || l.Count == 0 || l.Max == 0 {
			t.Errorf("%s: %s: %v, %+v", name(cl), observe.PoppedHandled, ok, l)
		}
	}
	// The default number of events shrinks, as each takes longer.
	spec.Paces, spec.HandlerCost = nil, time.Millisecond
	if n := measure(t, comparisons(t, spec)[0]).EventsIn; n < 1000 || n > 1300 {
		t.Errorf("%d events of a millisecond each", n)
	}
}

// TestStalled: all events are queued before the first is popped. The heap growth is the
// queue's own memory, without the objects.
func TestStalled(t *testing.T) {
	for _, family := range []impls.Family{impls.DeltaFIFO, impls.Queue} {
		for _, cl := range comparisons(t, pipeline.Config{Family: family, Pipeline: "queue", Events: 20_000, Stalled: true}) {
			t.Run(name(cl), func(t *testing.T) {
				if !slices.Contains(cl.Labels, lab.Label{Key: "consumer", Value: "stalled"}) {
					t.Error("no label consumer=stalled")
				}
				res := measure(t, cl)
				want := 20.0 // keys
				if family == impls.DeltaFIFO && slices.Contains(cl.Labels, lab.Label{Key: "delivery", Value: "in-order"}) {
					want = float64(res.EventsIn)
				}
				// A latest-object queue drops deleted objects.
				if n, _ := noted(res, "waiting"); n > want || n == 0 || family == impls.DeltaFIFO && n != want {
					t.Errorf("%v wait, want %v", n, want)
				}
				// Events that the queue folds are events all the same.
				if family == impls.Queue && (res.EventsIn < 20_000 || res.DeltasOut >= res.EventsIn/2) {
					t.Errorf("%d events in, %d deltas out", res.EventsIn, res.DeltasOut)
				}
				if n, ok := noted(res, "B/queued-event"); !ok || n < -20 || n > 300 || want > 20 && n < 8 {
					t.Errorf("B/queued-event: %v, %v", n, ok)
				}
				for _, unit := range []string{"fill-ns/event", "drain-ns/event"} {
					if n, ok := noted(res, unit); !ok || n <= 0 {
						t.Errorf("%s: %v, %v", unit, n, ok)
					}
				}
				if len(res.Latency) != 0 {
					t.Errorf("latencies of a stalled consumer: %+v", res.Latency)
				}
			})
		}
	}
}

// TestStamps: none has no latencies, all has one for each event, and the checks are the same.
func TestStamps(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"queue", "informer", "wire"} {
		for _, which := range []pipeline.Stamps{pipeline.StampsNone, pipeline.StampsSampled, pipeline.StampsAll} {
			spec := pipeline.Config{Family: impls.DeltaFIFO, Pipeline: p, Impls: []string{"clientgo-realfifo-batch", "sharded"}, Events: 2000, Stamps: which}
			boundary := observe.ReleasedHandled
			if p == "wire" {
				boundary = observe.WireDecoded
				spec.Pipeline, spec.Source, spec.Wire.Encoding = "informer", "apiserver", "protobuf"
			}
			for _, cl := range comparisons(t, spec) {
				t.Run(name(cl), func(t *testing.T) {
					t.Parallel()
					l, ok := measure(t, cl).At(boundary)
					switch {
					case ok != (which != pipeline.StampsNone):
						t.Errorf("%s recorded: %v", boundary, ok)
					case which == pipeline.StampsAll && l.Count < 2000:
						t.Errorf("%d events stamped", l.Count)
					case which == pipeline.StampsSampled && (l.Count == 0 || l.Count > 40):
						t.Errorf("%d events stamped", l.Count)
					}
				})
			}
		}
	}
}

// TestProcs: a cell sets its GOMAXPROCS and restores the process's.
func TestProcs(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	cells := comparisons(t, pipeline.Config{Family: impls.Queue, Pipeline: "queue", Impls: []string{"cond"}, Events: 1000, Procs: before + 1})
	w := must(cells[0].New())(t)
	noError(t, w.Setup(t.Context()))
	if n := runtime.GOMAXPROCS(0); n != before+1 {
		t.Errorf("GOMAXPROCS %d while it is set up, want %d", n, before+1)
	}
	var rec cell.Recorder
	if err := errors.Join(w.Run(t.Context(), &rec), w.Check(), w.Teardown()); err != nil {
		t.Error(err)
	}
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS %d afterwards, want %d", n, before)
	}
}

// TestClassesAndInput: the class has order, coalescing and trust. Equal input has equal
// digests, and other input another one.
func TestClassesAndInput(t *testing.T) {
	small := smallStorm(t)
	input := func(change func(*pipeline.Config)) string {
		t.Helper()
		spec := pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"cond"}, Modes: []string{"per-key"}, Storm: small}
		if change != nil {
			change(&spec)
		}
		made := must(pipeline.Compare(spec))(t)
		return made[0].Input
	}
	seen := map[string]string{input(nil): "nothing"}
	if len(seen) != 1 || seen[input(func(s *pipeline.Config) { s.Impls, s.Paces, s.Knobs.Capacity = []string{"ring"}, rates(0, 500), 64 })] == "" {
		t.Error("variants, paces or knobs change the input")
	}
	for what, change := range map[string]func(*pipeline.Config){
		"seed":     func(s *pipeline.Config) { s.Seed = 2 },
		"events":   func(s *pipeline.Config) { s.Events = 1234 },
		"duration": func(s *pipeline.Config) { s.Duration = time.Second },
		"pipeline": func(s *pipeline.Config) { s.Pipeline = "informer" },
		"an event": func(s *pipeline.Config) {
			shorter := *small
			shorter.Events = small.Events[:len(small.Events)-1]
			s.Storm = &shorter
		},
		"a time": func(s *pipeline.Config) {
			later := *small
			later.Events = slices.Clone(small.Events)
			later.Events[len(later.Events)-1].At++
			s.Storm = &later
		},
	} {
		digest := input(change)
		if other, ok := seen[digest]; ok || len(digest) != 64 {
			t.Errorf("another %s has the digest %q, like another %s", what, digest, other)
		}
		seen[digest] = what
	}

	for _, tc := range []struct {
		spec pipeline.Config
		want string
	}{
		{pipeline.Config{Family: impls.DeltaFIFO, Impls: []string{"ring"}, Modes: []string{"in-order"}, Knobs: pipeline.Knobs{HandOver: impls.Lent}}, "order total, coalesces none"},
		{pipeline.Config{Family: impls.Queue, Impls: []string{"sharded"}}, "order per-shard, coalesces latest"},
		{pipeline.Config{Family: impls.Queue, Impls: []string{"sharded"}, Knobs: pipeline.Knobs{Shards: 1}}, "order per-key, coalesces latest"},
		{pipeline.Config{Family: impls.DeltaFIFO, Impls: []string{"sharded"}}, "order per-shard, coalesces deltas"},
		{pipeline.Config{Family: impls.DeltaFIFO, Impls: []string{"sharded"}, Knobs: pipeline.Knobs{Shards: 1}}, "order per-key, coalesces deltas"},
	} {
		tc.spec.Storm, tc.spec.Pipeline = small, "queue"
		made := must(pipeline.Compare(tc.spec))(t)
		if got := made[0].Cells[0].Class; got != tc.want {
			t.Errorf("%s: class %q, want %q", name(made[0].Cells[0]), got, tc.want)
		}
	}
}
