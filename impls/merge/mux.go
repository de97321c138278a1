package merge

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// mux has what all variants of this module share, so that they differ only in the merge: one
// channel per source, drained by one goroutine; the check of calls; the seen sources; the events of
// duplicates; and Close. Upstream is kubelet's mux (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/mux.go), whose goroutines end only with the channel.
type mux struct {
	Options
	// run executes a command and returns the dropped duplicates. Without an error, the
	// notifications of the command have been sent.
	run     func(context.Context, command) (duplicates []*v1.Pod, err error)
	stop    func() // ends those waits of the variant that do not select on closing
	updates chan PodUpdate
	// mutations finds received pods that are changed later; nil unless the environment asks for it.
	mutations cache.MutationDetector

	closing chan struct{} // closed when Close begins; ends all waits for a receiver
	// calls is read-locked by each call that may send. Close locks it to wait for
	// them. It is taken before every other lock.
	calls     sync.RWMutex
	closed    bool           // guarded by calls
	once      sync.Once      // runs the work of Close
	listeners sync.WaitGroup // counts the goroutines of the sources
	// mu guards the fields below. It is taken last, and not held during a call.
	mu         sync.Mutex
	ended      bool                // no further goroutine may start
	channels   map[string]listener // with a running goroutine, by source
	registered sets.Set[string]    // the sources of all Channel calls
	set        sets.Set[string]    // the sources that have sent a SET
}

// command is a call of Merge, or of Sync if sync is true.
type command struct {
	sync   bool
	source string
	update PodUpdate
}

// listener is the goroutine of a source.
type listener struct {
	in     chan PodUpdate
	cancel context.CancelFunc
}

// init takes complete options. The variant sets run, and stop if it needs it.
func (m *mux) init(opts Options) {
	m.Options = opts
	m.stop = func() {}
	m.updates = make(chan PodUpdate, opts.Capacity)
	m.closing = make(chan struct{})
	m.channels = make(map[string]listener)
	m.registered = sets.New[string]()
	m.set = sets.New[string]()
	if on, _ := strconv.ParseBool(os.Getenv("KUBE_CACHE_MUTATION_DETECTOR")); on {
		m.mutations = cache.NewCacheMutationDetector("merge")
		m.listeners.Go(func() { m.mutations.Run(m.closing) })
	}
}

func (m *mux) Updates() <-chan PodUpdate { return m.updates }

func (m *mux) Merge(ctx context.Context, source string, update PodUpdate) error {
	if source == "" {
		return fmt.Errorf("merge: %w", ErrSource)
	}
	if err := update.Check(); err != nil {
		return fmt.Errorf("merge from %s: %w", source, err)
	}
	if m.mutations != nil {
		for _, pod := range update.Pods {
			m.mutations.AddObject(pod)
		}
	}
	return m.call(ctx, command{source: source, update: update})
}

func (m *mux) Sync() {
	// The only error is that of a closed merger.
	_ = m.call(context.Background(), command{sync: true})
}

func (m *mux) call(ctx context.Context, c command) error {
	m.calls.RLock()
	defer m.calls.RUnlock()
	if m.closed {
		return fmt.Errorf("merge from %s: %w", c.source, ErrClosed)
	}
	duplicates, err := m.run(ctx, c)
	// The recorder is the caller's code, and no lock of the variant is held here.
	if m.Recorder != nil {
		for _, pod := range duplicates {
			desc := pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
			m.Recorder.Eventf(pod, v1.EventTypeWarning, duplicateReason, duplicateFormat, desc, c.source, pod.Name)
		}
	}
	return err
}

// send sends an update. The error is that of ctx, or says that the merger is closed.
func (m *mux) send(ctx context.Context, update PodUpdate) error {
	select {
	case m.updates <- update:
		return nil
	default:
	}
	select {
	case m.updates <- update:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.closing:
		return errClosing
	}
}

// errClosing ends a call of Merge that waits while the merger is closed.
var errClosing = fmt.Errorf("merge: %w", ErrClosed)

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
		m.listen(ctx, source, l.in)
		cancel()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.channels, source)
	})
	return l.in, nil
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
			err := m.Merge(ctx, source, update)
			if err != nil && ctx.Err() == nil && m.Rejected != nil {
				m.Rejected(source, update, err)
			}
		}
	}
}

// sawSET records that a source has sent a SET and reports whether it was the first.
func (m *mux) sawSET(source string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.set.Has(source)
	m.set.Insert(source)
	return first
}

func (m *mux) SeenAllSources(seen sets.Set[string]) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return seen.IsSuperset(m.registered) && m.set.IsSuperset(m.registered)
}

func (m *mux) Close() {
	m.once.Do(func() {
		close(m.closing)
		m.mu.Lock()
		m.ended = true
		for _, l := range m.channels {
			l.cancel()
		}
		m.mu.Unlock()
		m.stop()
		m.calls.Lock()
		m.closed = true
		m.calls.Unlock()
		close(m.updates)
		m.listeners.Wait()
	})
}
