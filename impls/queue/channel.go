package queue

import (
	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// channelVariant is an owner goroutine and channels.
func channelVariant() Variant {
	return ownVariant("channel", "an owner goroutine, which ends with Close, folds what comes through a channel",
		impls.OneConsumer, func(o Options) (Queue, error) { return newChannel(o), nil })
}

// channel is a queue whose backlog is owned by a goroutine, the owner. Producers send items through
// a [ring.Mailbox]; the consumer asks, and the owner answers with one object when it has folded all
// earlier items. It receives as many items at a time as the channel has.
//
// The owner runs from the construction of the queue to Close, drained or not. A
// queue that is not closed keeps its goroutine.
type channel struct {
	front
	mail    *ring.Mailbox[item, answer]
	answers chan answer // used by the consumer
}

// answer is the answer to a question. Without ok it says that the queue is closed and empty.
type answer struct {
	obj    any
	epoch  uint32
	ok     bool
	length int
}

const channelSize = 4096 // enough that a producer seldom waits for the owner to be scheduled

func newChannel(o Options) *channel {
	q := &channel{
		front:   front{base: newBase(o, "channel")},
		mail:    ring.NewMailbox[item, answer](channelSize),
		answers: make(chan answer, 1),
	}
	q.engine = q
	go q.mail.Own(&owner{channel: q, backlog: q.newBacklog()})
	return q
}

// owner is the state of the owner goroutine.
type owner struct {
	*channel
	backlog backlog
	n       int // length of buf, the items that are not folded yet
	buf     [chunk]item
}

// Receive implements [ring.State].
func (w *owner) Receive(first item, n int, more <-chan item) {
	w.add(first)
	for range n {
		w.add(<-more)
	}
	w.fold()
}

func (w *owner) add(i item) {
	if w.n == chunk {
		w.fold()
	}
	w.buf[w.n] = i
	w.n++
}

func (w *owner) fold() {
	w.backlog.put(w.buf[:w.n])
	clear(w.buf[:w.n])
	w.n = 0
}

// Enough implements [ring.State]. A key is popped with its newest object, which may
// be in the channel.
func (w *owner) Enough(ring.Question) bool { return false }

// Answer implements [ring.State].
func (w *owner) Answer(q ring.Question) (a answer, ok bool) {
	switch {
	case !q.Take:
		return answer{length: w.backlog.len()}, true
	case w.backlog.len() == 0:
		return answer{}, false
	}
	a.obj, a.epoch = w.backlog.take()
	a.ok = true
	return a, true
}

func (q *channel) push(i item) { q.mail.Send(i) }

// settle waits until the owner has folded all sent items.
func (q *channel) settle() { q.Len() }

// take implements [engine].
func (q *channel) take() (obj any, epoch uint32, ok bool) {
	a := q.mail.Ask(ring.Question{Take: true}, q.answers)
	q.mail.Took(1)
	return a.obj, a.epoch, a.ok
}

func (q *channel) Close() { q.mail.Close() }

func (q *channel) IsClosed() bool { return q.mail.Closed() }

func (q *channel) Len() int { return q.mail.Ask(ring.Question{}, make(chan answer, 1)).length }
