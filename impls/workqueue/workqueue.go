// Package workqueue defines the queue between an informer's handlers and a controller's workers: the
// contract, its options and the variants.
//
// The contract is client-go's [workqueue.TypedInterface] (v0.37). client-go's delaying and
// rate-limiting queues stand on top of any variant:
//
//	q, err := workqueue.New("ring", workqueue.Options[reconcile.Request]{Name: "pods"})
//	delaying := upstream.NewTypedDelayingQueueWithConfig(upstream.TypedDelayingQueueConfig[reconcile.Request]{Queue: q})
//
// # What every variant guarantees
//
//   - An item is queued at most once. An Add of a queued item changes nothing.
//   - Per-key exclusion: no two workers have the same item between Get and Done.
//   - An item that is added while it is in process is queued again by Done, once.
//   - No item is lost: after an Add has returned, a Get of the item begins later or the item was
//     in the queue before. What happened before the Add is visible to the worker that gets the item.
//   - Items come in the order of Guarantees.Order.
//   - Get blocks until there is an item or the queue is shut down and empty.
//   - ShutDown lets workers finish what is queued, and ignores later Adds. ShutDownWithDrain waits
//     besides until all items that were in process are done; ShutDown ends its wait.
//   - A Done of an item that is not in process queues nothing that is not to be queued.
//   - Len is the number of queued items, without those in process. It may be stale when the
//     caller reads it.
//   - The queue holds no item that was handed out and done.
//   - The metrics are client-go's: depth, adds, latency, work duration, unfinished work, longest
//     running processor. A queue without a Name or a MetricsProvider has none and starts no
//     goroutine.
//   - Items are compared as keys of a map. Add and Done panic with an item that is not comparable,
//     and an item that does not equal itself is queued by each Add.
//   - All calls are O(1), amortised. Beyond their usual length, queues of this package allocate nothing for
//     an item. priority documents its own costs.
//
// With ring, an Add waits for nobody unless 256 Adds are pending, and Get and Done wait for one lock. With
// metrics, an Add waits for the lock too.
package workqueue

import (
	"cmp"
	"fmt"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"watchlab/impls"
)

// Queue is client-go's interface.
type Queue[T comparable] = workqueue.TypedInterface[T]

// Options configures a queue. The zero value is valid for every variant. Fields have the names and the
// meaning of [workqueue.TypedQueueConfig].
type Options[T comparable] struct {
	Name string // of the queue in metrics; empty means no metrics
	// MetricsProvider makes the metrics. nil means no metrics: client-go does not export the provider
	// that [workqueue.SetProvider] was given. Only the variant clientgo has that one then.
	MetricsProvider workqueue.MetricsProvider
	Clock           clock.WithTicker // of the metrics and of delays; nil means the real one
}

// Variant is an implementation of this family, for items that are keys. [New] serves every type.
type Variant = impls.Variant[Options[string], Queue[string]]

var registry = impls.NewRegistry[Options[string], Queue[string]](impls.Workqueue)

func init() {
	registry.Register(clientgoVariant())
	registry.Register(ringVariant())
	registry.Register(priorityVariant())
}

// Register adds a variant from another module. It panics if the name is taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, baselines first.
func Variants() []Variant { return registry.Variants() }

// Lookup returns the named variant. The error wraps [impls.ErrUnknownVariant] and lists the registered
// names.
func Lookup(name string) (Variant, error) { return registry.Lookup(name) }

// guarantees are those that all variants share but for the order and the interface.
func guarantees(order impls.Order, dropIn string) []impls.Guarantees {
	return []impls.Guarantees{{
		Order: order, Coalesces: impls.CoalesceLatest, Consumers: impls.ManyConsumers, Unlocked: true, DropIn: dropIn,
	}}
}

// complete sets the defaults.
func (o Options[T]) complete() Options[T] {
	o.Clock = cmp.Or[clock.WithTicker](o.Clock, clock.RealClock{})
	return o
}

// New builds a queue of the named variant for items of any type. Variants of other modules serve
// strings only. The error wraps [impls.ErrUnknownVariant] or [impls.ErrOptions].
func New[T comparable](name string, o Options[T]) (Queue[T], error) {
	o = o.complete()
	switch name {
	case "clientgo":
		return newClientgo(o), nil
	case "ring":
		return newRing(o), nil
	case "priority":
		return NewPriority(PriorityOptions[T]{Options: o}), nil
	}
	v, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	strings, ok := any(o).(Options[string])
	if !ok {
		return nil, fmt.Errorf("workqueue %s: %w: items of type %T (allowed: string)", name, impls.ErrOptions, *new(T))
	}
	q, err := v.New(strings)
	if err != nil {
		return nil, fmt.Errorf("workqueue %s: %w", name, err)
	}
	return any(q).(Queue[T]), nil
}
