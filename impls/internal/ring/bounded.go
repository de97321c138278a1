package ring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// Bounded is a lock-free queue in one array.
//
// # How it works
//
// The slot of position p is p modulo the array length, a power of two that is at
// least the capacity.
//
//  1. A producer claims position p if p < freed + capacity. It swaps tail
//     from p to p+1 by compare-and-swap.
//  2. The producer writes the value and publishes it: it stores p+1 in the
//     seq of the slot.
//  3. The consumer visits the positions in order and stops at the first
//     unpublished one.
//  4. The consumer clears the popped slots and advances freed, at once or in
//     Release.
//
// # Why it is correct
//
// Claim. The swap gives each position to one producer. A producer loads tail before freed. freed
// only grows, so the producer never sees more room than there is. If it sees no room, there was
// none at the load of freed. The swap fails if Close sets the closed bit between load and swap.
// Close sets the bit and reads the number of claimed positions in one operation. All these
// positions will be published, and the consumer ends after popping them.
//
// Reading. The producer writes the value before it stores seq. The consumer loads
// seq before it reads the value. No value is read before it is written.
//
// Writing. The producer of p has loaded a freed greater than p minus the capacity. The consumer
// stored that freed after it had popped and cleared the previous value of the slot. So no producer
// overwrites an unread value, and no clear hits a new value.
//
// ABA. tail only grows: the swap succeeds only if no claim happened since the
// load. No pointer is reused.
//
// Progress. A swap fails only because another producer succeeded or because of
// Close. So the queue is lock-free, apart from producers that wait for room. For
// the wake-up of the consumer see parker; for that of producers see [EventCount].
type Bounded[T any] struct {
	_ [pad]byte

	// tail is the number of claimed positions, plus closedBit after Close. All
	// producers swap it, so it has a cache line of its own.
	tail atomic.Uint64
	_    [pad]byte

	// slots, mask and capacity are constant. closedAt changes once, from open to
	// the number of claimed positions. Close stores it after it sets the closed
	// bit and before it wakes anyone. This line is read-mostly.
	slots    []slot[T]
	mask     uint64
	capacity uint64
	closedAt atomic.Uint64
	_        [pad]byte

	parker parker // loaded by every push; written only by a sleeping consumer and its waker
	_      [pad]byte

	// freed is the first position whose slot is not free yet. The consumer stores
	// it once per batch, after it clears the slots. Producers load it to check
	// for room, so it has a cache line of its own.
	freed atomic.Uint64
	_     [pad]byte

	// popped is the position of the consumer, at least freed. Only the consumer
	// stores it, once per batch. Len loads it.
	popped atomic.Uint64
	_      [pad]byte

	room EventCount // where producers of a full queue wait
	_    [pad]byte
}

// MaxCapacity is the largest capacity of a [Bounded] queue, whose array is allocated at once.
const MaxCapacity = 1 << 24

// NewBounded returns an empty queue for exactly capacity values, from 1 to
// [MaxCapacity]. The error wraps [ErrCapacity].
func NewBounded[T any](capacity int) (*Bounded[T], error) {
	if capacity < 1 || capacity > MaxCapacity {
		return nil, fmt.Errorf("%w: %d (allowed: 1 to %d)", ErrCapacity, capacity, MaxCapacity)
	}
	length := 1
	for length < capacity {
		length *= 2
	}
	q := &Bounded[T]{
		slots:    make([]slot[T], length),
		mask:     uint64(length - 1),
		capacity: uint64(capacity),
	}
	q.closedAt.Store(open)
	q.parker.init()
	return q, nil
}

// TryPush implements [Queue].
func (q *Bounded[T]) TryPush(v T) error {
	for {
		p := q.tail.Load()
		if p&closedBit != 0 {
			return ErrClosed
		}
		// The difference is negative if freed has passed p since the load. The swap then fails.
		if int64(p-q.freed.Load()) >= int64(q.capacity) {
			return ErrFull
		}
		if !q.tail.CompareAndSwap(p, p+1) {
			continue
		}
		place := &q.slots[p&q.mask]
		place.v = v
		place.seq.Store(p + 1)
		q.parker.published(p)
		return nil
	}
}

// Push implements [Queue].
func (q *Bounded[T]) Push(ctx context.Context, v T) error {
	if err := q.TryPush(v); err == nil || !errors.Is(err, ErrFull) {
		return err
	}
	return pushSlow(ctx, q, &q.room, v)
}

// ready reports whether position p of the consumer is published.
func (q *Bounded[T]) ready(p uint64) bool { return q.slots[p&q.mask].seq.Load() == p+1 }

// Wait implements [Queue].
func (q *Bounded[T]) Wait() error { return q.parker.wait(q.popped.Load(), q, &q.closedAt) }

// Release implements [Queue].
func (q *Bounded[T]) Release(n int) {
	if n > 0 {
		q.freed.Store(q.freed.Load() + uint64(n))
		q.room.Notify(n)
	}
}

// TakeBatch implements [Queue].
func (q *Bounded[T]) TakeBatch(dst []T) int {
	p := q.popped.Load()
	places := q.slots[p&q.mask:]
	n := take(dst, places, p)
	if n == len(places) {
		// The batch wraps around the end of the array.
		n += take(dst[n:], q.slots, p+uint64(n))
	}
	if n > 0 {
		q.popped.Store(p + uint64(n))
	}
	return n
}

// Close implements [Queue].
func (q *Bounded[T]) Close() {
	claimed := q.tail.Or(closedBit)
	if claimed&closedBit != 0 {
		return
	}
	q.closedAt.Store(claimed)
	q.parker.closed()
	q.room.Notify(math.MaxInt)
}

// Len implements [Queue].
func (q *Bounded[T]) Len() int {
	// The counters may advance between the loads.
	return min(length(&q.tail, &q.closedAt, &q.popped), int(q.capacity))
}
