package workqueue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	upstream "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
)

// recorder is a provider that records what the metrics are told. Sums and counts do not depend on
// the order of calls.
type recorder struct{ Calls map[string][]float64 }

type recorded struct {
	r    *recorder
	name string
}

func (m recorded) Inc()              { m.r.Calls[m.name] = append(m.r.Calls[m.name], 1) }
func (m recorded) Dec()              { m.r.Calls[m.name] = append(m.r.Calls[m.name], -1) }
func (m recorded) Set(v float64)     { m.Observe(v) }
func (m recorded) Observe(v float64) { m.r.Calls[m.name] = append(m.r.Calls[m.name], v) }

func newRecorder() *recorder { return &recorder{Calls: map[string][]float64{}} }

func (r *recorder) NewDepthMetric(name string) upstream.GaugeMetric {
	return recorded{r, name + " depth"}
}
func (r *recorder) NewAddsMetric(name string) upstream.CounterMetric {
	return recorded{r, name + " adds"}
}
func (r *recorder) NewLatencyMetric(name string) upstream.HistogramMetric {
	return recorded{r, name + " latency"}
}
func (r *recorder) NewWorkDurationMetric(name string) upstream.HistogramMetric {
	return recorded{r, name + " work"}
}
func (r *recorder) NewUnfinishedWorkSecondsMetric(name string) upstream.SettableGaugeMetric {
	return recorded{r, name + " unfinished"}
}
func (r *recorder) NewLongestRunningProcessorSecondsMetric(name string) upstream.SettableGaugeMetric {
	return recorded{r, name + " longest"}
}
func (r *recorder) NewRetriesMetric(name string) upstream.CounterMetric {
	return recorded{r, name + " retries"}
}

// follower is the order of client-go's queue when another queue chooses the next item.
type follower struct {
	queued []string
	next   string
}

func (f *follower) Touch(string)     {}
func (f *follower) Push(item string) { f.queued = append(f.queued, item) }
func (f *follower) Len() int         { return len(f.queued) }
func (f *follower) Pop() string {
	f.queued = slices.DeleteFunc(f.queued, func(s string) bool { return s == f.next })
	return f.next
}

// TestLikeClientgo: the same calls lead to the same lengths, items and metrics as in client-go's
// queue. Where order is total, the next item is the same too.
func TestLikeClientgo(t *testing.T) {
	for _, v := range Variants() {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/seed=%d", v.Name, seed), func(t *testing.T) {
				ours, theirs := newRecorder(), newRecorder()
				clock := testingclock.NewFakeClock(time.Unix(1000, 0))
				q, err := v.New(Options[string]{Name: "q", MetricsProvider: ours, Clock: clock})
				if err != nil {
					t.Fatal(err)
				}
				order := new(follower)
				ref := upstream.NewTypedWithConfig(upstream.TypedQueueConfig[string]{
					Name: "q", MetricsProvider: theirs, Clock: clock, Queue: order,
				})
				perKey := v.Guarantees[0].Order == "per-key"
				rnd := rand.New(rand.NewPCG(seed, 0))
				keys := 1 + rnd.IntN(200)
				adds := 30 + rnd.IntN(40)
				var inProcess []string
				for i := range 3000 {
					clock.Step(time.Duration(rnd.IntN(50)) * time.Microsecond)
					switch op := rnd.IntN(100); {
					case i > 2500 && op == 0:
						q.ShutDown()
						ref.ShutDown()
					case op < adds:
						k := fmt.Sprint(rnd.IntN(keys))
						q.Add(k)
						ref.Add(k)
					case op < adds+20 && q.Len() > 0:
						k, down := q.Get()
						if perKey && k != order.queued[0] || down || !slices.Contains(order.queued, k) {
							t.Fatalf("op %d: Get is %q, %t; client-go has %q", i, k, down, order.queued)
						}
						order.next = k
						ref.Get()
						inProcess = append(inProcess, k)
					case len(inProcess) > 0:
						at := rnd.IntN(len(inProcess))
						q.Done(inProcess[at])
						ref.Done(inProcess[at])
						inProcess = slices.Delete(inProcess, at, at+1)
					}
					if q.Len() != ref.Len() || q.ShuttingDown() != ref.ShuttingDown() {
						t.Fatalf("op %d: length %d, client-go %d", i, q.Len(), ref.Len())
					}
				}
				q.ShutDown()
				ref.ShutDown()
				if diff := cmp.Diff(theirs.Calls, ours.Calls); diff != "" {
					t.Errorf("metrics (-client-go +%s):\n%s", v.Name, diff)
				}
			})
		}
	}
}
