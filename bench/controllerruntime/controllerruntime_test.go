// The tests put controller-runtime's priority queue beside the variants of the family
// workqueue, and our variants below a controller of controller-runtime.
package controllerruntime_test

import (
	"fmt"

	upstream "k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"watchlab/impls"
	"watchlab/impls/workqueue"
)

// Name is that of the variant.
const Name = "controllerruntime"

// Variant returns controller-runtime's priority queue. It differs from the contract: ShutDown drops
// queued items, ShutDownWithDrain does not wait, Len counts items in process that were added again, and
// lower priorities may starve. It has a clock of its own.
func Variant() workqueue.Variant {
	return workqueue.Variant{
		Name:     Name,
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

// NewQueue returns a value for controller.Options.NewQueue that makes queues of a variant. With
// "priority", controllers have priorities; client-go's rate-limiting queue stands on top of others. It
// fails if the variant does not exist or serves strings only.
func NewQueue[T comparable](variant string, o workqueue.Options[T]) (func(string, upstream.TypedRateLimiter[T]) upstream.TypedRateLimitingInterface[T], error) {
	if variant == "priority" {
		return func(name string, limiter upstream.TypedRateLimiter[T]) upstream.TypedRateLimitingInterface[T] {
			o.Name = name
			return Priority[T]{workqueue.NewPriority(workqueue.PriorityOptions[T]{Options: o, RateLimiter: limiter})}
		}, nil
	}
	q, err := workqueue.New(variant, workqueue.Options[T]{})
	if err != nil {
		return nil, fmt.Errorf("queue of controllers: %w", err)
	}
	q.ShutDown()
	return func(name string, limiter upstream.TypedRateLimiter[T]) upstream.TypedRateLimitingInterface[T] {
		o.Name = name
		q, err := workqueue.New(variant, o)
		if err != nil {
			panic(err) // The same call succeeded before.
		}
		return upstream.NewTypedRateLimitingQueueWithConfig(limiter, upstream.TypedRateLimitingQueueConfig[T]{
			DelayingQueue: upstream.NewTypedDelayingQueueWithConfig(upstream.TypedDelayingQueueConfig[T]{
				Name: name, MetricsProvider: o.MetricsProvider, Clock: o.Clock, Queue: q,
			}),
		})
	}, nil
}

// Priority makes a queue one of controller-runtime, which then adds and gets with priorities.
type Priority[T comparable] struct{ *workqueue.PriorityQueue[T] }

var _ priorityqueue.PriorityQueue[int] = Priority[int]{}

// AddWithOpts implements [priorityqueue.PriorityQueue].
func (p Priority[T]) AddWithOpts(o priorityqueue.AddOpts, items ...T) {
	p.PriorityQueue.AddWithOpts(workqueue.AddOpts(o), items...)
}
