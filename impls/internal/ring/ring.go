// Package ring provides queues with many producers and one consumer.
//
// [LockFree] grows by linked segments. [Locked] uses a mutex and serves as the
// baseline. Both implement [Queue], bounded or not.
//
// # What every queue guarantees
//
//   - A value whose push returned nil is popped exactly once, also after
//     Close.
//   - Values are popped in the order in which producers claimed positions.
//     This order is total: a push that returns before another push begins
//     comes first. In particular, the values of one producer stay in order.
//   - A push to a lock-free queue costs one atomic read-modify-write to claim
//     a position, one atomic store to publish it, and one atomic load to
//     check that the consumer is awake.
//   - Nothing spins: a waiting goroutine sleeps.
//   - The queue keeps no reference to a popped value. It reuses memory: the
//     steady state allocates nothing per event.
//
// # What is not guaranteed
//
// A producer that is suspended between claim and publication delays the values behind its own, but
// not the other producers. TakeBatch then returns fewer values than were pushed. A bounded queue
// may report full although a Release is about to free slots. Waiting producers wake in order, but a
// new push may overtake them.
//
// # Rejected designs
//
//   - An intrusive linked list needs one allocation per event.
//   - With one position counter per segment, a producer that slept can claim
//     a slot in a recycled segment. One counter for the queue prevents this.
//   - Vyukov's bounded queue frees each slot through its sequence number, for
//     many consumers. With one consumer a single counter is enough. It is
//     stored once per batch, and it tells full from empty at capacity 1.
//   - One array for a bounded queue saves a nanosecond a push. It is allocated at
//     once for the whole capacity, and is a second proof.
package ring

import (
	"errors"
	"sync/atomic"
)

// Queue is the interface of all queues of this package. Any goroutine may call Push, TryPush, Close
// and Len. Only one goroutine at a time may call Wait, TakeBatch and Release.
type Queue[T any] interface {
	// Push appends v. If a bounded queue is full, Push waits for room. It returns
	// [ErrClosed] if the queue is closed; the queue then does not hold v.
	Push(v T) error
	// TryPush appends v without waiting, or returns [ErrFull] or [ErrClosed].
	TryPush(v T) error
	// Wait returns nil when TakeBatch can return a value, or [ErrClosed] when the
	// queue is closed and empty.
	Wait() error
	// TakeBatch moves at most len(dst) values to dst and returns their number. It does not wait: 0
	// means that the next value in order is not published yet. The slots of the values stay in use
	// until Release, so that the consumer's own backlog can count against the capacity.
	TakeBatch(dst []T) int
	// Release frees the slots of n values that TakeBatch returned. It does
	// nothing on an unbounded queue.
	Release(n int)
	// Close refuses further pushes and wakes all waiting goroutines. Accepted
	// values can still be popped. A second Close does nothing.
	Close()
	// Len returns the number of queued values, including values that a producer has claimed but not
	// published. O(1). The result may be stale when the caller reads it.
	Len() int
}

var (
	// ErrClosed is returned by pushes after Close, and by Wait when a closed queue is empty.
	ErrClosed = errors.New("ring: closed")
	ErrFull   = errors.New("ring: full") // of TryPush to a full bounded queue
)

// pushSlow pushes to a full queue and waits for room.
func pushSlow[T any](q Queue[T], room *EventCount, v T) (err error) {
	room.Wait(func() bool {
		err = q.TryPush(v)
		return !errors.Is(err, ErrFull)
	})
	return err
}

// pad separates fields that different goroutines write, so that they never share a cache line. A
// line has 64 bytes on amd64, which fetches lines in pairs, and up to 128 bytes on arm64.
const pad = 128

// closedBit marks a counter of claimed positions as closed. At 1e9 pushes per
// second, positions reach this bit after 292 years.
const closedBit = 1 << 63

const open = 1<<64 - 1 // closedAt before Close; not a valid position

// slot holds one value.
type slot[T any] struct {
	// seq is the position of the current or last value, plus 1. The producer stores seq after it
	// writes v. The consumer reads v only after it loads the seq of its own position. Positions are
	// unique, so a stale seq never matches and the consumer does not reset it.
	seq atomic.Uint64
	// v is owned by the producer from the claim to the store of seq. After that
	// the consumer owns v and sets it to zero.
	v T
}

// take moves values from slots to dst until the first slot that is not published.
// p is the position of the first slot.
func take[T any](dst []T, from []slot[T], p uint64) int {
	var zero T
	n := min(len(dst), len(from))
	dst, from = dst[:n], from[:n]
	for i := range from {
		s := &from[i]
		p++
		if s.seq.Load() != p {
			return i
		}
		dst[i] = s.v
		s.v = zero
	}
	return n
}
