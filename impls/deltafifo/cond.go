package deltafifo

import (
	"sync"

	"watchlab/impls"
)

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

// gate is where the consumer of a queue waits. Its fields are guarded by the
// queue's lock.
type gate struct {
	cond    sync.Cond
	waiting bool
	closed  bool
}

// wait releases the queue's lock until a producer opens the gate.
func (g *gate) wait() {
	g.waiting = true
	g.cond.Wait()
}

// open tells whether a consumer waits, and that it is about to be woken. The
// caller releases the lock and then calls signal if open was true: one wake-up
// for each wait, and never under the lock, where the consumer would run into
// it at once.
func (g *gate) open() bool {
	w := g.waiting
	g.waiting = false
	return w
}

func (g *gate) signal() { g.cond.Signal() }
