package queue

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// channelVariant is an owner goroutine and channels.
func channelVariant() Variant {
	return ownVariant("channel", "an owner goroutine that folds what comes through a channel, many events at a time",
		impls.OneConsumer, func(o Options) (Queue, error) { return newChannel(o), nil })
}

// channel is a queue whose backlog is owned by a goroutine, the owner. Producers
// send items; the consumer sends a request, and the owner answers with one object
// when it has folded all earlier items. It receives as many items at a time as the
// channel has.
//
// The owner runs from the construction of the queue to Close, drained or not. Then
// the consumer owns the backlog. A queue that is not closed keeps its goroutine.
//
// # Nothing accepted is lost
//
// A producer holds sending for reading while it sends; Close takes it for writing
// before it closes the channel. So no producer sends on a closed channel, and the
// owner receives every item.
type channel struct {
	front

	// in carries the calls of producers.
	in chan item
	// places holds one value per used unit of Capacity; nil if the queue is unbounded.
	places chan struct{}
	// asks carries items of producers that found the queue full. The answer is
	// true if the item needs no capacity.
	asks chan ask
	// wants carries the requests of the consumer, next the answers. lens carries
	// requests for the length.
	wants chan struct{}
	next  chan popped
	lens  chan chan int
	// closing is closed by Close before it takes sending.
	closing chan struct{}
	// done is closed when the owner has ended.
	done chan struct{}

	once    sync.Once
	sending sync.RWMutex
	// closed is guarded by sending.
	closed bool

	// last guards backlog after the owner has ended. Before, the owner owns it.
	last    sync.Mutex
	backlog backlog
	buf     [chunk]item
}

type ask struct {
	item   item
	answer chan bool
}

// popped is an object for the consumer.
type popped struct {
	obj   any
	epoch uint32
}

// channelSize is enough that a producer seldom waits for the owner to be
// scheduled.
const channelSize = 4096

func newChannel(o Options) *channel {
	q := &channel{
		front:   front{base: newBase(o, "channel")},
		in:      make(chan item, channelSize),
		asks:    make(chan ask),
		wants:   make(chan struct{}),
		next:    make(chan popped, 1),
		lens:    make(chan chan int),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	q.source = q
	q.backlog = q.newBacklog()
	if o.Capacity > 0 {
		q.places = make(chan struct{}, o.Capacity)
	}
	go q.own()
	return q
}

// own runs the owner goroutine.
func (q *channel) own() {
	defer close(q.done)
	// wanted: the consumer waits for an answer.
	wanted := false
	for {
		if wanted && q.backlog.len() > 0 {
			q.next <- q.pop()
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

// catchUp folds everything that was in the channel when it was called. Only the
// owner calls it.
func (q *channel) catchUp() {
	// There is no other receiver.
	for n := len(q.in); n > 0; {
		i, open := <-q.in
		if !open {
			return
		}
		n -= q.fold(i)
	}
}

// fold folds an item and those behind it that fit the buffer, and returns how
// many.
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

// squeeze folds an item of a full queue, if it needs no room.
func (q *channel) squeeze(i *item) bool {
	if i.kind == put {
		key, hash, err := q.keys.Hashed(i.obj)
		if err != nil || q.backlog.waiting.Get(hash, key) == nil {
			return false
		}
	}
	before := q.backlog.placed
	q.backlog.putOne(i)
	q.vacate(before - q.backlog.placed)
	return true
}

// vacate frees n of the capacity.
func (q *channel) vacate(n int) {
	if q.places == nil {
		return
	}
	for range n {
		<-q.places
	}
}

// pop removes the next object.
func (q *channel) pop() popped {
	before := q.backlog.placed
	obj, epoch := q.backlog.take()
	q.vacate(before - q.backlog.placed)
	return popped{obj, epoch}
}

// Add implements [Queue].
func (q *channel) Add(obj any) error { return q.event(put, obj) }

// Update is Add.
func (q *channel) Update(obj any) error { return q.event(put, obj) }

// Delete removes an object's key from the queue.
func (q *channel) Delete(obj any) error { return q.event(remove, obj) }

func (q *channel) event(k kind, obj any) error {
	// The owner makes the key; an object without one is refused here.
	if err := q.keys.Check(obj); err != nil {
		return err
	}
	q.initial.Touch()
	return q.send(item{obj, k})
}

// Replace drops all queued keys and queues the list; of several objects with one
// key the last one. After an error the queue is unchanged. O(list + queued).
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

// send sends an item to the owner, and waits for room if it needs some.
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

// sendCrowded is for a full queue. It reports whether the owner has folded the item
// because it needs no room; otherwise it has waited for room.
func (q *channel) sendCrowded(i item) (in bool, err error) {
	// The owner runs while a producer holds sending.
	a := ask{i, make(chan bool)}
	q.asks <- a
	if <-a.answer {
		return true, nil
	}
	// The owner may have made room as it folded. A call that finds room does not
	// fail for its context.
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

// take implements [source].
func (q *channel) take() (obj any, epoch uint32, ok bool) {
	select {
	case q.wants <- struct{}{}:
		select {
		case h := <-q.next:
			return h.obj, h.epoch, true
		case <-q.done:
		}
	case <-q.done:
	}
	// The owner may have answered before it ended.
	select {
	case h := <-q.next:
		return h.obj, h.epoch, true
	default:
	}
	q.last.Lock()
	defer q.last.Unlock()
	if q.backlog.len() == 0 {
		return nil, 0, false
	}
	h := q.pop()
	return h.obj, h.epoch, true
}

// Close implements [cache.Queue]. Producers that wait for room return
// [cache.ErrFIFOClosed], as do later calls. The owner has ended when
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
