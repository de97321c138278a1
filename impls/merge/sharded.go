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

// sharded merges each source under a lock of its own (kubernetes#15195): a big
// list of one source doesn't hold up the others. A big list in which every pod
// has to be compared is compared on several cores. What sources share is the
// outbox, which is locked as long as it takes to put a notification in.
//
// # Order
//
// A call puts what it has to say into the outbox before it lets go of its
// source's lock, so that of one source, and hence of one pod, everything leaves
// in the order in which it took effect. Between sources, the outbox is filled
// in an order that agrees with real time: what a call had to say stands before
// that of a call that began when it had ended.
//
// A snapshot has to be of one moment. So it takes the locks of all sources, in
// the order of their appearance, and puts itself into the outbox before it lets
// go of any: what stands before it is in it, what stands behind isn't. In the
// modes that tell snapshots, so does every update.
type sharded struct {
	mux
	mode     Mode
	recorder EventRecorder
	terms    terms
	// out is locked after the shards.
	out outbox

	// shards in order of appearance; what it points to is never written to.
	shards atomic.Pointer[[]*shard]
	// adding is locked to add a shard, and before the shards by who locks them
	// all, so that none is added meanwhile.
	adding sync.Mutex
}

// shard is a source with its lock.
type shard struct {
	// mu guards source, save for its name, which never changes.
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
		// The recorder is the caller's code: not under the lock.
		m.out.mu.Unlock()
		recordDuplicates(m.recorder, source, duplicates)
		m.out.mu.Lock()
	}
	return m.out.flush(ctx)
}

// apply takes an update into the state of its source, which is locked.
func (m *sharded) apply(s *shard, update PodUpdate) (duplicates []*v1.Pod) {
	s.judge(update)
	duplicates = s.source.apply(update)
	s.forgetVerdicts()
	if s.delta.firstSet {
		m.sawSET(s.name)
	}
	return duplicates
}

// shard returns that of a source, which it makes if there is none. There are
// three sources, so that a loop is the fastest map.
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

// lockAll locks all sources, those that are yet to come included, and returns
// them.
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
	// The one error is that of a closed merger.
	_ = m.out.flush(context.Background())
}

// Close is [Merger.Close].
func (m *sharded) Close() {
	m.close(m.out.wake, func() { close(m.out.updates) })
}
