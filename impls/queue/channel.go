package queue

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// channelVariant is an owner goroutine and channels.
func channelVariant() Variant {
	return Variant{
		Name:    "channel",
		Summary: "an owner goroutine that folds what comes through a channel, many events at a time",
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Bounded: true,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{capacity: true})
			if err != nil {
				return nil, err
			}
			return newChannel(o), nil
		},
	}
}

// channel is a queue whose backlog belongs to a goroutine, the owner. Producers
// send what they do; the consumer sends a request, and the owner answers with
// one object when it has folded in all that was sent before. It takes as many
// items from the channel at a time as there are.
//
// The owner lives from the construction of the queue to Close, whether or not
// anybody drains it. The backlog then belongs to the consumer. A queue that is
// not closed keeps its goroutine.
//
// # Nothing that was accepted is lost
//
// A producer holds sending for reading while it sends; Close takes it for writing
// before it closes the channel. So no send meets a closed channel, and the owner
// receives all that was sent.
type channel struct {
	keys    keys.Func
	ctx     context.Context
	initial *account

	in chan item

	places chan struct{}

	asks chan ask

	wants chan struct{}
	next  chan handed
	lens  chan chan int

	closing chan struct{}

	done chan struct{}

	once    sync.Once
	sending sync.RWMutex

	closed bool

	consumer sync.Mutex

	last    sync.Mutex
	backlog backlog
	buf     [chunk]item
}

type ask struct {
	item   item
	answer chan bool
}

// handed is an object on its way to the consumer.
type handed struct {
	obj   any
	epoch uint32
}

// channelSize is how many items may be on their way to the owner: enough that a
// producer seldom waits for it to be scheduled.
const channelSize = 4096

func newChannel(o Options) *channel {
	keys, initial := keys.NewFunc(o.KeyFunction), newAccount("channel")
	q := &channel{
		keys: keys, ctx: o.Context, initial: initial,
		in:      make(chan item, channelSize),
		asks:    make(chan ask),
		wants:   make(chan struct{}),
		next:    make(chan handed, 1),
		lens:    make(chan chan int),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		backlog: backlog{keys: keys, initial: initial},
	}
	if o.Capacity > 0 {
		q.places = make(chan struct{}, o.Capacity)
	}
	go q.own()
	return q
}

// own is the owner goroutine.
func (q *channel) own() {
	defer close(q.done)
	// wanted: the consumer waits for an answer.
	wanted := false
	for {
		if wanted && q.backlog.len() > 0 {
			q.next <- q.take()
			wanted = false
		}
		select {
		case i, open := <-q.in:
			if !open {
				return
			}
			q.fold(i)
		case <-q.wants:
			q.catchUp()
			wanted = true
		case a := <-q.asks:
			q.catchUp()
			a.answer <- q.squeeze(&a.item)
		case answer := <-q.lens:
			q.catchUp()
			answer <- q.backlog.len()
		}
	}
}

// catchUp folds in all that was sent when it was called. Only the owner calls
// it.
func (q *channel) catchUp() {
	// Nobody else receives: what is there stays there.
	for n := len(q.in); n > 0; {
		i, open := <-q.in
		if !open {
			return
		}
		n -= q.fold(i)
	}
}

// fold takes in an item, and as many of those behind it as there are and fit the
// buffer. It returns how many it was.
func (q *channel) fold(first item) int {
	q.buf[0] = first
	n := 1
	for more := min(len(q.in), chunk-1); n <= more; n++ {
		q.buf[n] = <-q.in
	}
	before := q.backlog.placed
	q.backlog.put(q.buf[:n])
	clear(q.buf[:n])
	q.vacate(before + n - q.backlog.placed)
	return n
}

// squeeze takes in an item without a place, if it needs none.
func (q *channel) squeeze(i *item) bool {
	if i.kind == put {
		key, hash, err := hashed(q.keys, i.obj)
		if err != nil || q.backlog.waiting.find(hash, key) == nil {
			return false
		}
	}
	before := q.backlog.placed
	q.backlog.putOne(i)
	q.vacate(before - q.backlog.placed)
	return true
}

// vacate gives n places back.
func (q *channel) vacate(n int) {
	if q.places == nil {
		return
	}
	for range n {
		<-q.places
	}
}

// take takes out what is handed over next.
func (q *channel) take() handed {
	before := q.backlog.placed
	obj, epoch := q.backlog.take()
	q.vacate(before - q.backlog.placed)
	return handed{obj, epoch}
}

// Add implements [Queue].
func (q *channel) Add(obj any) error { return q.event(put, obj) }

// Update is Add.
func (q *channel) Update(obj any) error { return q.event(put, obj) }

// Delete takes an object's key out of the queue.
func (q *channel) Delete(obj any) error { return q.event(remove, obj) }

func (q *channel) event(k kind, obj any) error {
	// The key is the owner's to make; an object without one is refused here.
	if err := q.keys.Check(obj); err != nil {
		return err
	}
	q.initial.Touch()
	return q.send(item{obj, k})
}

// Replace drops what waits and queues the list; of several objects with one key
// the last one. After an error the queue is as it was. O(list + waiting).
func (q *channel) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	r.first = q.initial.Claim()
	if err := q.send(item{r, replace}); err != nil {
		return err
	}
	// An empty list must have taken effect when Replace returns.
	q.Len()
	return nil
}

// Resync does nothing: what is held waits already.
func (q *channel) Resync() error { return nil }

// send sends an item to the owner, waiting for a place if it needs one.
func (q *channel) send(i item) error {
	q.sending.RLock()
	defer q.sending.RUnlock()
	if q.closed {
		return cache.ErrFIFOClosed
	}
	if q.places != nil {
		select {
		case q.places <- struct{}{}:
		default:
			if in, err := q.sendCrowded(i); in || err != nil {
				return err
			}
		}
	}
	q.in <- i
	return nil
}

// sendCrowded is for when there is no place. It reports whether the item is in
// by now, as it needed none; otherwise it has got one.
func (q *channel) sendCrowded(i item) (in bool, err error) {
	// The owner ends after sending is free.
	a := ask{i, make(chan bool)}
	q.asks <- a
	if <-a.answer {
		return true, nil
	}
	// The owner may have made room as it folded. Where there is room the context
	// is not looked at.
	select {
	case q.places <- struct{}{}:
		return false, nil
	default:
	}
	select {
	case q.places <- struct{}{}:
		return false, nil
	case <-q.ctx.Done():
		return false, q.ctx.Err()
	case <-q.closing:
		return false, cache.ErrFIFOClosed
	}
}

// receive returns what is handed over next, or false when the queue is closed and
// drained.
func (q *channel) receive() (handed, bool) {
	select {
	case q.wants <- struct{}{}:
		select {
		case h := <-q.next:
			return h, true
		case <-q.done:
		}
	case <-q.done:
	}
	// The owner may have answered before it ended.
	select {
	case h := <-q.next:
		return h, true
	default:
	}
	q.last.Lock()
	defer q.last.Unlock()
	if q.backlog.len() == 0 {
		return handed{}, false
	}
	return q.take(), true
}

// Pop implements [cache.Queue].
func (q *channel) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	h, ok := q.receive()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	if h.epoch != 0 {
		// HasSynced may turn true only when process has returned.
		defer q.initial.left(h.epoch)
	}
	return h.obj, process(h.obj, !q.initial.HasSynced())
}

// Close implements [cache.Queue]. Producers that wait for room return
// [cache.ErrFIFOClosed], as do all that come later. The owner has ended when
// Close returns.
func (q *channel) Close() {
	q.once.Do(func() {
		close(q.closing)
		q.sending.Lock()
		defer q.sending.Unlock()
		q.closed = true
		close(q.in)
	})
	<-q.done
}

// IsClosed reports whether Close was called.
func (q *channel) IsClosed() bool {
	select {
	case <-q.closing:
		return true
	default:
		return false
	}
}

// Len implements [Queue].
func (q *channel) Len() int {
	answer := make(chan int, 1)
	select {
	case q.lens <- answer:
		return <-answer
	case <-q.done:
		q.last.Lock()
		defer q.last.Unlock()
		return q.backlog.len()
	}
}

// HasSynced implements [cache.Queue].
func (q *channel) HasSynced() bool { return q.initial.HasSynced() }

// HasSyncedChecker implements [cache.Queue].
func (q *channel) HasSyncedChecker() cache.DoneChecker { return q.initial }
