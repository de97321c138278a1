package deltafifo

import (
	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// condVariant is a mutex and a condition variable like upstream, without what makes upstream slow:
// a producer holds the lock for one append to a chain of blocks, the consumer takes the whole chain
// at once, handlers run outside the lock, a signal is sent only to a waiting consumer, and memory
// is reused. See [ring.Locked] for the inbox, and buffered for the rest.
func condVariant() Variant {
	return bufferedVariant("cond", "mutex and condition variable: producers append to blocks, the consumer takes all at once",
		func(capacity int) inbox { return ring.NewLocked[item](capacity) })
}

// bufferedVariant returns the variant with an inbox.
func bufferedVariant(name, summary string, newInbox func(capacity int) inbox) Variant {
	return ownVariant(name, summary, func(o Options) (Queue, error) { return newBuffered(o, name, newInbox(o.Capacity)), nil })
}

// ownVariant returns a variant with both deliveries and all options but shards.
func ownVariant(name, summary string, build func(Options) (Queue, error)) Variant {
	guarantees := impls.Guarantees{
		Bounded: true, Consumers: impls.OneConsumer, Unlocked: true, Throttles: impls.ThrottlesByOption,
		DropIn: "cache.QueueWithBatch",
	}
	ordered, perKey := guarantees, guarantees
	ordered.Mode, ordered.Order, ordered.Coalesces = string(InOrder), impls.OrderTotal, impls.CoalesceNone
	perKey.Mode, perKey.Order, perKey.Coalesces = string(PerKey), impls.OrderPerKey, impls.CoalesceDeltas
	return newVariant(name, summary, limits{deliveries: []Delivery{InOrder, PerKey}, maxShards: 1}, build, ordered, perKey)
}
