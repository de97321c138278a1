package queue

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// line carries what producers do to whoever owns the backlog, in one order.
type line = ring.Queue[item]

// lined is a queue in two parts: a line, to which producers push what they do,
// and a backlog, which belongs to the consumer. A call of a producer costs one
// push; keys are made and events folded by the consumer, many at a time.
//
// Delete and Replace go through the line as Add does, so that they take effect
// at their place in the order. Pop folds in all that was in the line when it
// began, so that what it hands over is the newest object of its key.
//
// The line is short, as what waits would otherwise grow with the number of
// events behind a slow handler rather than with that of keys. A producer that
// finds it full folds half of it in, and leaves the other half to the consumer.
//
// # Capacity
//
// An item takes a place in the line, and a key that waits in the backlog, save
// one of a list, takes one of the capacity. Places in the line are given back
// when they are not needed for the latter: the capacity may be much larger than
// the line.
type lined struct {
	keys    keys.Func
	initial *account
	ctx     context.Context
	line    line
	closed  atomic.Bool

	size, slack, step int

	consumer sync.Mutex

	owner sync.Mutex

	away bool

	back    sync.Cond
	backlog backlog

	held int
	buf  [chunk]item
}

const (
	// chunk is how many items are moved from the line to the backlog at a time:
	// they fit a first-level cache.
	chunk = 256
	// lineSize is the length of the line. To fold half of it in takes a producer
	// a quarter of a millisecond, seldom enough not to show in the latency of one
	// call in a thousand.
	lineSize = 8192
)

// newLined returns a queue with the line that newLine makes.
func newLined(o Options, name string, newLine func(size int) (line, error)) (Queue, error) {
	o, err := o.complete(limits{capacity: true})
	if err != nil {
		return nil, err
	}
	size := min(cmp.Or(o.Capacity, lineSize), lineSize)
	l, err := newLine(size)
	if err != nil {
		return nil, err
	}
	keys, initial := keys.NewFunc(o.KeyFunction), newAccount(name)
	q := &lined{
		keys: keys, initial: initial, ctx: o.Context, line: l,
		size: size, slack: o.Capacity - size, step: 1,
		backlog: backlog{keys: keys, initial: initial},
	}
	q.back.L = &q.owner
	if o.Capacity == 0 {
		q.slack, q.step = math.MaxInt, size/2
	}
	return q, nil
}

// Add implements [Queue].
func (q *lined) Add(obj any) error { return q.event(put, obj) }

// Update is Add.
func (q *lined) Update(obj any) error { return q.event(put, obj) }

// Delete takes an object's key out of the queue.
func (q *lined) Delete(obj any) error { return q.event(remove, obj) }

func (q *lined) event(k kind, obj any) error {
	// The key is the consumer's to make; an object without one is refused here.
	if err := q.keys.Check(obj); err != nil {
		return err
	}
	q.initial.Touch()
	return q.push(item{obj, k})
}

// Replace drops what waits and queues the list; of several objects with one key
// the last one. After an error the queue is as it was. O(list + waiting).
func (q *lined) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	r.first = q.initial.Claim()
	if err := q.push(item{r, replace}); err != nil {
		return err
	}
	q.owner.Lock()
	defer q.owner.Unlock()
	q.shorten(0)
	return nil
}

// Resync does nothing: what is held waits already.
func (q *lined) Resync() error { return nil }

// push appends to the line.
func (q *lined) push(i item) error {
	err := q.line.TryPush(i)
	if err == nil {
		return nil
	}
	if errors.Is(err, ring.ErrFull) {
		err = q.crowd(&i)
	}
	if errors.Is(err, ring.ErrFull) {
		err = q.line.Push(q.ctx, i)
	}
	if errors.Is(err, ring.ErrClosed) {
		return cache.ErrFIFOClosed
	}
	return err
}

// crowd is push for a line that is full. It makes room by folding; if that is not
// enough, it takes in what needs no room. Otherwise it returns [ring.ErrFull].
func (q *lined) crowd(i *item) error {
	q.owner.Lock()
	defer q.owner.Unlock()
	q.shorten(q.size / 2)
	err := q.line.TryPush(*i)
	if !errors.Is(err, ring.ErrFull) {
		return err
	}
	q.shorten(0)
	err = q.line.TryPush(*i)
	// If the line is empty, what this producer has pushed before is in the
	// backlog. It isn't if others are about to fill their places.
	if !errors.Is(err, ring.ErrFull) || q.line.Len() > 0 || q.away {
		return err
	}
	if i.kind == put {
		key, hash, err := hashed(q.keys, i.obj)
		if err != nil || q.backlog.waiting.find(hash, key) == nil {
			return ring.ErrFull
		}
	}
	q.backlog.putOne(i)
	q.release()
	return nil
}

// shorten folds in what is in the line, but for some that are left to the
// consumer; if the consumer waits and is about to wake up, after it has done so.
// The caller holds owner, which may be released meanwhile. It returns how many it
// has folded in.
func (q *lined) shorten(leave int) int {
	for q.away && q.line.Len() > 0 {
		q.back.Wait()
	}
	if q.away {
		return 0
	}
	return q.fold(q.line.Len() - leave)
}

// fold takes up to n items of the line into the backlog, and returns how many
// there were. The caller holds owner.
func (q *lined) fold(n int) int {
	for left := n; left > 0; {
		most := min(left, chunk)
		got := q.line.TakeBatch(q.buf[:most])
		q.backlog.put(q.buf[:got])
		clear(q.buf[:got])
		q.held += got
		q.release()
		left -= got
		if got < most {
			return n - left
		}
	}
	return n
}

// release gives back the places in the line that aren't needed for keys that
// wait. The caller holds owner.
func (q *lined) release() {
	if n := q.held - max(0, q.backlog.placed-q.slack); n >= q.step {
		q.line.Release(n)
		q.held -= n
	}
}

// catchUp folds in all that was in the line when it was called. The caller is
// the consumer and holds owner.
func (q *lined) catchUp() {
	for n := q.line.Len(); n > 0; {
		if n -= q.fold(n); n > 0 {
			// A producer has claimed its place and is about to fill it. Others
			// behind it may have returned by now.
			_ = q.wait()
		}
	}
}

// wait waits for the line. The caller is the consumer and holds owner, which is
// released meanwhile.
func (q *lined) wait() error {
	q.away = true
	q.owner.Unlock()
	// Without an end of the context, the only error is that it's closed.
	err := q.line.Wait(context.Background())
	q.owner.Lock()
	q.away = false
	q.back.Broadcast()
	return err
}

// take returns what is handed over next, or false when the queue is closed and
// drained.
func (q *lined) take() (obj any, epoch uint32, ok bool) {
	q.owner.Lock()
	defer q.owner.Unlock()
	for {
		q.catchUp()
		if q.backlog.len() > 0 {
			obj, epoch = q.backlog.take()
			q.release()
			return obj, epoch, true
		}
		// The backlog may have got something from who found the line full.
		if q.wait() != nil && q.backlog.len() == 0 {
			return nil, 0, false
		}
	}
}

// Pop implements [cache.Queue].
func (q *lined) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	obj, epoch, ok := q.take()
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	if epoch != 0 {
		// HasSynced may turn true only when process has returned.
		defer q.initial.left(epoch)
	}
	return obj, process(obj, !q.initial.HasSynced())
}

// Close implements [cache.Queue]. Producers that wait for room return
// [cache.ErrFIFOClosed], as do all that come later.
func (q *lined) Close() {
	q.closed.Store(true)
	q.line.Close()
}

// IsClosed reports whether Close was called.
func (q *lined) IsClosed() bool { return q.closed.Load() }

// Len implements [Queue]. It folds in what producers have brought; O(1) if that
// is counted as theirs.
func (q *lined) Len() int {
	q.owner.Lock()
	defer q.owner.Unlock()
	for n := q.line.Len(); n > 0; n = min(n, q.line.Len()) {
		got := q.shorten(0)
		if n -= got; n > 0 && got == 0 {
			// A producer has claimed its place and is about to fill it. Others behind
			// it may have returned by now. Only the consumer may sleep at the line.
			q.owner.Unlock()
			runtime.Gosched()
			q.owner.Lock()
		}
	}
	return q.backlog.len()
}

// HasSynced implements [cache.Queue].
func (q *lined) HasSynced() bool { return q.initial.HasSynced() }

// HasSyncedChecker implements [cache.Queue].
func (q *lined) HasSyncedChecker() cache.DoneChecker { return q.initial }
