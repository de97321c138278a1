package pipeline_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/queue"
)

// The planted faults, and the invariant that each breaks.
var faults = map[string]error{
	"drop":      lab.ErrLost,
	"swap":      lab.ErrReordered,
	"duplicate": lab.ErrDuplicated,
	"alter":     lab.ErrDiverged,
}

// registerFaults registers, for each family, a variant of cond with each fault.
func registerFaults() {
	for fault := range faults {
		deltafifo.Register(deltafifo.Variant{
			Name: planted + fault, Summary: "faulty",
			Guarantees: []impls.Guarantees{
				{Mode: string(deltafifo.InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone},
				{Mode: string(deltafifo.PerKey), Order: impls.OrderPerKey, Coalesces: impls.CoalesceDeltas},
			},
			New: func(o deltafifo.Options) (deltafifo.Queue, error) {
				q, err := deltafifo.New("cond", o)
				return &faultyDeltaFIFO{q, injector{fault: fault}}, err
			},
		})
		queue.Register(queue.Variant{
			Name: planted + fault, Summary: "faulty",
			Guarantees: []impls.Guarantees{{Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest}},
			New: func(o queue.Options) (queue.Queue, error) {
				q, err := queue.New("cond", o)
				return &faultyQueue{q, injector{fault: fault, persistent: true}}, err
			},
		})
		merge.Register(merge.Variant{
			Name: planted + fault, Summary: "faulty",
			Guarantees: []impls.Guarantees{{Order: impls.OrderPerKey, Coalesces: impls.CoalesceNone}},
			New: func(o merge.Options) (merge.Merger, error) {
				m, err := merge.New("cond", o)
				return &faultyMerger{m, injector{fault: fault}, make(chan merge.PodUpdate)}, err
			},
		})
	}
}

// victim is the pod that the faults affect.
const victim = "pod-3"

func isVictim(obj any) bool {
	o, ok := obj.(metav1.Object)
	return ok && o.GetName() == victim
}

func altered(obj any) any {
	o := obj.(runtime.Object).DeepCopyObject()
	o.(metav1.Object).SetResourceVersion("999999")
	if pod, ok := o.(*v1.Pod); ok {
		pod.Spec.NodeName = "elsewhere"
		pod.Status.Reason = "altered"
	}
	return o
}

// injector commits a fault at the second of the victim's objects that pass; persistent drops all from there on.
type injector struct {
	fault      string
	persistent bool

	mu   sync.Mutex
	n    int
	held any
}

func (f *injector) pass(obj any, deliver func(any) error) error {
	if !isVictim(obj) {
		return deliver(obj)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	switch {
	case f.fault == "drop" && (f.n == 2 || f.n > 2 && f.persistent):
		return nil
	case f.n == 2 && f.fault == "duplicate":
		return errors.Join(deliver(obj), deliver(obj))
	case f.n == 2 && f.fault == "alter":
		return deliver(altered(obj))
	case f.n == 2 && f.fault == "swap":
		f.held = obj
		return nil
	case f.held != nil:
		held := f.held
		f.held = nil
		return errors.Join(deliver(obj), deliver(held))
	}
	return deliver(obj)
}

// faultyDeltaFIFO commits its fault at updates.
type faultyDeltaFIFO struct {
	deltafifo.Queue
	injector
}

func (f *faultyDeltaFIFO) Update(obj any) error { return f.pass(obj, f.Queue.Update) }

// faultyQueue commits its fault at hand-overs. No hand-over is two events of the victim, however slow the consumer is.
type faultyQueue struct {
	queue.Queue
	injector
}

func (f *faultyQueue) Update(obj any) error {
	for isVictim(obj) && f.Len() > 0 {
		goruntime.Gosched()
	}
	return f.Queue.Update(obj)
}

func (f *faultyQueue) Pop(process cache.PopProcessFunc) (any, error) {
	return f.Queue.Pop(func(obj any, initial bool) error {
		return f.pass(obj, func(o any) error { return process(o, initial) })
	})
}

// faultyMerger commits its fault on the victim's notifications.
type faultyMerger struct {
	merge.Merger
	injector
	updates chan merge.PodUpdate
}

func (f *faultyMerger) Updates() <-chan merge.PodUpdate { return f.updates }

func (f *faultyMerger) Channel(ctx context.Context, source string) (chan<- merge.PodUpdate, error) {
	go func() {
		ops := map[any]merge.PodUpdate{} // of the victim's pods that pass
		send := func(u merge.PodUpdate) error {
			select {
			case f.updates <- u:
			case <-ctx.Done():
			}
			return nil
		}
		for {
			select {
			case <-ctx.Done():
				return
			case u := <-f.Merger.Updates():
				if len(u.Pods) != 1 {
					_ = send(u)
					continue
				}
				ops[u.Pods[0]] = u
				_ = f.pass(u.Pods[0], func(o any) error {
					own, ok := ops[o]
					if !ok {
						own = u
						own.Pods = []*v1.Pod{o.(*v1.Pod)}
					}
					return send(own)
				})
			}
		}
	}()
	return f.Merger.Channel(ctx, source)
}

// TestPlantedFaults: every pipeline finds each planted fault and reports the right invariant.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	small := smallStorm(t)
	var names []string
	for fault := range faults {
		names = append(names, planted+fault)
	}
	// Paced, so that the queue does not coalesce the events to swap, but for the rows of unpaced load.
	for _, spec := range []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue", Paces: rates(1000)},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Paces: rates(1000)},
		{Family: impls.Queue, Pipeline: "queue", Paces: rates(1000)},
		{Family: impls.Merge, Pipeline: "queue", Paces: rates(1000)},
		{Family: impls.Merge, Pipeline: "kubelet", Paces: rates(1000)},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Readers: 1, HandlerCost: 10 * time.Microsecond},
		{Family: impls.DeltaFIFO, Pipeline: "queue", HandlerCost: 10 * time.Microsecond},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Stalled: true},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Stamps: pipeline.StampsNone},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Stamps: pipeline.StampsNone},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Stamps: pipeline.StampsAll},
	} {
		// The whole storm is played, as the victim occurs late.
		spec.Storm, spec.Impls = small, names
		spec.Events, spec.Duration = len(small.Events)-small.Initial, time.Millisecond
		comparisons := must(pipeline.Compare(spec))(t)
		for _, c := range comparisons {
			for _, cl := range c.Cells {
				t.Run(name(cl), func(t *testing.T) {
					t.Parallel()
					_, runErr, err := play(t.Context(), t, cl)
					if runErr != nil {
						t.Fatal(runErr)
					}
					want := faults[strings.TrimPrefix(cl.Labels[0].Value, planted)]
					if !errors.Is(err, want) {
						t.Errorf("Check: %v, want %v", err, want)
					}
					// The final state may differ too. A swap or a duplicate breaks no
					// other invariant.
					for _, other := range faults {
						exact := errors.Is(want, lab.ErrReordered) || errors.Is(want, lab.ErrDuplicated)
						if exact && !errors.Is(other, want) && !errors.Is(other, lab.ErrDiverged) && errors.Is(err, other) {
							t.Errorf("Check: %v, want only %v", err, want)
						}
					}
				})
			}
		}
	}
}

// afterSetup calls a function after Setup.
type afterSetup struct {
	lab.Workload
	call func()
}

func (a afterSetup) Setup(ctx context.Context) error {
	defer a.call()
	return a.Workload.Setup(ctx)
}

// TestCancel: cancelled runs return soon with the context's error and leave no goroutine
// (see TestMain).
func TestCancel(t *testing.T) {
	t.Parallel()
	small := smallStorm(t)
	cause := errors.New("enough")
	for _, spec := range []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue"},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Producers: 3},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "memory"},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver"},
		{Family: impls.Queue, Pipeline: "queue"},
		{Family: impls.Merge, Pipeline: "queue"},
		{Family: impls.Merge, Pipeline: "kubelet", Source: "memory"},
		{Family: impls.Merge, Pipeline: "kubelet", Source: "apiserver"},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"sharded"}, HandlerCost: time.Millisecond, Events: 100_000},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{"cond"}, Readers: 3, HandlerCost: time.Millisecond, Events: 100_000},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"cond"}, Stalled: true, HandlerCost: time.Millisecond, Events: 100_000},
	} {
		spec.Storm = small
		if spec.Impls == nil {
			spec.Paces = rates(1) // The schedule takes 100 s.
		}
		comparisons := must(pipeline.Compare(spec))(t)
		for _, c := range comparisons {
			for _, cl := range c.Cells {
				if strings.HasPrefix(cl.Labels[0].Value, planted) {
					continue
				}
				t.Run(name(cl), func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					start := time.Now()
					cl := cl
					made := cl.New
					cl.New = func() (lab.Workload, error) {
						w, err := made()
						return afterSetup{w, func() { time.AfterFunc(200*time.Millisecond, func() { cancel(cause) }) }}, err
					}
					_, err, _ := play(ctx, t, cl)
					if !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
						t.Errorf("Run: %v, want the context's error", err)
					}
					if took := time.Since(start); took > time.Minute {
						t.Errorf("Run returned after %v", took)
					}
				})
			}
		}
	}
}
