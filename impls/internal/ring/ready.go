package ring

import "sync/atomic"

// Ready is the FIFO of the shards of a queue that have something to pop, each once. Consumers receive from C.
//
// # Why no wake-up is missed
//
// Whoever gives a shard its first value that can be popped sends the shard to C before it unlocks it. C has
// room for all shards, so that a send never waits. A consumer sleeps only if C is empty.
//
// Close counts, with all shards locked, those that are not empty. Each that becomes empty counts down, under
// its lock; the last closes C.
type Ready[T any] struct {
	C    chan T
	left atomic.Int64 // after Close, the number of shards that are not empty
}

// Init sets the number of shards.
func (r *Ready[T]) Init(shards int) { r.C = make(chan T, shards) }

// Close begins the count. The caller then calls Drained for each empty shard.
func (r *Ready[T]) Close() { r.left.Store(int64(cap(r.C))) }

// Drained counts a shard of a closed queue that is empty.
func (r *Ready[T]) Drained() {
	if r.left.Add(-1) == 0 {
		close(r.C)
	}
}
