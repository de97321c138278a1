package informer

import (
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/cache/synctrack"
	"k8s.io/klog/v2"
)

// notice is one notification of a handler.
type notice struct {
	kind kind
	// initial marks an addition of the initial list.
	initial bool
	// resync marks an update without a change, for handlers whose resync is due.
	resync bool
	// old is the previous object of an update.
	old any
	// obj is the added, updated or deleted object.
	obj any
}

type kind uint8

const (
	added kind = iota
	updated
	deleted
)

// listener is one handler and its buffer of notices: a chain of fixed-size
// blocks. It is also the registration that AddEventHandler returns.
//
// The distributor appends to the last block under the lock. The listener's
// goroutine reads the end of the chain under the lock and processes the notices
// before it without the lock. No block is copied, so the lock is held for one
// append at any length.
type listener struct {
	handler cache.ResourceEventHandler
	name    string
	logger  klog.Logger
	tracker *synctrack.SingleFileTracker
	// stopped is closed by stop. finished is closed after the last call of the
	// handler.
	stopped, finished chan struct{}

	// resyncPeriod is 0 for no resyncs. nextResync is the earliest time of the
	// next one. resyncing is true if the handler receives updates without a
	// change; it is true until the first resync check. The distributor's lock
	// guards all three once the listener is added.
	resyncPeriod time.Duration
	nextResync   time.Time
	resyncing    bool

	// The goroutine of the listener owns the next three fields. The next notice
	// is head.notices[pos]; left is the number of notices that may be delivered
	// without the lock.
	head *block
	pos  int
	left uint64

	// lock guards the fields below.
	lock latch
	// tail is the last block; its first free slot is tail.notices[tail.n]. It is
	// nil after the goroutine has ended.
	tail *block
	// waiting counts the notices that were added since the goroutine last took
	// the lock.
	waiting uint64
	// spare is a list of drained blocks for reuse; spares is its length.
	spare  *block
	spares int
}

const (
	// blockSize is the number of notices per block, which has 5 kB.
	blockSize = 128
	// maxSpares bounds the blocks that are kept after a burst: two batches of a
	// queue.
	maxSpares = 16
)

type block struct {
	notices [blockSize]notice
	// n is the number of written notices; the lock of the listener guards it.
	n int
	// next is written once, under the lock, when the block is full.
	next *block
}

func newListener(logger klog.Logger, handler cache.ResourceEventHandler, upstream string) *listener {
	b := new(block)
	name := handlerName(handler)
	return &listener{
		handler:   handler,
		name:      name,
		logger:    logger,
		tracker:   synctrack.NewSingleFileTracker(upstream + " + event handler " + name),
		stopped:   make(chan struct{}),
		finished:  make(chan struct{}),
		resyncing: true,
		head:      b,
		tail:      b,
	}
}

// HasSynced implements [cache.ResourceEventHandlerRegistration].
func (l *listener) HasSynced() bool { return l.tracker.HasSynced() }

// HasSyncedChecker implements [cache.ResourceEventHandlerRegistration].
func (l *listener) HasSyncedChecker() cache.DoneChecker { return l.tracker }

// ShutdownChan returns a channel that is closed after the last call of the
// handler. [cache.ShutDownEventHandler] uses it.
func (l *listener) ShutdownChan() <-chan struct{} { return l.finished }

// scheduleResync sets the resync period for an informer that checks every check;
// 0 means never. The listener is not added yet. The period is at least check,
// unless it is negative, so it stays valid when another listener shortens check.
func (l *listener) scheduleResync(period, check time.Duration, now time.Time) {
	switch {
	case period == 0:
	case check == 0:
		l.logger.Info("Warning: the informer does no resyncs; the resync period of a handler is ignored", "resyncPeriod", period)
		period = 0
	case period < check:
		l.logger.Info("Warning: the resync period of a handler is lengthened to that of its informer", "resyncPeriod", period, "informer", check)
		period = check
	}
	l.resyncPeriod = period
	l.nextResync = now.Add(period)
}

// addInitial queues additions of all objects of a list. The listener is not added
// yet.
func (l *listener) addInitial(objs []any) {
	l.lock.Lock()
	defer l.lock.UnlockAndWake()
	for _, obj := range objs {
		l.append(&notice{kind: added, initial: true, obj: obj})
	}
}

// add queues notices; those of a resync only if resyncing. It never waits for the
// handler.
func (l *listener) add(notices []notice, resyncing bool) {
	l.lock.Lock()
	if l.tail == nil {
		// The handler has ended its goroutine (runtime.Goexit).
		l.lock.Unlock()
		return
	}
	before := l.waiting
	for i := range notices {
		if n := &notices[i]; resyncing || !n.resync {
			l.append(n)
		}
	}
	if l.waiting == before {
		l.lock.Unlock()
		return
	}
	l.lock.UnlockAndWake()
}

// append queues one notice. The caller holds the lock.
func (l *listener) append(n *notice) {
	if n.initial {
		// Start must precede the notification, because Finished follows it.
		l.tracker.Start()
	}
	t := l.tail
	if t.n == blockSize {
		t = l.grow()
	}
	t.notices[t.n] = *n
	t.n++
	l.waiting++
}

func (l *listener) grow() *block {
	b := l.spare
	if b == nil {
		b = new(block)
	} else {
		l.spare, b.next = b.next, nil
		l.spares--
	}
	l.tail.next = b
	l.tail = b
	return b
}

// recycle keeps a drained block for reuse. It locks once per block.
func (l *listener) recycle(b *block) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.spares < maxSpares {
		b.n, b.next = 0, l.spare
		l.spare = b
		l.spares++
	}
}

// stop ends run, at the latest when the handler has returned. Pending notices are
// dropped. It is called once, after the listener has been removed.
func (l *listener) stop() {
	close(l.stopped)
	l.lock.Close()
}

// run calls the handler until the listener is stopped.
func (l *listener) run() {
	defer close(l.finished)
	defer l.forget()
	for l.await() {
		for ; l.left > 0; l.left-- {
			select {
			case <-l.stopped:
				return
			default:
			}
			if !l.tell(l.next()) && !l.rest() {
				return
			}
		}
	}
}

// await waits for notices. It returns false when the listener is stopped.
func (l *listener) await() bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	for l.waiting == 0 {
		if l.lock.closed {
			return false
		}
		l.lock.Wait()
	}
	l.left, l.waiting = l.waiting, 0
	return true
}

// next removes the oldest notice. There must be one.
func (l *listener) next() notice {
	if l.pos == blockSize {
		// await returned after the next block was linked.
		b := l.head
		l.head, l.pos = b.next, 0
		l.recycle(b)
	}
	n := &l.head.notices[l.pos]
	out := *n
	*n = notice{}
	l.pos++
	return out
}

// Where more than slowBacklog notices wait, calls of the handler that take
// longer than slowCall are logged (client-go v0.37, shared_informer.go).
const (
	slowBacklog = 1024
	slowCall    = 100 * time.Millisecond
)

// tell calls the handler. It returns false if the handler panicked.
func (l *listener) tell(n notice) (ok bool) {
	defer utilruntime.HandleCrashWithLogger(l.logger)
	if l.left > slowBacklog {
		defer l.logIfSlow(time.Now())
	}
	switch n.kind {
	case added:
		l.handler.OnAdd(n.obj, n.initial)
		if n.initial {
			l.tracker.Finished()
		}
	case updated:
		l.handler.OnUpdate(n.old, n.obj)
	case deleted:
		l.handler.OnDelete(n.obj)
	}
	return true
}

func (l *listener) logIfSlow(start time.Time) {
	if took := time.Since(start); took > slowCall {
		l.logger.Info("An event handler is slow and has a backlog", "handler", l.name, "took", took, "pendingNotifications", l.left-1)
	}
}

// restTime is the pause of a handler after a panic that did not end the process
// (client-go v0.37, shared_informer.go, processorListener.run).
const restTime = time.Second

// rest waits for restTime after a panic. It returns false when the listener is
// stopped.
func (l *listener) rest() bool {
	t := time.NewTimer(restTime)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.stopped:
		return false
	}
}

// forget drops pending notices, because the caller may keep the registration.
func (l *listener) forget() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.head, l.tail, l.spare = nil, nil, nil
}
