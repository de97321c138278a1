package workqueue

import (
	"k8s.io/client-go/util/workqueue"

	"watchlab/impls"
)

func clientgoVariant() Variant {
	return Variant{
		Name:       "clientgo",
		Summary:    "client-go's workqueue: two sets and a slice under one lock",
		Upstream:   "k8s.io/client-go v0.37.2",
		Guarantees: guarantees(impls.OrderPerKey, "workqueue.TypedInterface"),
		New:        func(o Options[string]) (Queue[string], error) { return newClientgo(o.complete()), nil },
	}
}

func newClientgo[T comparable](o Options[T]) Queue[T] {
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: o.Name, MetricsProvider: o.MetricsProvider, Clock: o.Clock,
	})
}
