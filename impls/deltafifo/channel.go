package deltafifo

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// channelVariant is idiomatic Go: one goroutine owns the state, and others
// communicate with it through channels.
func channelVariant() Variant {
	return ownVariant("channel", "an owner goroutine and channels: it receives in runs, folds, and answers the consumer",
		func(o Options) (Queue, error) { return newChannel(o), nil })
}

// channel is a queue whose backlog is owned by a goroutine, the owner, from
// construction to Close. Producers send items through a buffered channel. The
// owner receives and merges them also while the consumer is slow or runs process.
// The consumer asks for deltas, and the owner answers when it has some.
//
// # Order
//
// When a call returns, its item is in the channel. The owner drains the channel
// before it answers a request, so a Pop sees every earlier call. A producer waits
// only for room: in the channel, until the owner receives, which never waits for
// the consumer; and within Capacity.
//
// # Close
//
// accepted counts the items that producers have committed to send. Close sets its
// highest bit and reads the count in one operation. The owner receives that many
// items, leaves the backlog in the channel left, and ends, even if no consumer
// drains the queue.
type channel struct {
	front

	// in carries items to the owner.
	in chan item
	// room holds one token per used unit of Capacity; nil if the queue is unbounded. The
	// owner receives tokens to free capacity.
	room chan struct{}
	// asks carries requests to the owner. left holds the owner's state after it
	// has ended.
	asks chan ask
	left chan *owner

	// accepted counts the items that were or will be sent, plus closedBit after
	// Close. total is the count at Close; it is written before closed is closed.
	accepted atomic.Uint64
	total    uint64
	closed   chan struct{}
	// returned: process has returned and the owner does not know it yet.
	returned atomic.Bool

	// answers is used by the consumer.
	answers chan answer
}

// ask is a request: for deltas if take is true, otherwise for the length.
type ask struct {
	take, batch bool
	// reply has capacity 1.
	reply chan<- answer
}

// answer is the reply to a request. Without deltas it says that the queue is
// closed and empty.
type answer struct {
	deltas  []cache.Delta
	batched bool
	length  int
}

// closedBit marks a counter of items as closed.
const closedBit = 1 << 63

func newChannel(o Options) *channel {
	q := &channel{
		front:   front{producers: producers{base: newBase(o, "channel")}},
		in:      make(chan item, chunk),
		asks:    make(chan ask),
		left:    make(chan *owner, 1),
		closed:  make(chan struct{}),
		answers: make(chan answer, 1),
	}
	if o.Capacity > 0 {
		q.room = make(chan struct{}, o.Capacity)
	}
	q.sink, q.engine = q, q
	w := &owner{channel: q, backlog: newBacklog(o, q.initial)}
	go w.run()
	return q
}

// owner is the state of the owner goroutine.
type owner struct {
	*channel
	backlog backlog
	// received counts the items taken from the channel.
	received uint64
	// waiting is a request for deltas without an answer yet; its reply is nil if
	// there is none.
	waiting ask
}

func (w *owner) run() {
	for {
		select {
		case i := <-w.in:
			w.receive(i, len(w.in))
			w.serve()
		case a := <-w.asks:
			w.answer(a)
		case <-w.closed:
			for w.received < w.total {
				w.receive(<-w.in, min(len(w.in), int(w.total-w.received-1)))
			}
			w.serve()
			if w.waiting.reply != nil {
				w.waiting.reply <- answer{}
			}
			w.left <- w
			return
		}
	}
}

// receive receives the first item, and n more that are in the channel.
func (w *owner) receive(first item, n int) {
	w.noteReturn()
	w.received += uint64(n) + 1
	room := w.backlog.room(n + 1)
	room[0] = first
	for at := 1; ; at = 0 {
		for ; at < len(room); at++ {
			room[at] = <-w.in
		}
		w.backlog.put(room)
		n -= len(room)
		if n < 0 {
			break
		}
		room = w.backlog.room(n + 1)
	}
	w.release()
}

// noteReturn passes the return of process to the backlog, before the backlog uses
// the deltas in process.
func (w *owner) noteReturn() {
	if w.returned.Load() {
		w.returned.Store(false)
		w.backlog.done()
	}
}

// release receives the tokens of freed capacity.
func (w *owner) release() {
	n := w.backlog.freed()
	if w.room != nil {
		for range n {
			<-w.room
		}
	}
}

// answer answers a request, or keeps it until it can.
func (w *owner) answer(a ask) {
	w.noteReturn()
	if n := len(w.in); n > 0 && (!a.take || !w.backlog.enough(a.batch)) {
		w.receive(<-w.in, n-1)
	}
	if a.take {
		w.waiting = a
	}
	w.serve()
	if !a.take {
		a.reply <- answer{length: w.backlog.len()}
	}
}

// serve answers the pending request if possible.
func (w *owner) serve() {
	if w.waiting.reply == nil {
		return
	}
	if a := w.take(w.waiting.batch); a.deltas != nil {
		w.waiting.reply <- a
		w.waiting.reply = nil
	}
}

func (w *owner) take(batch bool) (a answer) {
	a.deltas, a.batched = w.backlog.take(batch)
	w.release()
	return a
}

// ask sends a request to the owner, or executes it on the state that the owner
// has left.
func (q *channel) ask(a ask, reply chan answer) answer {
	a.reply = reply
	select {
	case q.asks <- a:
		return <-reply
	case w := <-q.left:
		defer func() { q.left <- w }()
		w.noteReturn()
		if a.take {
			return w.take(a.batch)
		}
		return answer{length: w.backlog.len()}
	}
}

// settle waits until the owner has received all sent items.
func (q *channel) settle() { q.Len() }

func (q *channel) push(i item) error {
	if q.room != nil {
		if err := q.enter(); err != nil {
			return err
		}
	}
	if q.accepted.Add(1)&closedBit != 0 {
		if q.room != nil {
			<-q.room
		}
		return cache.ErrFIFOClosed
	}
	q.in <- i
	// The first received item determines the initial list, so wait until the
	// owner has it.
	if !q.initial.Begun() {
		q.settle()
	}
	return nil
}

// enter waits for capacity and takes it.
func (q *channel) enter() error {
	select {
	case q.room <- struct{}{}:
		return nil
	default:
	}
	if q.IsClosed() {
		return cache.ErrFIFOClosed
	}
	select {
	case q.room <- struct{}{}:
		return nil
	case <-q.closed:
		return cache.ErrFIFOClosed
	case <-q.ctx.Done():
		return q.ctx.Err()
	}
}

func (q *channel) take(batch bool) (deltas []cache.Delta, batched bool) {
	a := q.ask(ask{take: true, batch: batch}, q.answers)
	return a.deltas, a.batched
}

// done implements [engine].
func (q *channel) done(synced bool) {
	q.returned.Store(true)
	if !synced {
		q.settle()
	}
}

// Close implements [cache.Queue]. Producers that wait for room return
// [cache.ErrFIFOClosed], as do later calls.
func (q *channel) Close() {
	if n := q.accepted.Or(closedBit); n&closedBit == 0 {
		q.total = n
		close(q.closed)
	}
}

// IsClosed reports whether Close was called.
func (q *channel) IsClosed() bool { return q.accepted.Load()&closedBit != 0 }

// Len implements [Queue].
func (q *channel) Len() int { return q.ask(ask{}, make(chan answer, 1)).length }
