//go:build mutants

package merge

import (
	"context"
	"runtime"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls"
)

// Mutant is a variant that is broken on purpose.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the one of package mergetest that must find it.
	Check string
}

// Mutants returns a variant for each mistake that the suite has to find. Each
// is one of ours with a method or an option replaced.
func Mutants() []Mutant {
	return []Mutant{
		mutant("aliased", "hands over pods as owned that it shares", "owned pods share no memory", newAliased),
		mutant("lost-wake-up", "doesn't wake the caller that attends and has no room to send", "a slow receiver does not block other sources", newLostWakeUp),
		mutant("counted-late", "counts a call after its request can be merged", "concurrent sources", newCountedLate),
		mutant("no-remove", "doesn't tell of the pods that a SET lacks", "notification order", newBrokenCond(noRemove)),
		mutant("stale-pointer", "knows a removed pod by its pointer", "removed pods come back", newBrokenCond(stalePointer)),
		mutant("reconcile-first", "tells RECONCILE before ADD", "notification order", newBrokenCond(reconcileFirst)),
		mutant("given-up-lost", "drops what a caller had to say that gave up", "a Merge that is given up takes effect", newGivenUpLost),
		mutant("torn-snapshot", "takes a snapshot one source after the other", "snapshots during updates", newTornSnapshot),
		mutant("trusts-all", "takes the word of every source for what a generation covers", "generations are trusted", newBrokenCond(trustsAll)),
		mutant("owner-left", "leaves its goroutine behind", "Close", newOwnerLeft),
	}
}

func mutant(name, broken, check string, build func(Options) (Merger, error)) Mutant {
	return Mutant{
		Variant: Variant{Name: name, Summary: broken, Guarantees: unlockedGuarantees(), New: build},
		Broken:  broken,
		Check:   check,
	}
}

func newAliased(opts Options) (Merger, error) {
	opts.HandOver = impls.Shared
	return newCond(opts)
}

// brokenRing asks in another way.
type brokenRing struct {
	*combiner
	ask func(*combiner, context.Context, *request) error
}

func newBrokenRing(opts Options, ask func(*combiner, context.Context, *request) error) (Merger, error) {
	m, err := newCombiner(opts)
	if err != nil {
		return nil, err
	}
	b := &brokenRing{m.(*combiner), ask}
	b.merge = b.Merge
	return b, nil
}

func (b *brokenRing) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := b.begin(source, &update); err != nil {
		return err
	}
	defer b.end()
	r := b.free.New().(*request)
	r.source, r.update = source, update
	return b.ask(b.combiner, ctx, r)
}

func newLostWakeUp(opts Options) (Merger, error) {
	return newBrokenRing(opts, func(m *combiner, ctx context.Context, r *request) error {
		attends := m.open.Add(1) == 1
		if err := m.requests.TryPush(r); err != nil {
			return err
		}
		if attends {
			return m.attend(ctx, r)
		}
		return m.wait(ctx, r)
	})
}

func newCountedLate(opts Options) (Merger, error) {
	return newBrokenRing(opts, func(m *combiner, ctx context.Context, r *request) error {
		if err := m.requests.TryPush(r); err != nil {
			return err
		}
		runtime.Gosched()
		if m.open.Add(1) == 1 {
			return m.attend(ctx, r)
		}
		m.wake()
		return m.wait(ctx, r)
	})
}

// brokenCond takes updates into the state in another way.
type brokenCond struct {
	*cond
	apply func(*cond, *source, PodUpdate) []*v1.Pod
}

func newBrokenCond(apply func(*cond, *source, PodUpdate) []*v1.Pod) func(Options) (Merger, error) {
	return func(opts Options) (Merger, error) {
		m, err := newCond(opts)
		if err != nil {
			return nil, err
		}
		b := &brokenCond{m.(*cond), apply}
		b.merge = b.Merge
		return b, nil
	}
}

func (b *brokenCond) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := b.begin(source, &update); err != nil {
		return err
	}
	defer b.end()
	b.out.mu.Lock()
	s := b.states.of(source)
	duplicates := b.apply(b.cond, s, update)
	if s.delta.firstSet {
		b.sawSET(source)
	}
	b.out.postDelta(b.mode, s, b.states.all)
	b.out.mu.Unlock()
	recordDuplicates(b.recorder, source, duplicates)
	b.out.mu.Lock()
	return b.out.flush(ctx)
}

func noRemove(_ *cond, s *source, update PodUpdate) []*v1.Pod {
	duplicates := s.apply(update)
	if update.Op == SET {
		s.delta.removes = s.delta.removes[:0]
	}
	return duplicates
}

func trustsAll(_ *cond, s *source, update PodUpdate) []*v1.Pod {
	s.counted = true
	return s.apply(update)
}

func stalePointer(_ *cond, s *source, update PodUpdate) []*v1.Pod {
	var removed []*entry
	if update.Op == REMOVE {
		for _, pod := range update.Pods {
			if e := s.byUID[pod.UID]; e != nil {
				removed = append(removed, e)
			}
		}
	}
	duplicates := s.apply(update)
	for _, e := range removed {
		if s.byPointer.get(e.received) == nil {
			s.byPointer.put(e.received, e)
		}
	}
	return duplicates
}

func reconcileFirst(c *cond, s *source, update PodUpdate) []*v1.Pod {
	duplicates := s.apply(update)
	if c.mode == Incremental {
		c.out.postEntries(RECONCILE, s, s.delta.reconciles)
		s.delta.reconciles = s.delta.reconciles[:0]
	}
	return duplicates
}

// givenUpLost forgets what it has to say when a caller gives up.
type givenUpLost struct{ *cond }

func newGivenUpLost(opts Options) (Merger, error) {
	m, err := newCond(opts)
	if err != nil {
		return nil, err
	}
	b := &givenUpLost{m.(*cond)}
	b.merge = b.Merge
	return b, nil
}

func (b *givenUpLost) Merge(ctx context.Context, source string, update PodUpdate) error {
	err := b.cond.Merge(ctx, source, update)
	if err != nil && ctx.Err() != nil {
		b.out.mu.Lock()
		defer b.out.mu.Unlock()
		for !b.out.sending && !b.out.empty() {
			b.out.shift()
		}
	}
	return err
}

// tornSnapshot locks one source at a time.
type tornSnapshot struct{ *sharded }

func newTornSnapshot(opts Options) (Merger, error) {
	m, err := newSharded(opts)
	if err != nil {
		return nil, err
	}
	return &tornSnapshot{m.(*sharded)}, nil
}

func (b *tornSnapshot) Sync() {
	if !b.beginSync() {
		return
	}
	defer b.end()
	var whole backlog
	for _, s := range *b.shards.Load() {
		s.mu.Lock()
		whole.postAll(AllSource, []*source{s.source})
		s.mu.Unlock()
		runtime.Gosched()
	}
	n := notification{update: PodUpdate{Op: SET, Source: AllSource, Pods: []*v1.Pod{}}}
	for !whole.empty() {
		n.update.Pods = append(n.update.Pods, whole.first().ready().Pods...)
		whole.shift()
	}
	b.out.mu.Lock()
	b.out.post(n)
	_ = b.out.flush(context.Background())
}

// ownerLeft closes everything but its owner.
type ownerLeft struct{ *channel }

func newOwnerLeft(opts Options) (Merger, error) {
	m, err := newChannel(opts)
	if err != nil {
		return nil, err
	}
	return &ownerLeft{m.(*channel)}, nil
}

func (b *ownerLeft) Close() {
	b.mu.Lock()
	b.mux.ended = true
	for _, l := range b.channels {
		l.cancel()
	}
	b.mu.Unlock()
	b.listeners.Wait()
}
