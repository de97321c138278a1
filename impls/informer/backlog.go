package informer

import (
	"sync"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// backlog holds the notices that wait for a listener. Only the goroutine of the listener calls take.
type backlog interface {
	// PushFunc queues the notices that keep accepts, or returns [ring.ErrClosed].
	PushFunc(notices []notice, keep func(*notice) bool) error
	// take waits for notices and moves some to dst, which has room for takeSize. left is how many there
	// were, at least. n is 0 if the backlog is closed and empty.
	take(dst []notice) (n, left int)
	Len() int
	Close()
}

// fifo is the backlog that keeps all notices, in order.
type fifo struct{ *ring.Locked[notice] }

func (f fifo) take(dst []notice) (n, left int) {
	if f.Wait() != nil {
		return 0, 0
	}
	left = f.Ready()
	return f.TakeBatch(dst[:min(left, takeSize)]), left
}

// merging is the backlog of [Handlers.Coalesce]: at most two notices of each object, in the order in
// which the objects came.
type merging struct {
	keys    keys.Func
	covered func() // called for each addition of the initial list that is merged away

	mu      sync.Mutex // guards the fields below
	arrival sync.Cond  // where the listener waits
	queued  keys.FIFO[waiting]
	notices int
	closed  bool
}

func newMerging(covered func()) *merging {
	m := &merging{keys: keys.NewObjectFunc(cache.DeletionHandlingMetaNamespaceKeyFunc), covered: covered}
	m.arrival.L = &m.mu
	return m
}

// waiting is what waits of one object: an addition, an update or a deletion, or an addition and the deletion.
type waiting struct {
	notices [2]notice
	n       int
}

// merge adds a notice, as the table in the package comment says. ended says that the object is gone.
// covered says that an addition of the initial list will not be delivered any more.
func (w *waiting) merge(n notice) (ended, covered bool) {
	if w.n == 0 {
		w.notices[0], w.n = n, 1
		return n.kind == deleted, false
	}
	last := &w.notices[w.n-1]
	switch {
	case n.kind == deleted && last.kind == added:
		w.notices[1], w.n = n, 2
	case n.kind == deleted:
		*last = n
	default:
		covered = n.initial && (last.initial || last.kind != added)
		last.obj, last.initial = n.obj, last.initial || n.initial && last.kind == added
	}
	return n.kind == deleted, covered
}

func (m *merging) PushFunc(notices []notice, keep func(*notice) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ring.ErrClosed
	}
	for i := range notices {
		n := &notices[i]
		if !keep(n) {
			continue
		}
		// There is no error: the indexer has computed the key too.
		key, hash, _ := m.keys.Hashed(n.obj)
		e, _ := m.queued.Upsert(hash, key)
		m.notices -= e.Value.n
		ended, covered := e.Value.merge(*n)
		m.notices += e.Value.n
		if covered {
			m.covered()
		}
		if ended {
			m.queued.Retire(e)
		}
	}
	m.arrival.Signal()
	return nil
}

// take takes the notices of one object, so that those of the others can still be merged.
func (m *merging) take(dst []notice) (n, left int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.notices == 0 {
		if m.closed {
			return 0, 0
		}
		m.arrival.Wait()
	}
	e := m.queued.Front()
	n, left = copy(dst, e.Value.notices[:e.Value.n]), m.notices
	m.notices -= n
	m.queued.Remove(e)
	return n, left
}

func (m *merging) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notices
}

func (m *merging) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.arrival.Signal()
}

// Backlog is the backlog of a handler.
type Backlog struct {
	Handler string // the name of the registration
	// Waiting is the number of notifications that wait, without the one that the handler has. Without
	// [Handlers], up to 63 that it has just received count too.
	Waiting int
}

// BacklogReporter is implemented by the informers of this package, for a metric of the backlogs.
type BacklogReporter interface {
	// Backlogs returns the backlog of each handler, in the order of registration. It does not wait for
	// handlers.
	Backlogs() []Backlog
}

var _ BacklogReporter = (*informer)(nil)

func (s *informer) Backlogs() []Backlog { return s.distributor.backlogs() }
