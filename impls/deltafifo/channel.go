package deltafifo

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// channelVariant is idiomatic Go: one goroutine owns the state, and others
// communicate with it through channels.
func channelVariant() Variant {
	return ownVariant("channel", "an owner goroutine, which ends with Close: it receives in runs, folds, and answers the consumer",
		func(o Options) (Queue, error) { return newChannel(o), nil })
}

// channel is a queue whose backlog is owned by a goroutine, the owner, from
// construction to Close. Producers send items through a [ring.Mailbox]. The owner
// receives and merges them also while the consumer is slow or runs process. The
// consumer asks for deltas, and the owner answers when it has some. With KnownObjects the owner
// learns of the return of process by the next call, and holds the popped objects until then.
type channel struct {
	front
	slots    ring.Slots
	mail     *ring.Mailbox[item, answer]
	returned atomic.Bool // process has returned and the owner does not know it yet
	answers  chan answer // used by the consumer
	left     int         // deltas that were queued after the last take; of the consumer
}

// answer is the answer to a question. Without deltas it says that the queue is closed and empty.
type answer struct {
	deltas  []cache.Delta
	batched bool
	length  int
}

func newChannel(o Options) *channel {
	q := &channel{
		front:   front{producers: producers{base: newBase(o, "channel")}},
		mail:    ring.NewMailbox[item, answer](chunk),
		answers: make(chan answer, 1),
	}
	q.slots.Init(o.Capacity)
	q.engine, q.sink = q, q
	q.throttle.init(o, 1)
	go q.mail.Own(&owner{channel: q, backlog: newBacklog(o, q.initial)})
	return q
}

// owner is the state of the owner goroutine.
type owner struct {
	*channel
	backlog backlog
}

// Receive implements [ring.State].
func (w *owner) Receive(first item, n int, more <-chan item) {
	w.noteReturn()
	room := w.backlog.room(n + 1)
	room[0] = first
	for at := 1; ; at = 0 {
		for ; at < len(room); at++ {
			room[at] = <-more
		}
		w.backlog.put(room)
		n -= len(room)
		if n < 0 {
			break
		}
		room = w.backlog.room(n + 1)
	}
	w.slots.Give(w.backlog.freed())
}

// noteReturn passes the return of process to the backlog, before the backlog uses
// the deltas in process.
func (w *owner) noteReturn() {
	if w.returned.Load() {
		w.returned.Store(false)
		w.backlog.done()
	}
}

// Enough implements [ring.State]. The throttle needs the length of all that was sent.
func (w *owner) Enough(q ring.Question) bool {
	return q.Take && w.throttle.limit == 0 && w.backlog.enough(q.Batch)
}

// Answer implements [ring.State].
func (w *owner) Answer(q ring.Question) (a answer, ok bool) {
	w.noteReturn()
	if !q.Take {
		return answer{length: w.backlog.len()}, true
	}
	a.deltas, a.batched = w.backlog.take(q.Batch)
	a.length = w.backlog.size()
	w.slots.Give(w.backlog.freed())
	return a, a.deltas != nil
}

// settle waits until the owner has received all sent items.
func (q *channel) settle() { q.Len() }

func (q *channel) push(i item) {
	q.throttle.wait()
	q.slots.Take()
	q.mail.Send(i)
	// The first received item determines the initial list, so wait until the owner has it. A command
	// has then been executed.
	if i.kind >= replaceCommand || !q.initial.Begun() {
		q.settle()
	}
}

func (q *channel) take(batch bool) (deltas []cache.Delta, batched bool) {
	a := q.mail.Ask(ring.Question{Take: true, Batch: batch}, q.answers)
	q.mail.Took(len(a.deltas))
	q.left = a.length
	return a.deltas, a.batched
}

func (q *channel) queued() int { return q.left }

func (q *channel) done(synced bool) {
	q.returned.Store(true)
	if !synced {
		q.settle()
	}
}

func (q *channel) Close() {
	q.mail.Close()
	q.slots.Close()
	q.throttle.close()
}

func (q *channel) IsClosed() bool { return q.mail.Closed() }

func (q *channel) Len() int { return q.mail.Ask(ring.Question{}, make(chan answer, 1)).length }
