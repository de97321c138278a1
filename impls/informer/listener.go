package informer

import (
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/cache/synctrack"
	"k8s.io/klog/v2"

	"watchlab/impls/internal/ring"
)

// notice is one notification of a handler.
type notice struct {
	kind    kind
	initial bool // an addition of the initial list
	resync  bool // an update without a change, for handlers whose resync is due
	old     any  // the previous object of an update
	obj     any  // the added, updated or deleted object
}

type kind uint8

const (
	added kind = iota
	updated
	deleted
)

// listener is one handler and its queue of notices. It is also the registration
// that AddEventHandler returns.
type listener struct {
	handler           cache.ResourceEventHandler
	logger            klog.Logger
	tracker           *synctrack.SingleFileTracker
	pending           backlog
	accept            func(*notice) bool // see admits; a method value, as each evaluation of one allocates
	stopped, finished chan struct{}      // closed by stop, and after the last call of the handler
	held              atomic.Int64       // the notices in taken behind the one that the handler has

	// resyncPeriod is 0 for no resyncs. nextResync is the earliest time of the next one. resyncing
	// is true if the handler receives updates without a change; it is true until the first resync
	// check. The distributor's lock guards all three once the listener is added.
	resyncPeriod time.Duration
	nextResync   time.Time
	resyncing    bool

	// The goroutine of the listener owns the fields below.
	taken [takeSize]notice // the notices that it took last
	left  int              // how many notices wait, at least, and the one that the handler has
}

const takeSize = 64 // how many notices are taken at a time, at most

func newListener(logger klog.Logger, handler cache.ResourceEventHandler, name string, h Handlers) *listener {
	l := &listener{
		handler:   handler,
		logger:    logger,
		tracker:   synctrack.NewSingleFileTracker(name),
		pending:   fifo{ring.NewLocked[notice](0)},
		stopped:   make(chan struct{}),
		finished:  make(chan struct{}),
		resyncing: true,
	}
	l.accept = l.admits
	if h.Coalesce {
		l.pending = newMerging(l.tracker.Finished)
	}
	return l
}

func (l *listener) HasSynced() bool                     { return l.tracker.HasSynced() }
func (l *listener) HasSyncedChecker() cache.DoneChecker { return l.tracker }

// ShutdownChan returns a channel that is closed after the last call of the
// handler. [cache.ShutDownEventHandler] uses it.
func (l *listener) ShutdownChan() <-chan struct{} { return l.finished }

// addInitial queues additions of all objects of a list. The listener is not added yet.
func (l *listener) addInitial(objs []any) {
	notices := make([]notice, len(objs))
	for i, obj := range objs {
		notices[i] = notice{kind: added, initial: true, obj: obj}
	}
	l.add(notices)
}

// add queues notices. It drops them if the handler has ended its goroutine (runtime.Goexit).
func (l *listener) add(notices []notice) { _ = l.pending.PushFunc(notices, l.accept) }

// admits reports whether the handler gets a notice: one of a resync only if resyncing.
func (l *listener) admits(n *notice) bool {
	if n.initial {
		// Start must precede the notification, because Finished follows it.
		l.tracker.Start()
	}
	return l.resyncing || !n.resync
}

// waiting returns the number of notices that wait, without the one that the handler has.
func (l *listener) waiting() int { return l.pending.Len() + int(l.held.Load()) }

// stop ends run, at the latest when the handler has returned. Pending notices are
// dropped. It is called once, after the listener has been removed.
func (l *listener) stop() {
	close(l.stopped)
	l.pending.Close()
}

// run calls the handler until the listener is stopped.
func (l *listener) run() {
	defer close(l.finished)
	defer l.drop()
	for {
		var n int
		if n, l.left = l.pending.take(l.taken[:]); n == 0 {
			return
		}
		l.held.Store(int64(n - 1))
		for i := range n {
			select {
			case <-l.stopped:
				return
			default:
			}
			if !l.call(&l.taken[i]) && !l.rest() {
				return
			}
			l.taken[i] = notice{}
			l.left--
		}
		l.held.Store(0)
	}
}

// drop drops pending notices, because the caller may keep the registration.
func (l *listener) drop() {
	l.pending.Close()
	for n := 1; n > 0; {
		n, _ = l.pending.take(l.taken[:])
	}
	clear(l.taken[:])
	l.held.Store(0)
}

// Where more than slowBacklog notices wait, calls of the handler that take
// longer than slowCall are logged (client-go v0.37, shared_informer.go).
const (
	slowBacklog = 1024
	slowCall    = 100 * time.Millisecond
)

// call calls the handler. It returns false if the handler panicked.
func (l *listener) call(n *notice) (ok bool) {
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
		l.logger.Info("An event handler is slow and has a backlog", "handler", l.tracker.Name(), "took", took, "pendingNotifications", l.left-1)
	}
}

const restTime = time.Second // after a panic (client-go v0.37, processorListener.run)

// rest waits after a panic that did not end the process. It returns false when the listener is
// stopped.
func (l *listener) rest() bool {
	select {
	case <-time.After(restTime):
		return true
	case <-l.stopped:
		return false
	}
}
