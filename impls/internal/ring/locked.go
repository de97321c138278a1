package ring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// Locked is the same queue with a mutex and a condition variable: what the
// lock-free ones have to beat. It is as careful as they are.
//
// # How it works
//
// Values live in a chain of blocks of a fixed size. A producer fills the last
// block under the lock: no block is ever copied or grown, so that the lock is
// held for the time of one append however much waits. The consumer learns under
// the lock how many values there are, and takes them without it: what is before
// that bound is not written to any more. It comes back to the lock when it has
// passed the bound, and then hands drained blocks back.
//
// A producer signals only when the consumer waits, once for each wait, and after
// it has released the lock, into which the consumer would run otherwise.
type Locked[T any] struct {
	// capacity is MaxUint64 where the queue is unbounded.
	capacity uint64

	mu sync.Mutex
	// arrival is where the consumer waits; waiting says that it does and that
	// nobody has signalled yet. Guarded by mu, as all up to spares.
	arrival sync.Cond
	waiting bool
	closed  bool
	// tail is the last block; its first free place is tail.values[tail.n].
	tail *link[T]
	// pushed and released count values accepted, and values whose places are
	// free again.
	pushed, released uint64
	// spares is a list of nspare drained blocks to use again.
	spares  *link[T]
	nspares int

	// room is where producers wait. Its own lock is taken without mu.
	room room
	_    [pad]byte

	// popped counts the values taken. Stored by the consumer, for Len.
	popped atomic.Uint64
	// The next value is head.values[at]; all before position bound may be taken
	// without the lock. drained is a list of ndrained blocks to hand back. The
	// consumer's.
	head     *link[T]
	at       int
	bound    uint64
	drained  *link[T]
	ndrained int
}

type link[T any] struct {
	values [segmentSize]T
	// n is how many have been filled; guarded by the queue's mu.
	n int
	// next is written under mu, when the block is full, and before any position
	// in the next block comes to lie before the consumer's bound.
	next *link[T]
}

// NewLocked returns an empty queue for capacity values, from 1 to
// [MaxCapacity]; 0 means unbounded. The error wraps [ErrCapacity].
func NewLocked[T any](capacity int) (*Locked[T], error) {
	if capacity < 0 || capacity > MaxCapacity {
		return nil, fmt.Errorf("%w: %d (allowed: 0 to %d; 0 means unbounded)", ErrCapacity, capacity, MaxCapacity)
	}
	q := &Locked[T]{capacity: uint64(capacity)}
	if capacity == 0 {
		q.capacity = math.MaxUint64
	}
	q.arrival.L = &q.mu
	q.tail = new(link[T])
	q.head = q.tail
	return q, nil
}

// Push implements [Queue].
func (q *Locked[T]) Push(ctx context.Context, v T) error {
	err := q.TryPush(v)
	if err == nil || !errors.Is(err, ErrFull) {
		return err
	}
	return pushSlow(ctx, q, &q.room, v)
}

// TryPush implements [Queue].
func (q *Locked[T]) TryPush(v T) error {
	q.mu.Lock()
	if q.pushed-q.released >= q.capacity && !q.closed {
		q.mu.Unlock()
		return ErrFull
	}
	return q.accept(v)
}

// accept appends v, for which there is room, and releases the lock.
func (q *Locked[T]) accept(v T) error {
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	t := q.tail
	if t.n == segmentSize {
		t = q.grow()
	}
	t.values[t.n] = v
	t.n++
	q.pushed++
	wake := q.waiting
	q.waiting = false
	q.mu.Unlock()
	if wake {
		q.arrival.Signal()
	}
	return nil
}

// grow links a block. The caller holds the lock.
func (q *Locked[T]) grow() *link[T] {
	b := q.spares
	if b == nil {
		b = new(link[T])
	} else {
		q.spares, q.nspares = b.next, q.nspares-1
		b.next, b.n = nil, 0
	}
	q.tail.next = b
	q.tail = b
	return b
}

// Wait implements [Queue].
func (q *Locked[T]) Wait(ctx context.Context) error {
	if q.popped.Load() < q.bound {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pushed == q.bound && ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.waiting = false
			q.arrival.Broadcast()
		})
		defer stop()
	}
	for q.pushed == q.bound {
		if q.closed {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		q.waiting = true
		q.arrival.Wait()
	}
	q.bound = q.pushed
	return nil
}

// TakeBatch implements [Queue].
func (q *Locked[T]) TakeBatch(dst []T) int {
	p := q.popped.Load()
	if p+uint64(len(dst)) > q.bound {
		q.refresh()
	}
	n := int(min(uint64(len(dst)), q.bound-p))
	for i := 0; i < n; {
		if q.at == segmentSize {
			q.advance()
		}
		// The places are cleared so that what is handed over can be collected.
		from := q.head.values[q.at:min(segmentSize, q.at+n-i)]
		copy(dst[i:], from)
		clear(from)
		i += len(from)
		q.at += len(from)
	}
	if n > 0 {
		q.popped.Store(p + uint64(n))
	}
	return n
}

// advance leaves a drained block, which is kept unless there are enough.
func (q *Locked[T]) advance() {
	b := q.head
	q.head, q.at = b.next, 0
	if q.ndrained < maxSpare {
		b.next, q.drained = q.drained, b
		q.ndrained++
	}
}

// refresh moves the bound to the end, and hands drained blocks back.
func (q *Locked[T]) refresh() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bound = q.pushed
	for b := q.drained; b != nil; {
		next := b.next
		if q.nspares < maxSpare {
			b.next, q.spares = q.spares, b
			q.nspares++
		}
		b = next
	}
	q.drained, q.ndrained = nil, 0
}

// Release implements [Queue].
func (q *Locked[T]) Release(n int) {
	if q.capacity == math.MaxUint64 || n == 0 {
		return
	}
	q.mu.Lock()
	q.released += uint64(n)
	q.mu.Unlock()
	q.room.made(n)
}

// PopBatch implements [Queue].
func (q *Locked[T]) PopBatch(dst []T) int {
	n := q.TakeBatch(dst)
	q.Release(n)
	return n
}

// Close implements [Queue].
func (q *Locked[T]) Close() {
	q.mu.Lock()
	q.closed = true
	q.waiting = false
	q.mu.Unlock()
	q.arrival.Broadcast()
	q.room.made(math.MaxInt)
}

// Len implements [Queue].
func (q *Locked[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.pushed - q.popped.Load())
}
