package merge

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// mux is shared by all variants of this module, so that they differ only in the
// merge: one channel per source, drained by one goroutine into merge; the seen
// sources; and Close. Upstream is kubelet's mux (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/mux.go), whose goroutines end only with the channel.
type mux struct {
	merge    func(ctx context.Context, source string, update PodUpdate) error
	rejected func(source string, update PodUpdate, err error)

	// closing is closed when Close begins, and ends all waits for a receiver.
	closing chan struct{}
	// calls is read-locked by each call that may send. Close locks it to wait for
	// them. It is taken before every other lock.
	calls sync.RWMutex
	// closed is guarded by calls.
	closed bool
	// once runs the work of Close.
	once sync.Once
	// listeners counts the goroutines of the sources.
	listeners sync.WaitGroup
	// mu guards the fields below. It is taken last, and not held during a call.
	mu sync.Mutex
	// ended is true when no further goroutine may start.
	ended bool
	// channels holds the channels with a running goroutine, by source.
	channels map[string]listener
	// registered holds the sources of all Channel calls.
	registered sets.Set[string]
	// set holds the sources that have sent a SET.
	set sets.Set[string]
}

// listener is the goroutine of a source.
type listener struct {
	in     chan PodUpdate
	cancel context.CancelFunc
}

func (m *mux) init(opts Options, merge func(context.Context, string, PodUpdate) error) {
	m.merge = merge
	m.rejected = opts.Rejected
	m.closing = make(chan struct{})
	m.channels = make(map[string]listener)
	m.registered = sets.New[string]()
	m.set = sets.New[string]()
}

// Channel is [Merger.Channel].
func (m *mux) Channel(ctx context.Context, source string) (chan<- PodUpdate, error) {
	if source == "" {
		return nil, fmt.Errorf("channel: %w", ErrSource)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, fmt.Errorf("channel of %s: %w", source, ErrClosed)
	}
	m.registered.Insert(source)
	if l, ok := m.channels[source]; ok {
		return l.in, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	l := listener{in: make(chan PodUpdate), cancel: cancel}
	m.channels[source] = l
	m.listeners.Go(func() {
		defer m.leave(source, cancel)
		m.listen(ctx, source, l.in)
	})
	return l.in, nil
}

// leave removes the channel of a source.
func (m *mux) leave(source string, cancel context.CancelFunc) {
	cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.channels, source)
}

func (m *mux) listen(ctx context.Context, source string, in <-chan PodUpdate) {
	for {
		select {
		case <-ctx.Done():
			return
		case update, open := <-in:
			if !open {
				return
			}
			err := m.merge(ctx, source, update)
			if err != nil && ctx.Err() == nil && m.rejected != nil {
				m.rejected(source, update, err)
			}
		}
	}
}

// begin starts a call of Merge. After an error the call must not continue;
// otherwise it must call end.
func (m *mux) begin(source string, update *PodUpdate) error {
	if source == "" {
		return fmt.Errorf("merge: %w", ErrSource)
	}
	if err := update.Check(); err != nil {
		return fmt.Errorf("merge from %s: %w", source, err)
	}
	m.calls.RLock()
	if m.closed {
		m.calls.RUnlock()
		return fmt.Errorf("merge from %s: %w", source, ErrClosed)
	}
	return nil
}

// beginSync is begin for Sync; false means that the merger is closed.
func (m *mux) beginSync() bool {
	m.calls.RLock()
	if m.closed {
		m.calls.RUnlock()
		return false
	}
	return true
}

// end ends a call.
func (m *mux) end() { m.calls.RUnlock() }

// sawSET records that a source has sent a SET and reports whether it was the
// first.
func (m *mux) sawSET(source string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.set.Has(source)
	m.set.Insert(source)
	return first
}

// SeenAllSources is [Merger.SeenAllSources].
func (m *mux) SeenAllSources(seen sets.Set[string]) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return seen.IsSuperset(m.registered) && m.set.IsSuperset(m.registered)
}

// close is [Merger.Close] with two hooks of the variant. wake runs after closing
// is closed, for waiters that do not select on it. last runs when all calls have
// returned and no further call can start.
func (m *mux) close(wake, last func()) {
	m.once.Do(func() {
		close(m.closing)
		m.mu.Lock()
		m.ended = true
		for _, l := range m.channels {
			l.cancel()
		}
		m.mu.Unlock()
		wake()
		m.calls.Lock()
		m.closed = true
		m.calls.Unlock()
		last()
		m.listeners.Wait()
	})
}
