// Package ring holds queues from many producers to one consumer.
//
// [Unbounded] and [Bounded] are lock-free: the former grows by linking segments;
// the latter is one array, and its producers wait for room. [Locked] is the same
// with a mutex, for comparison. All are a [Queue].
//
// # What all promise
//
//   - A value whose push returned nil is popped exactly once, also after Close.
//   - Values are popped in the order in which their producers claimed
//     positions: a total order, in which a push that returned before another
//     began comes first. In particular each producer's values stay in order.
//   - A push to a lock-free queue costs one atomic read-modify-write to claim a
//     position, one atomic store to publish it and one atomic load to see that
//     the consumer is awake.
//   - Nothing spins: whoever must wait sleeps on a channel.
//   - No reference to a popped value is kept, and memory is reused: nothing is
//     allocated for an event in a steady state.
//
// # What is not promised
//
// A producer that is suspended between claiming and publishing holds up the
// values behind its own, though no other producer. PopBatch then returns fewer
// values than were pushed, and a bounded queue may report itself full although
// a PopBatch is about to make room. Who waits for room is woken in order, but
// may be overtaken by a push that comes just then.
//
// # Designs turned down
//
// An intrusive linked list needs an allocation for each event. One position
// counter in each segment, rather than one for the queue, makes a recycled
// segment claimable by a producer that slept through its former life. In a
// bounded queue the consumer could hand back each slot by its sequence number,
// as Vyukov's does for many consumers: with one consumer a single counter says
// the same, is stored once a batch, and tells full from empty at capacity 1.
package ring

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Queue is what the queues share. Push, TryPush, Close and Len are for anyone;
// Wait, PopBatch, TakeBatch and Release for one goroutine at a time.
type Queue[T any] interface {
	// Push appends v, waiting for room where the queue is bounded. It returns
	// [ErrClosed], or the error of ctx if that ends while Push waits; v is then
	// not in the queue. Where there is room ctx is not looked at.
	Push(ctx context.Context, v T) error
	// TryPush appends v without waiting, or returns [ErrFull] or [ErrClosed].
	TryPush(v T) error
	// Wait returns nil when PopBatch has something to return, [ErrClosed] when
	// the queue is closed and all its values were popped, or the error of ctx.
	Wait(ctx context.Context) error
	// PopBatch moves values to dst, at most len(dst), and returns how many. It
	// does not wait: 0 means that the next value in order isn't there yet.
	PopBatch(dst []T) int
	// TakeBatch is PopBatch for a consumer that counts what it holds among what
	// waits: the places of the values stay taken until Release.
	TakeBatch(dst []T) int
	// Release makes room for n values that TakeBatch has returned. It does
	// nothing where the queue is unbounded.
	Release(n int)
	// Close refuses further pushes and wakes all who wait. What was accepted
	// can still be popped. A second Close does nothing.
	Close()
	// Len returns how many values wait, those being pushed included. O(1); it
	// may be out of date by the time it is read.
	Len() int
}

var (
	// ErrClosed is returned by pushes after Close, and by Wait when nothing is
	// left either.
	ErrClosed = errors.New("ring: closed")
	// ErrFull is returned by TryPush of a bounded queue without room.
	ErrFull = errors.New("ring: full")
	// ErrCapacity is wrapped where a queue is asked for a capacity that it can't
	// have.
	ErrCapacity = errors.New("ring: capacity out of range")
)

// New returns a queue for capacity values, 0 meaning [Unbounded]. The error
// wraps [ErrCapacity].
func New[T any](capacity int) (Queue[T], error) {
	if capacity == 0 {
		return NewUnbounded[T](), nil
	}
	q, err := NewBounded[T](capacity)
	if err != nil {
		return nil, fmt.Errorf("%w; 0 means unbounded", err)
	}
	return q, nil
}

// pad keeps what different goroutines write on different cache lines. Lines are
// 64 bytes on amd64, but fetched in pairs, and 128 on some arm64.
const pad = 128

// closedBit in a counter of claimed positions says that the queue is closed.
// Positions below it would last for centuries.
const closedBit = 1 << 63

// open is the value of closedAt while the queue isn't closed: no position.
const open = 1<<64 - 1

// slot is a place for one value.
type slot[T any] struct {
	// seq is 1 more than the position whose value is here, or was here. Stored
	// by the producer after v; the consumer reads v only when it has seen the
	// seq of the position that it is at. Positions are never used twice, hence
	// what a former use left behind can't be mistaken for it, and the consumer
	// need not reset it.
	seq atomic.Uint64
	// v is the producer's from its claim until seq is stored, then the
	// consumer's, which sets it to zero.
	v T
}

// take moves values from slots to dst, as many as are published in a row from
// position p on, which is that of the first slot.
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
