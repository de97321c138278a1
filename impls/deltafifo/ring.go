package deltafifo

import "watchlab/impls/internal/ring"

// ringVariant is the lock-free ring: producers claim a place by one atomic
// operation and publish it by another, so that none waits for another, nor for
// the consumer.
func ringVariant() Variant {
	return bufferedVariant("ring", "lock-free ring from many producers; the consumer folds and cuts batches",
		func(capacity int) (inbox, error) { return ring.New[item](capacity) })
}
