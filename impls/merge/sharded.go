package merge

import (
	"context"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
)

// sharded merges each source under its own lock (kubernetes#15195), so that a large list of one
// source does not block the others. A large list whose pods must all be compared is compared on
// several cores. The sources share the outbox, which is locked for each post.
//
// # Order
//
// A call posts its notifications before it unlocks its source. So the notifications of one source,
// and hence of one pod, are sent in the order of the updates. Between sources the order agrees with
// real time: the notifications of a call precede those of a call that began after it had returned.
//
// A snapshot must be consistent. It locks all sources in the order of their appearance, and posts
// before it unlocks any of them. It includes exactly the updates posted before it.
type sharded struct {
	mux
	out outbox // locked after the shards

	shards atomic.Pointer[[]*shard] // in order of appearance; the slice is immutable
	adding sync.Mutex               // held while adding and during a snapshot; locked before the shards
}

// shard is a source with its lock.
type shard struct {
	mu sync.Mutex // guards source, except its name, which is constant
	*source
}

func newSharded(opts Options) Merger {
	m := &sharded{}
	m.mux.init(opts)
	m.mux.run, m.mux.stop = m.run, m.out.wake
	m.out.init(&m.mux)
	m.shards.Store(&[]*shard{})
	return m
}

func (m *sharded) run(ctx context.Context, c command) (duplicates []*v1.Pod, err error) {
	if c.sync {
		m.postAll()
		return nil, m.out.flush(ctx)
	}
	s := m.shard(c.source)
	s.mu.Lock()
	s.compareAhead(c.update)
	duplicates = s.apply(c.update)
	s.forgetComparisons()
	if s.changes.firstSet {
		m.sawSET(s.name)
	}
	m.out.mu.Lock()
	m.out.postChanges(s.source)
	s.mu.Unlock()
	return duplicates, m.out.flush(ctx)
}

// postAll posts a snapshot and returns with out locked. No source is added meanwhile.
func (m *sharded) postAll() {
	m.adding.Lock()
	defer m.adding.Unlock()
	var all []*source
	for _, s := range *m.shards.Load() {
		s.mu.Lock()
		defer s.mu.Unlock()
		all = append(all, s.source)
	}
	m.out.mu.Lock()
	m.out.postAll(all)
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
		s = &shard{source: newSource(name)}
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
