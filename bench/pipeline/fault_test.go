package pipeline_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
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

// registerFaults registers, for each family, a variant with each fault: of cond, and of
// sharded for several consumers.
func registerFaults() {
	for fault := range faults {
		for _, v := range []struct {
			base, name string
			consumers  impls.Consumers
			modes      []deltafifo.Delivery
		}{
			{base: "cond", name: planted + fault, modes: []deltafifo.Delivery{deltafifo.InOrder, deltafifo.PerKey}},
			{base: "sharded", name: planted + "many-" + fault, consumers: impls.ManyConsumers, modes: []deltafifo.Delivery{deltafifo.PerKey}},
		} {
			var guarantees []impls.Guarantees
			for _, mode := range v.modes {
				g := impls.Guarantees{Mode: string(mode), Order: impls.OrderPerKey, Coalesces: impls.CoalesceDeltas, Consumers: v.consumers}
				if mode == deltafifo.InOrder {
					g.Order, g.Coalesces = impls.OrderTotal, impls.CoalesceNone
				}
				guarantees = append(guarantees, g)
			}
			deltafifo.Register(deltafifo.Variant{
				Name: v.name, Summary: "faulty", Guarantees: guarantees,
				New: func(o deltafifo.Options) (deltafifo.Queue, error) {
					q, err := deltafifo.New(v.base, o)
					return &faultyDeltaFIFO{Queue: q, fault: fault}, err
				},
			})
			queue.Register(queue.Variant{
				Name: v.name, Summary: "faulty",
				Guarantees: []impls.Guarantees{{Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Consumers: v.consumers}},
				New: func(o queue.Options) (queue.Queue, error) {
					q, err := queue.New(v.base, o)
					return &faultyQueue{Queue: q, fault: fault}, err
				},
			})
		}
		merge.Register(merge.Variant{
			Name: planted + fault, Summary: "faulty",
			Guarantees: []impls.Guarantees{{Order: impls.OrderPerKey, Coalesces: impls.CoalesceNone}},
			New: func(o merge.Options) (merge.Merger, error) {
				m, err := merge.New("cond", o)
				return &faultyMerger{Merger: m, fault: fault, updates: make(chan merge.PodUpdate)}, err
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

// faultyDeltaFIFO commits its fault at the first updates of the victim.
type faultyDeltaFIFO struct {
	deltafifo.Queue
	fault string

	mu   sync.Mutex
	n    int
	held any
}

func (f *faultyDeltaFIFO) Update(obj any) error {
	if !isVictim(obj) {
		return f.Queue.Update(obj)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	switch {
	case f.n == 2 && f.fault == "drop":
		return nil
	case f.n == 2 && f.fault == "duplicate":
		return errors.Join(f.Queue.Update(obj), f.Queue.Update(obj))
	case f.n == 2 && f.fault == "alter":
		return f.Queue.Update(altered(obj))
	case f.n == 2 && f.fault == "swap":
		f.held = obj
		return nil
	case f.held != nil:
		held := f.held
		f.held = nil
		return errors.Join(f.Queue.Update(obj), f.Queue.Update(held))
	}
	return f.Queue.Update(obj)
}

// faultyQueue commits its fault at the victim's second hand-over. To lose the victim, it
// drops every hand-over. No hand-over is two events of the victim, however slow the consumer is.
type faultyQueue struct {
	queue.Queue
	fault string

	mu   sync.Mutex
	n    int
	held any
}

func (f *faultyQueue) Update(obj any) error {
	for isVictim(obj) && f.Len() > 0 {
		goruntime.Gosched()
	}
	return f.Queue.Update(obj)
}

func (f *faultyQueue) Pop(process cache.PopProcessFunc) (any, error) {
	return f.Queue.Pop(func(obj any, initial bool) error {
		if !isVictim(obj) {
			return process(obj, initial)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.n++
		switch {
		case f.n < 2:
		case f.fault == "drop":
			return nil
		case f.n == 2 && f.fault == "duplicate":
			return errors.Join(process(obj, initial), process(obj, initial))
		case f.n == 2 && f.fault == "alter":
			return process(altered(obj), initial)
		case f.n == 2 && f.fault == "swap":
			f.held = obj
			return nil
		case f.held != nil:
			held := f.held
			f.held = nil
			return errors.Join(process(obj, initial), process(held, initial))
		}
		return process(obj, initial)
	})
}

// faultyMerger commits its fault on the victim's notifications.
type faultyMerger struct {
	merge.Merger
	fault   string
	updates chan merge.PodUpdate
}

func (f *faultyMerger) Updates() <-chan merge.PodUpdate { return f.updates }

func (f *faultyMerger) Channel(ctx context.Context, source string) (chan<- merge.PodUpdate, error) {
	go f.pass(ctx)
	return f.Merger.Channel(ctx, source)
}

func (f *faultyMerger) pass(ctx context.Context) {
	var held *merge.PodUpdate
	n := 0
	send := func(u merge.PodUpdate) {
		select {
		case f.updates <- u:
		case <-ctx.Done():
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-f.Merger.Updates():
			if len(u.Pods) != 1 || !isVictim(u.Pods[0]) {
				send(u)
				continue
			}
			n++
			switch {
			case n == 2 && f.fault == "drop":
			case n == 2 && f.fault == "duplicate":
				send(u)
				send(u)
			case n == 2 && f.fault == "alter":
				u.Pods = []*v1.Pod{altered(u.Pods[0]).(*v1.Pod)}
				send(u)
			case n == 2 && f.fault == "swap":
				held = &u
			case held != nil:
				send(u)
				send(*held)
				held = nil
			default:
				send(u)
			}
		}
	}
}

// TestPlantedFaults: every pipeline finds each planted fault and reports the right invariant.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	small := smallStorm(t)
	var names []string
	for fault := range faults {
		names = append(names, planted+fault)
	}
	slices.Sort(names)
	for _, spec := range []pipeline.Config{
		{Family: impls.DeltaFIFO, Pipeline: "queue"},
		{Family: impls.DeltaFIFO, Pipeline: "informer"},
		{Family: impls.Queue, Pipeline: "queue"},
		{Family: impls.Merge, Pipeline: "queue"},
		{Family: impls.Merge, Pipeline: "kubelet"},
	} {
		// Paced, so that the queue does not coalesce the events to swap. The whole storm
		// is played, as the victim occurs late.
		spec.Storm, spec.Impls, spec.Paces = small, names, rates(1000)
		spec.Events, spec.Duration = len(small.Events)-small.Initial, time.Millisecond
		comparisons, err := pipeline.Compare(spec)
		if err != nil {
			t.Fatal(err)
		}
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
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"sharded"}, Consumers: 3, HandlerCost: time.Millisecond, Events: 100_000},
		{Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{"cond"}, Readers: 3, HandlerCost: time.Millisecond, Events: 100_000},
		{Family: impls.DeltaFIFO, Pipeline: "queue", Impls: []string{"cond"}, Stalled: true, HandlerCost: time.Millisecond, Events: 100_000},
	} {
		spec.Storm = small
		if spec.Impls == nil {
			spec.Paces = rates(1) // The schedule takes 100 s.
		}
		comparisons, err := pipeline.Compare(spec)
		if err != nil {
			t.Fatal(err)
		}
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
