package merge

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
)

// mux gives each source a channel of its own, which one goroutine drains into
// merge. Both variants of ours stand on it, so that their figures differ by
// the merge alone. Upstream is kubelet's mux (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/mux.go), whose goroutines end with the channel only.
type mux struct {
	merge    func(ctx context.Context, source string, update PodUpdate) error
	rejected func(source string, update PodUpdate, err error)

	mu sync.Mutex
	// channels that have a goroutine, by source; guarded by mu.
	channels map[string]chan PodUpdate
	// sources that Channel was ever called for; guarded by mu.
	sources sets.Set[string]
}

func (m *mux) init(opts Options, merge func(context.Context, string, PodUpdate) error) {
	m.merge = merge
	m.rejected = opts.Rejected
	m.channels = make(map[string]chan PodUpdate)
	m.sources = sets.New[string]()
}

// Channel is [Merger.Channel].
func (m *mux) Channel(ctx context.Context, source string) (chan<- PodUpdate, error) {
	if source == "" {
		return nil, fmt.Errorf("channel: %w", ErrSource)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources.Insert(source)
	if ch, ok := m.channels[source]; ok {
		return ch, nil
	}
	ch := make(chan PodUpdate)
	m.channels[source] = ch
	go m.listen(ctx, source, ch)
	return ch, nil
}

func (m *mux) listen(ctx context.Context, source string, ch <-chan PodUpdate) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.channels, source)
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case update, open := <-ch:
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

// registered returns the sources that Channel was ever called for.
func (m *mux) registered() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sources.UnsortedList()
}
