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
// Position p lives in slot p modulo the array's length, a power of two that is
// at least the capacity. A producer claims position p by a compare-and-swap of
// tail from p to p+1, if p is less than freed plus the capacity; it writes the
// value, then publishes it by storing p+1 in the slot's seq. The consumer goes
// through the positions in order, stops at the first that isn't published, and
// moves freed past what it has popped and cleared, at once or by Release.
//
// # Why it is right
//
// Claim. The swap gives each position to one producer. A producer loads tail
// and then freed: that may have moved on since, never back, so that there is at
// least as much room as it reckons, and where it finds none there was none
// when it loaded freed. It fails if the closed bit is set, also if that is set
// between load and swap. Close reads, in the same operation that sets the bit,
// how many positions were claimed: all of them will be published, and the
// consumer is done when it has popped as many.
//
// Reading. The store of seq comes after the write of the value, the read of the
// value after a load of that seq: nothing is read before it is written.
//
// Writing. Who claims p has loaded a freed greater than p minus the capacity.
// The consumer stored it after it had popped and cleared the slot's former
// value: nothing is overwritten, and no clearing hits a new value.
//
// ABA. tail only grows, so that a swap succeeds only if nothing was claimed
// since the load; no pointer is reused.
//
// Progress. A swap fails only because another producer's succeeded, or because
// of Close: lock-free, save that producers without room wait by their own
// choice. Waking the consumer: see parker. Waking producers: see room.
type Bounded[T any] struct {
	_ [pad]byte

	// tail is the number of positions claimed, and closedBit. All producers
	// swap it; it is alone on its line.
	tail atomic.Uint64
	_    [pad]byte

	// slots, mask and capacity never change; closedAt changes once, from open
	// to the number of positions claimed when the queue was closed, after the
	// closed bit is set and before anyone is woken.
	slots    []slot[T]
	mask     uint64
	capacity uint64
	closedAt atomic.Uint64
	_        [pad]byte

	// parker is loaded by each producer and written by who sleeps or wakes.
	parker parker
	_      [pad]byte

	// freed is the position before which all places are free again. Stored by
	// the consumer, once a batch, after it has cleared them. Producers load it
	// to see whether there is room.
	freed atomic.Uint64
	_     [pad]byte

	// popped is the position of the consumer, which alone stores it, once a
	// batch, for Len. Never less than freed.
	popped atomic.Uint64
	_      [pad]byte

	room room
	_    [pad]byte
}

// MaxCapacity is the largest capacity of a [Bounded] queue: its array is
// allocated at once.
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
		// Negative where freed has passed p since: then the swap fails.
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
	err := q.TryPush(v)
	if err == nil || !errors.Is(err, ErrFull) {
		return err
	}
	return pushSlow(ctx, q, &q.room, v)
}

// ready reports whether position p, the consumer's, is published.
func (q *Bounded[T]) ready(p uint64) bool { return q.slots[p&q.mask].seq.Load() == p+1 }

// Wait implements [Queue].
func (q *Bounded[T]) Wait(ctx context.Context) error {
	return q.parker.wait(ctx, q.popped.Load(), q, &q.closedAt)
}

// PopBatch implements [Queue].
func (q *Bounded[T]) PopBatch(dst []T) int {
	n := q.TakeBatch(dst)
	q.Release(n)
	return n
}

// Release implements [Queue].
func (q *Bounded[T]) Release(n int) {
	if n > 0 {
		q.freed.Store(q.freed.Load() + uint64(n))
		q.room.made(n)
	}
}

// TakeBatch implements [Queue].
func (q *Bounded[T]) TakeBatch(dst []T) int {
	p := q.popped.Load()
	places := q.slots[p&q.mask:]
	n := take(dst, places, p)
	if n == len(places) {
		// Around the end of the array.
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
	q.room.made(math.MaxInt)
}

// Len implements [Queue].
func (q *Bounded[T]) Len() int {
	// The counters may move between their loads.
	return min(length(&q.tail, &q.closedAt, &q.popped), int(q.capacity))
}
