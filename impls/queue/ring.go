package queue

import (
	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// ringVariant is the lock-free ring: producers claim a place by one atomic
// operation and publish it by another, so that none waits for another, nor for
// the consumer, who owns the keyed state and folds. See [ring.Bounded] for the
// ring and its ordering argument, and [lined] for the rest.
//
// The ring is bounded whatever the capacity: one of linked segments, which grows
// with the events rather than with the keys, would let a slow handler cost
// memory without end.
func ringVariant() Variant {
	return Variant{
		Name:    "ring",
		Summary: "lock-free ring from many producers; the consumer folds, many events at a time",
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Bounded: true,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			return newLined(o, "ring", func(size int) (line, error) { return ring.NewBounded[item](size) })
		},
	}
}
