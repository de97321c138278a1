package merge

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// mux is what all variants of this module stand on, so that their figures
// differ by the merge alone: a channel for each source, which one goroutine
// drains into merge; the sources that have been seen; and the end of it all.
// Upstream is kubelet's mux (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/mux.go), whose goroutines end with the channel only.
type mux struct {
	merge    func(ctx context.Context, source string, update PodUpdate) error
	rejected func(source string, update PodUpdate, err error)

	// closing is closed when Close begins: whoever waits for a receiver stops.
	closing chan struct{}
	// calls is read-locked by each call that may send, and locked by Close to
	// wait for them. It is taken before every other lock.
	calls sync.RWMutex
	// closed is guarded by calls.
	closed bool
	// once makes Close's work happen once.
	once sync.Once
	// listeners are the goroutines of the sources.
	listeners sync.WaitGroup

	// mu guards what is below. It is taken last and held for no call.
	mu sync.Mutex
	// ended is true when no goroutine may begin any more.
	ended bool
	// channels that have a goroutine, by source.
	channels map[string]listener
	// registered are the sources that Channel was ever called for.
	registered sets.Set[string]
	// set are the sources that have sent a SET.
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

// leave gives up the channel of a source.
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

// begin is called by each call of Merge. The error says what is wrong with the
// call; else end has to be called when it ends.
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

// beginSync is begin for a call of Sync; false means that it has nothing to do.
func (m *mux) beginSync() bool {
	m.calls.RLock()
	if m.closed {
		m.calls.RUnlock()
		return false
	}
	return true
}

// end is called when a call ends.
func (m *mux) end() { m.calls.RUnlock() }

// sawSET notes that a source has sent a SET and reports whether that was its
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

// close is [Merger.Close] for a variant that calls it with what is its own to
// do: wake is called when closing is closed, to make those look at it who don't
// select on it, last when no call is left and none can come.
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
