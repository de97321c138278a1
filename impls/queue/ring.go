package queue

import (
	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// ringVariant is the lock-free ring: producers claim a place by one atomic
// operation and publish it by another, so that none waits for another, nor for
// the consumer, who owns the keyed state and folds. See [ring.Bounded] for the
// ring and its ordering argument, and [buffered] for the rest.
//
// The ring is bounded whatever the capacity: one of linked segments, which grows
// with the events rather than with the keys, would let a slow handler cost
// memory without end.
func ringVariant() Variant {
	return ownVariant("ring", "lock-free ring from many producers; the consumer folds, many events at a time",
		impls.OneConsumer, func(o Options) (Queue, error) {
			return newBuffered(o, "ring", func(size int) (inbox, error) { return ring.NewBounded[item](size) })
		})
}
