package queue

import (
	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// ringVariant uses the lock-free ring. A producer claims a position with one atomic operation and
// publishes it with another. It never waits for another producer or for the consumer, which owns
// the backlog and merges. See [ring.LockFree] for the ring and its ordering argument, and [buffered]
// for the rest.
//
// The ring is bounded. An unbounded one would grow with the number of events and
// not of keys.
func ringVariant() Variant {
	return ownVariant("ring", "lock-free ring from many producers; the consumer folds, many events at a time",
		impls.OneConsumer, func(o Options) (Queue, error) {
			return newBuffered(o, "ring", ring.NewLockFree[item](inboxSize)), nil
		})
}
