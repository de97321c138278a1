package ring

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// Locked is a [Queue] with a mutex and a condition variable: the baseline for the
// lock-free queues. It is optimized as carefully as they are.
//
// # How it works
//
// Values are stored in a chain of fixed-size blocks.
//
//  1. A producer appends to the last block under the lock. No block is copied
//     or grown, so the lock is held for one append at any queue length.
//  2. The consumer reads the number of values under the lock, as its bound.
//     It takes the values before the bound without the lock, because no
//     producer writes them any more.
//  3. At the bound the consumer takes the lock again, and returns its drained
//     blocks for reuse.
//
// A producer signals only a waiting consumer, once per wait. It signals after it
// releases the lock; otherwise the consumer would block on the lock.
type Locked[T any] struct {
	capacity uint64 // MaxUint64 if the queue is unbounded

	mu      sync.Mutex // guards all fields down to nspares
	arrival sync.Cond  // where the consumer waits
	waiting bool       // the consumer waits and no producer has signalled
	closed  bool
	tail    *link[T] // the last block; its first free slot is tail.values[tail.n]
	// pushed counts accepted values. released counts values whose slots are free again.
	pushed, released uint64
	spares           *link[T] // a list of nspares drained blocks for reuse
	nspares          int

	// room is where producers of a full queue wait. Its lock is taken before mu.
	room EventCount
	_    [pad]byte

	popped atomic.Uint64 // counts the popped values; only the consumer stores it; Len loads it
	// The consumer owns the fields below. The next value is head.values[at]. It may take all values
	// before position bound without the lock. drained is a list of ndrained blocks to return.
	head     *link[T]
	at       int
	bound    uint64
	drained  *link[T]
	ndrained int
}

type link[T any] struct {
	values [segmentSize]T
	n      int // number of written values; the mu of the queue guards it
	// next is written under mu when the block is full. This happens before the
	// bound of the consumer includes a position of the next block.
	next *link[T]
}

// NewLocked returns an empty queue for capacity values, at most [MaxCapacity]; 0 means unbounded.
func NewLocked[T any](capacity int) *Locked[T] {
	q := &Locked[T]{capacity: uint64(capacity)}
	if capacity == 0 {
		q.capacity = math.MaxUint64
	}
	q.arrival.L = &q.mu
	q.tail = new(link[T])
	q.head = q.tail
	return q
}

// Push implements [Queue].
func (q *Locked[T]) Push(v T) error {
	if err := q.TryPush(v); err == nil || !errors.Is(err, ErrFull) {
		return err
	}
	return pushSlow(q, &q.room, v)
}

// TryPush implements [Queue].
func (q *Locked[T]) TryPush(v T) error {
	q.mu.Lock()
	switch {
	case q.closed:
		q.mu.Unlock()
		return ErrClosed
	case q.pushed-q.released >= q.capacity:
		q.mu.Unlock()
		return ErrFull
	}
	q.append(v)
	q.unlockAndWake()
	return nil
}

// PushFunc appends the values that keep accepts to an unbounded queue, under one
// lock, or returns [ErrClosed]. keep must not call methods of the queue.
func (q *Locked[T]) PushFunc(values []T, keep func(*T) bool) error {
	q.mu.Lock()
	defer q.unlockAndWake()
	if q.closed {
		return ErrClosed
	}
	for i := range values {
		if keep(&values[i]) {
			q.append(values[i])
		}
	}
	return nil
}

// append adds v to the last block. The caller holds the lock.
func (q *Locked[T]) append(v T) {
	t := q.tail
	if t.n == segmentSize {
		t = q.grow()
	}
	t.values[t.n] = v
	t.n++
	q.pushed++
}

// unlockAndWake releases the lock and wakes the consumer if it waits for a value.
func (q *Locked[T]) unlockAndWake() {
	wake := q.waiting && q.pushed != q.bound
	if wake {
		q.waiting = false
	}
	q.mu.Unlock()
	if wake {
		q.arrival.Signal()
	}
}

// grow links a new block. The caller holds the lock.
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
func (q *Locked[T]) Wait() error {
	if q.popped.Load() < q.bound {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.pushed == q.bound {
		if q.closed {
			return ErrClosed
		}
		q.waiting = true
		q.arrival.Wait()
	}
	q.refresh()
	return nil
}

// Ready returns the number of values that TakeBatch can return without the lock.
// Only the consumer may call it.
func (q *Locked[T]) Ready() int { return int(q.bound - q.popped.Load()) }

// TakeBatch implements [Queue].
func (q *Locked[T]) TakeBatch(dst []T) int {
	p := q.popped.Load()
	if p+uint64(len(dst)) > q.bound {
		q.mu.Lock()
		q.refresh()
		q.mu.Unlock()
	}
	n := int(min(uint64(len(dst)), q.bound-p))
	for i := 0; i < n; {
		if q.at == segmentSize {
			q.advance()
		}
		// Clearing the slots lets the garbage collector free popped values.
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

// advance leaves a drained block and keeps up to maxSpare of them.
func (q *Locked[T]) advance() {
	b := q.head
	q.head, q.at = b.next, 0
	if q.ndrained < maxSpare {
		b.next, q.drained = q.drained, b
		q.ndrained++
	}
}

// refresh moves the bound to the last value and returns drained blocks. The caller holds the lock.
func (q *Locked[T]) refresh() {
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
	q.room.Notify(n)
}

// Close implements [Queue].
func (q *Locked[T]) Close() {
	q.mu.Lock()
	q.closed = true
	q.waiting = false
	q.mu.Unlock()
	q.arrival.Broadcast()
	q.room.Notify(math.MaxInt)
}

// Len implements [Queue].
func (q *Locked[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.pushed - q.popped.Load())
}
