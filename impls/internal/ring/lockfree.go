package ring

import (
	"errors"
	"math"
	"sync/atomic"
)

// LockFree is a lock-free queue of linked segments.
//
// # How it works
//
// The slot of position p is slot p%segmentSize of segment p/segmentSize.
//
//  1. A producer claims position p by adding 1 to tail. With a capacity it claims
//     p if p < freed + capacity, and swaps tail from p to p+1.
//  2. The producer walks forward from last to the segment, and links missing
//     segments.
//  3. The producer writes the value and publishes it: it stores p+1 in the
//     seq of the slot.
//  4. The consumer visits the positions in order and stops at the first
//     unpublished one. Release advances freed.
//
// # Why it is correct
//
// Claim. The addition or swap gives each position to one producer, in an order that agrees with real
// time. A producer that reads the closed bit in the sum has claimed nothing, and a swap fails if Close
// sets the bit after the load. Close sets the bit and reads the number of claimed positions in one
// operation. All these positions will be published, and the consumer ends after popping them.
//
// Capacity. A producer loads tail before freed. freed only grows, so the producer never sees more room
// than there is. If it sees no room, there was none at the load of freed.
//
// Finding the segment. last moves to segment k only after a claim in segment k or later. A producer
// loads last before it claims. So the loaded segment is never past the producer's segment, and a
// walk forward reaches it. A compare-and-swap of next from nil links a segment. One producer wins;
// the others use its segment.
//
// Reading. The producer writes the value before it stores seq. The consumer loads
// seq before it reads the value. No value is read before it is written.
//
// Reuse. Only the slots are reused, which prevents ABA. The small segment struct is never reused:
// id is constant, next is set once, and a producer that slept can still walk forward from an old
// segment. The consumer removes the slots of a segment only when all of them are published. By then
// each producer of that segment has stored seq and does not access the slots again. The next
// producer receives the slots by a swap of spare, and the others through the link. This orders the
// clear by the consumer before the next write. A stale seq is smaller than every seq that the
// consumer waits for.
//
// Progress. A producer retries only if another one claimed a position, linked a segment or moved
// last. So the queue is lock-free, apart from producers that wait for room. For the wake-up of the
// consumer see parker; for that of producers see [EventCount].
type LockFree[T any] struct {
	_ [pad]byte

	// tail is the number of claimed positions, plus closedBit after Close. All
	// producers add to it, so it has a cache line of its own.
	tail atomic.Uint64
	_    [pad]byte

	capacity uint64 // constant; 0 if the queue is unbounded
	// last is a hint: a segment near the end that only moves forward. It may lag
	// behind the end but never passes it.
	last atomic.Pointer[segment[T]]
	// closedAt is the number of claimed positions at Close, or open before. Close
	// stores it once, after the closed bit and before it wakes the consumer.
	closedAt atomic.Uint64
	block    atomic.Pointer[block[T]] // the allocator of new segments
	// spare holds slots for reuse. The consumer swaps them into nil entries;
	// producers swap them out.
	spare [maxSpare]atomic.Pointer[slots[T]]
	_     [pad]byte

	parker parker // loaded by every push; written only by a sleeping consumer and its waker
	_      [pad]byte

	// freed counts the released positions. The consumer stores it once per batch. Producers of a
	// bounded queue load it to check for room, so it has a cache line of its own.
	freed atomic.Uint64
	_     [pad]byte

	room EventCount // where producers of a full queue wait
	_    [pad]byte

	// popped is the position of the consumer. Only the consumer stores it, once
	// per batch. Len loads it.
	popped atomic.Uint64
	// head is the current segment of the consumer, or the one that it has just
	// drained. at is the index of the next slot. The consumer owns both.
	head *segment[T]
	at   int
	_    [pad]byte
}

const (
	segmentSize = 256 // slots per segment
	maxSpare    = 16  // bounds the slots that are kept after a burst, in segments
	blockSize   = 64  // segments per allocation
)

type slots[T any] [segmentSize]slot[T]

type segment[T any] struct {
	id uint64 // index of the segment, from 0; written before the segment is linked
	// slots is written before the segment is linked. The consumer sets it to nil
	// when it has drained the segment. Producers with an unpublished position in
	// the segment read it, and so does the consumer.
	slots *slots[T]
	next  atomic.Pointer[segment[T]] // changes once, from nil to the following segment
}

// block is memory for segments, so that few links allocate. All segments of a block are taken
// before those of the next block. A segment is linked only if it was taken before its successor. So
// links lead from older to newer blocks, and a block is garbage once the consumer has passed it.
type block[T any] struct {
	taken    atomic.Uint32 // counts the requests for a segment, including those after the last was taken
	segments [blockSize]segment[T]
}

// MaxCapacity is the largest capacity of a queue.
const MaxCapacity = 1 << 24

// NewLockFree returns an empty queue for capacity values, at most [MaxCapacity]; 0 means unbounded.
func NewLockFree[T any](capacity int) *LockFree[T] {
	q := &LockFree[T]{capacity: uint64(capacity)}
	q.closedAt.Store(open)
	q.parker.init()
	q.block.Store(new(block[T]))
	q.head = q.newSegment()
	q.head.slots = new(slots[T])
	q.last.Store(q.head)
	return q
}

// Push implements [Queue].
func (q *LockFree[T]) Push(v T) error {
	if err := q.TryPush(v); err == nil || !errors.Is(err, ErrFull) {
		return err
	}
	return pushSlow(q, &q.room, v)
}

// TryPush implements [Queue].
func (q *LockFree[T]) TryPush(v T) error {
	// This load must precede the claim: see Finding the segment.
	s := q.last.Load()
	var p uint64
	if q.capacity == 0 {
		p = q.tail.Add(1) - 1
	} else {
		for {
			if p = q.tail.Load(); p&closedBit != 0 {
				break
			}
			// The difference is negative if freed has passed p since the load. The swap then fails.
			if int64(p-q.freed.Load()) >= int64(q.capacity) {
				return ErrFull
			}
			if q.tail.CompareAndSwap(p, p+1) {
				break
			}
		}
	}
	if p&closedBit != 0 {
		return ErrClosed
	}
	if s.id != p/segmentSize {
		s = q.find(s, p/segmentSize)
	}
	place := &s.slots[p%segmentSize]
	place.v = v
	place.seq.Store(p + 1)
	q.parker.published(p)
	return nil
}

// find returns segment id and links missing segments on the way. s is not past
// it. O(segments between s and id).
func (q *LockFree[T]) find(s *segment[T], id uint64) *segment[T] {
	// last may have come nearer since the first load, or have passed id.
	if l := q.last.Load(); l.id <= id {
		s = l
	}
	for s.id < id {
		next := s.next.Load()
		if next == nil {
			next = q.link(s)
		}
		s = next
	}
	for {
		l := q.last.Load()
		if l.id >= id || q.last.CompareAndSwap(l, s) {
			return s
		}
	}
}

// link returns the segment after s, and links a new one if there is none.
func (q *LockFree[T]) link(s *segment[T]) *segment[T] {
	next := q.newSegment()
	next.id, next.slots = s.id+1, q.takeSpare()
	if !s.next.CompareAndSwap(nil, next) {
		// No other goroutine has seen this segment.
		q.keepSpare(next.slots)
		return s.next.Load()
	}
	return next
}

// newSegment returns a segment that was never used.
func (q *LockFree[T]) newSegment() *segment[T] {
	for {
		b := q.block.Load()
		if i := b.taken.Add(1) - 1; i < blockSize {
			return &b.segments[i]
		}
		// One of the producers that find the block used up replaces it.
		q.block.CompareAndSwap(b, new(block[T]))
	}
}

func (q *LockFree[T]) takeSpare() *slots[T] {
	for i := range q.spare {
		// Load first: a swap takes the cache line away from all other producers.
		if q.spare[i].Load() != nil {
			if s := q.spare[i].Swap(nil); s != nil {
				return s
			}
		}
	}
	return new(slots[T])
}

func (q *LockFree[T]) keepSpare(s *slots[T]) {
	for i := range q.spare {
		if q.spare[i].CompareAndSwap(nil, s) {
			return
		}
	}
}

// next returns the slot at the position of the consumer, or nil if its segment is not linked yet.
func (q *LockFree[T]) next() *slot[T] {
	if q.at == segmentSize {
		next := q.head.next.Load()
		if next == nil {
			return nil
		}
		q.keepSpare(q.head.slots)
		q.head.slots = nil
		q.head, q.at = next, 0
	}
	return &q.head.slots[q.at]
}

// ready reports whether position p of the consumer is published.
func (q *LockFree[T]) ready(p uint64) bool {
	s := q.next()
	return s != nil && s.seq.Load() == p+1
}

// Wait implements [Queue].
func (q *LockFree[T]) Wait() error { return q.parker.wait(q.popped.Load(), q, &q.closedAt) }

// Release implements [Queue].
func (q *LockFree[T]) Release(n int) {
	if q.capacity > 0 && n > 0 {
		q.freed.Store(q.freed.Load() + uint64(n))
		q.room.Notify(n)
	}
}

// TakeBatch implements [Queue].
func (q *LockFree[T]) TakeBatch(dst []T) int {
	p := q.popped.Load()
	n := 0
	for n < len(dst) && q.next() != nil {
		places := q.head.slots[q.at:]
		got := take(dst[n:], places, p)
		n += got
		p += uint64(got)
		q.at += got
		if got < len(places) {
			break
		}
	}
	if n > 0 {
		q.popped.Store(p)
	}
	return n
}

// Close implements [Queue].
func (q *LockFree[T]) Close() {
	claimed := q.tail.Or(closedBit)
	if claimed&closedBit != 0 {
		return
	}
	q.closedAt.Store(claimed)
	q.parker.closed()
	q.room.Notify(math.MaxInt)
}

// Len implements [Queue].
func (q *LockFree[T]) Len() int {
	// It loads popped first, because popped never exceeds the claimed positions.
	popped := q.popped.Load()
	// Refused pushes count in tail but not in closedAt.
	n := int(min(q.tail.Load()&^closedBit, q.closedAt.Load()) - popped)
	if q.capacity > 0 {
		// The counters may advance between the loads.
		n = min(n, int(q.capacity))
	}
	return n
}
