package deltafifo

import "watchlab/impls"

// condVariant is a mutex and a condition variable, as upstream has, without
// what makes upstream slow: keys are not joined into strings, handlers run
// outside the lock, a signal is sent only when a consumer waits, and memory is
// reused.
func condVariant() Variant {
	return Variant{
		Name:    "cond",
		Summary: "mutex and condition variable; handlers run outside the lock, batches with both deliveries",
		Guarantees: []impls.Guarantees{
			{
				Mode: string(InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone,
				Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.QueueWithBatch",
			},
			{
				Mode: string(PerKey), Order: impls.OrderPerKey, Coalesces: impls.CoalesceDeltas,
				Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.QueueWithBatch",
			},
		},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{deliveries: []Delivery{InOrder, PerKey}, batch: true})
			if err != nil {
				return nil, err
			}
			if o.Delivery == PerKey {
				return newCondPerKey(o), nil
			}
			return newCondInOrder(o), nil
		},
	}
}
