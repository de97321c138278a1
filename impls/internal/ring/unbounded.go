package ring

import (
	"context"
	"sync/atomic"
)

// Unbounded is a lock-free queue of linked segments.
//
// # How it works
//
// A producer claims position p by adding 1 to tail. Position p lives in slot
// p%segmentSize of segment p/segmentSize. The producer finds that segment from
// last, going forward and linking what is missing; it writes the value, then
// publishes it by storing p+1 in the slot's seq. The consumer goes through the
// positions in order and stops at the first that isn't published.
//
// # Why it is right
//
// Claim. Addition gives each position to one producer, in an order that agrees
// with real time. A producer that reads the closed bit in the sum has claimed
// nothing. Close reads, in the same operation that sets the bit, how many
// positions were claimed before: all of them will be published, and the
// consumer is done when it has popped as many.
//
// Finding the segment. last moves to segment k only after a position in k or
// later was claimed. A producer loads last before it claims: what it loads is
// therefore not beyond its position's segment, and going forward leads there.
// Segments are linked by a compare-and-swap of next from nil; one of several
// producers wins, the others go on with its segment.
//
// Reading. The store of seq comes after the write of the value, the read of the
// value after a load of that seq: nothing is read before it is written.
//
// Reuse. Memory is reused in two parts to be safe from ABA. The small segment
// is never used again once linked: id stays, next is set once, and a producer
// that slept on an old one finds its way on from there. The slots are taken
// from a segment only when the consumer has seen all of them published; each
// producer of that segment has stored seq and does not touch the slots again,
// and no other producer looks at them. They come to another producer through a
// swap of spare and to the others through the link, which orders the consumer's
// clearing before the next write. A seq left behind is smaller than any that is
// waited for.
//
// Progress. A producer retries only when another has linked a segment or moved
// last: lock-free. Waking the consumer: see parker.
type Unbounded[T any] struct {
	_ [pad]byte

	// tail is the number of positions claimed, and closedBit. All producers add
	// to it; it is alone on its line.
	tail atomic.Uint64
	_    [pad]byte

	// last is a segment near the end, and never beyond the end. Moves forward
	// only. A hint: it may lag behind.
	last atomic.Pointer[segment[T]]
	// closedAt is the number of positions claimed when the queue was closed,
	// else open. Stored once, after the closed bit and before the consumer is
	// woken.
	closedAt atomic.Uint64
	// block is where new segments come from.
	block atomic.Pointer[block[T]]
	// spare are slots to use again. The consumer swaps them in where it finds
	// nil, producers swap them out.
	spare [maxSpare]atomic.Pointer[slots[T]]
	_     [pad]byte

	// parker is loaded by each producer and written by who sleeps or wakes.
	parker parker
	_      [pad]byte

	// popped is the position of the consumer. Stored by the consumer, once a
	// batch, for Len.
	popped atomic.Uint64
	// head is the segment that the consumer is in, or has just drained; at its
	// place there. The consumer's.
	head *segment[T]
	at   int
	_    [pad]byte
}

const (
	// segmentSize values are linked at a time.
	segmentSize = 256
	// maxSpare bounds what is kept for reuse after a burst.
	maxSpare = 8
	// blockSize segments are allocated at once.
	blockSize = 64
)

type slots[T any] [segmentSize]slot[T]

type segment[T any] struct {
	// id counts segments from 0. Written before the segment is linked.
	id uint64
	// slots is written before the segment is linked, and set to nil by the
	// consumer when it has drained them. Read by the producers that have a
	// position here and have not published it, and by the consumer.
	slots *slots[T]
	// next goes from nil to the following segment, once.
	next atomic.Pointer[segment[T]]
}

// block is memory for segments, so that linking one seldom allocates. All are
// handed out before those of the next block, and a segment is linked only if it
// was handed out before the one that follows it: links lead from older blocks
// to newer ones, and an old block is garbage once the consumer has passed it.
type block[T any] struct {
	// taken is how many were handed out, and how often one was asked for in
	// vain.
	taken    atomic.Uint32
	segments [blockSize]segment[T]
}

// NewUnbounded returns an empty queue.
func NewUnbounded[T any]() *Unbounded[T] {
	q := new(Unbounded[T])
	q.closedAt.Store(open)
	q.parker.init()
	q.block.Store(new(block[T]))
	q.head = q.newSegment()
	q.head.slots = new(slots[T])
	q.last.Store(q.head)
	return q
}

// Push appends v. It never waits and doesn't look at the context: it is
// [Unbounded.TryPush] under the name that [Queue] asks for.
func (q *Unbounded[T]) Push(_ context.Context, v T) error { return q.TryPush(v) }

// TryPush appends v, or returns [ErrClosed].
func (q *Unbounded[T]) TryPush(v T) error {
	// Before the claim: see Finding the segment.
	s := q.last.Load()
	p := q.tail.Add(1) - 1
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

// find returns segment id, linking those up to it that are missing. s isn't
// beyond it. O(segments between).
func (q *Unbounded[T]) find(s *segment[T], id uint64) *segment[T] {
	// By now last may be nearer, or already beyond.
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

// link returns the segment after s, of which there was none.
func (q *Unbounded[T]) link(s *segment[T]) *segment[T] {
	next := q.newSegment()
	next.id, next.slots = s.id+1, q.takeSpare()
	if !s.next.CompareAndSwap(nil, next) {
		// Nobody has seen it.
		q.keepSpare(next.slots)
		return s.next.Load()
	}
	return next
}

// newSegment returns one that was never used.
func (q *Unbounded[T]) newSegment() *segment[T] {
	for {
		b := q.block.Load()
		if i := b.taken.Add(1) - 1; i < blockSize {
			return &b.segments[i]
		}
		// One of those that find the block used up replaces it.
		q.block.CompareAndSwap(b, new(block[T]))
	}
}

func (q *Unbounded[T]) takeSpare() *slots[T] {
	for i := range q.spare {
		// Loading first: a swap takes the line away from all other producers.
		if q.spare[i].Load() != nil {
			if s := q.spare[i].Swap(nil); s != nil {
				return s
			}
		}
	}
	return new(slots[T])
}

func (q *Unbounded[T]) keepSpare(s *slots[T]) {
	for i := range q.spare {
		if q.spare[i].CompareAndSwap(nil, s) {
			return
		}
	}
}

// next returns the slot that the consumer is at, or nil where it isn't linked
// yet.
func (q *Unbounded[T]) next() *slot[T] {
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

// ready reports whether position p, the consumer's, is published.
func (q *Unbounded[T]) ready(p uint64) bool {
	s := q.next()
	return s != nil && s.seq.Load() == p+1
}

// Wait implements [Queue].
func (q *Unbounded[T]) Wait(ctx context.Context) error {
	return q.parker.wait(ctx, q.popped.Load(), q, &q.closedAt)
}

// PopBatch implements [Queue].
func (q *Unbounded[T]) PopBatch(dst []T) int { return q.TakeBatch(dst) }

// Release implements [Queue]: there is always room.
func (q *Unbounded[T]) Release(int) {}

// TakeBatch implements [Queue].
func (q *Unbounded[T]) TakeBatch(dst []T) int {
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
func (q *Unbounded[T]) Close() {
	claimed := q.tail.Or(closedBit)
	if claimed&closedBit != 0 {
		return
	}
	q.closedAt.Store(claimed)
	q.parker.closed()
}

// Len implements [Queue].
func (q *Unbounded[T]) Len() int { return length(&q.tail, &q.closedAt, &q.popped) }

// length is the distance between two counters that others move. popped is
// loaded first: it never passes what was claimed.
func length(tail, closedAt, popped *atomic.Uint64) int {
	from := popped.Load()
	// Pushes that were refused have counted in tail, but not in closedAt.
	return int(min(tail.Load()&^closedBit, closedAt.Load()) - from)
}
