package deltafifo

import "watchlab/impls/internal/ring"

// ringVariant uses the lock-free ring. A producer claims a position with one atomic operation and
// publishes it with another. It never waits for another producer or for the consumer.
func ringVariant() Variant {
	return bufferedVariant("ring", "lock-free ring from many producers; the consumer folds and cuts batches",
		func(capacity int) inbox { return ring.NewLockFree[item](capacity) })
}
