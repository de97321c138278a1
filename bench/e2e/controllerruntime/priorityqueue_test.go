package controllerruntime_test

import (
	upstream "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"watchlab/impls"
	"watchlab/impls/workqueue"
)

// priorityQueue returns controller-runtime's priority queue as a variant. It differs from the contract:
// ShutDown drops queued items, ShutDownWithDrain does not wait, Len counts items in process that were
// added again, and lower priorities may starve. It has a clock of its own.
func priorityQueue() workqueue.Variant {
	return workqueue.Variant{
		Name:     "controllerruntime",
		Summary:  "controller-runtime's priority queue: two B-trees under one lock, a goroutine for each",
		Upstream: "sigs.k8s.io/controller-runtime v0.25.2",
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPriority, Coalesces: impls.CoalesceLatest, Consumers: impls.ManyConsumers,
			Unlocked: true, DropIn: "workqueue.TypedRateLimitingInterface",
		}},
		New: func(o workqueue.Options[string]) (workqueue.Queue[string], error) {
			name := o.Name
			if o.MetricsProvider == nil {
				name = "" // Or it takes the provider of controller-runtime.
			}
			return priorityqueue.New(name, func(p *priorityqueue.Opts[string]) { p.MetricProvider = o.MetricsProvider }), nil
		},
	}
}

// newQueue returns a queue of a variant for controller.Options.NewQueue. With "priority", controllers have
// priorities; client-go's rate-limiting queue stands on top of the others.
func newQueue[T comparable](variant, name string, limiter upstream.TypedRateLimiter[T]) upstream.TypedRateLimitingInterface[T] {
	o := workqueue.Options[T]{Name: name}
	if variant == "priority" {
		return priority[T]{workqueue.NewPriority(workqueue.PriorityOptions[T]{Options: o, RateLimiter: limiter})}
	}
	q, err := workqueue.New(variant, o)
	if err != nil {
		panic(err)
	}
	return upstream.NewTypedRateLimitingQueueWithConfig(limiter, upstream.TypedRateLimitingQueueConfig[T]{
		DelayingQueue: upstream.NewTypedDelayingQueueWithConfig(upstream.TypedDelayingQueueConfig[T]{Name: name, Queue: q}),
	})
}

// priority makes a queue one of controller-runtime, which then adds and gets with priorities.
type priority[T comparable] struct{ *workqueue.PriorityQueue[T] }

var _ priorityqueue.PriorityQueue[int] = priority[int]{}

// AddWithOpts implements [priorityqueue.PriorityQueue].
func (p priority[T]) AddWithOpts(o priorityqueue.AddOpts, items ...T) {
	p.PriorityQueue.AddWithOpts(workqueue.AddOpts(o), items...)
}
