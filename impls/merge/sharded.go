package merge

import (
	"context"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
)

func shardedVariant() Variant {
	return Variant{
		Name:       "sharded",
		Summary:    "a lock and a state for each source, big fresh lists compared on several cores, one outbox",
		Guarantees: unlockedGuarantees(),
		New:        newSharded,
	}
}

// sharded merges each source under its own lock (kubernetes#15195), so that a
// large list of one source does not block the others. A large list whose pods
// must all be compared is compared on several cores. The sources share the
// outbox, which is locked for each post.
//
// # Order
//
// A call posts its notifications before it unlocks its source. So the
// notifications of one source, and hence of one pod, are sent in the order of the
// updates. Between sources the order agrees with real time: the notifications of
// a call precede those of a call that began after it had returned.
//
// A snapshot must be consistent. It locks all sources in the order of their
// appearance, and posts before it unlocks any of them. It includes exactly the
// updates posted before it. In the snapshot modes, every update does the same.
type sharded struct {
	mux
	mode     Mode
	recorder EventRecorder
	terms    terms
	// out is locked after the shards.
	out outbox

	// shards is in order of appearance. The slice is immutable.
	shards atomic.Pointer[[]*shard]
	// adding is held to add a shard. A caller that locks all shards takes it
	// first, so that no shard is added meanwhile.
	adding sync.Mutex
}

// shard is a source with its lock.
type shard struct {
	// mu guards source, except its name, which is constant.
	mu sync.Mutex
	*source
}

func newSharded(opts Options) (Merger, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	m := &sharded{
		mode:     opts.Mode,
		recorder: opts.Recorder,
		terms:    opts.terms(),
	}
	m.shards.Store(&[]*shard{})
	m.mux.init(opts, m.Merge)
	m.out.init(opts, m.closing)
	return m, nil
}

// Updates is [Merger.Updates].
func (m *sharded) Updates() <-chan PodUpdate { return m.out.updates }

// Merge is [Merger.Merge].
func (m *sharded) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := m.begin(source, &update); err != nil {
		return err
	}
	defer m.end()
	var duplicates []*v1.Pod
	if s := m.shard(source); m.mode == Incremental {
		s.mu.Lock()
		duplicates = m.apply(s, update)
		m.out.mu.Lock()
		m.out.postDelta(m.mode, s.source, nil)
		s.mu.Unlock()
	} else {
		all := m.lockAll()
		duplicates = m.apply(s, update)
		m.out.mu.Lock()
		m.out.postDelta(m.mode, s.source, all)
		m.unlockAll()
	}
	if len(duplicates) > 0 {
		// The recorder is the caller's code and must not run under the lock.
		m.out.mu.Unlock()
		recordDuplicates(m.recorder, source, duplicates)
		m.out.mu.Lock()
	}
	return m.out.flush(ctx)
}

// apply merges an update into its source, which is locked.
func (m *sharded) apply(s *shard, update PodUpdate) (duplicates []*v1.Pod) {
	s.judge(update)
	duplicates = s.source.apply(update)
	s.forgetVerdicts()
	if s.delta.firstSet {
		m.sawSET(s.name)
	}
	return duplicates
}

// shard returns the shard of a source, and creates it if needed. With three
// sources, a loop is faster than a map.
func (m *sharded) shard(name string) *shard {
	if s := find(*m.shards.Load(), name); s != nil {
		return s
	}
	m.adding.Lock()
	defer m.adding.Unlock()
	have := *m.shards.Load()
	s := find(have, name)
	if s == nil {
		s = &shard{source: newSource(name, m.terms)}
		more := append(have[:len(have):len(have)], s)
		m.shards.Store(&more)
	}
	return s
}

func find(shards []*shard, name string) *shard {
	for _, s := range shards {
		if s.name == name {
			return s
		}
	}
	return nil
}

// lockAll locks all sources, prevents new ones, and returns them.
func (m *sharded) lockAll() []*source {
	m.adding.Lock()
	shards := *m.shards.Load()
	all := make([]*source, len(shards))
	for i, s := range shards {
		s.mu.Lock()
		all[i] = s.source
	}
	return all
}

func (m *sharded) unlockAll() {
	for _, s := range *m.shards.Load() {
		s.mu.Unlock()
	}
	m.adding.Unlock()
}

// Sync is [Merger.Sync].
func (m *sharded) Sync() {
	if !m.beginSync() {
		return
	}
	defer m.end()
	all := m.lockAll()
	m.out.mu.Lock()
	m.out.postAll(AllSource, all)
	m.unlockAll()
	// The only error is that of a closed merger.
	_ = m.out.flush(context.Background())
}

// Close is [Merger.Close].
func (m *sharded) Close() {
	m.close(m.out.wake, func() { close(m.out.updates) })
}
