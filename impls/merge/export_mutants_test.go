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
		mutant("aliased", "sends pods as owned that it shares", "owned pods share no memory", newAliased),
		mutant("lost-wake-up", "does not wake the attendant that waits for room", "a slow receiver does not block other sources", newLostWakeUp),
		mutant("counted-late", "counts a call after its request can be merged", "concurrent sources", newCountedLate),
		mutant("no-remove", "sends no REMOVE for the pods that a SET lacks", "notification order", newBrokenCond(noRemove)),
		mutant("stale-pointer", "knows a removed pod by its pointer", "removed pods come back", newBrokenCond(stalePointer)),
		mutant("reconcile-first", "sends RECONCILE before ADD", "notification order", newBrokenCond(reconcileFirst)),
		mutant("canceled-lost", "drops the notifications of a canceled call", "a canceled Merge takes effect", newCanceledLost),
		mutant("torn-snapshot", "takes a snapshot one source after the other", "snapshots during updates", newTornSnapshot),
		mutant("trusts-all", "trusts the generations of every source", "generations are trusted", newBrokenCond(trustsAll)),
		mutant("owner-left", "leaves its goroutine behind", "Close", newOwnerLeft),
	}
}

func mutant(name, broken, check string, build func(Options) (Merger, error)) Mutant {
	cond, err := Lookup("cond")
	if err != nil {
		panic(err)
	}
	return Mutant{
		Variant: Variant{Name: name, Summary: broken, Guarantees: cond.Guarantees, New: build},
		Broken:  broken,
		Check:   check,
	}
}

func newAliased(opts Options) (Merger, error) {
	opts.HandOver = impls.Shared
	return newCond(opts)
}

// newBrokenRing returns a ring whose Merge pushes and waits in another way.
func newBrokenRing(opts Options, push func(*combiner, context.Context, *request) error) (Merger, error) {
	m, err := newCombiner(opts)
	if err != nil {
		return nil, err
	}
	c := m.(*combiner)
	c.mux.run = func(ctx context.Context, cmd command) ([]*v1.Pod, error) {
		if cmd.sync {
			return c.run(ctx, cmd)
		}
		r := c.free.New().(*request)
		r.command = cmd
		err := push(c, ctx, r)
		return r.duplicates, err
	}
	return c, nil
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

// newBrokenCond returns a cond that applies updates in another way.
func newBrokenCond(apply func(*cond, *source, PodUpdate) []*v1.Pod) func(Options) (Merger, error) {
	return func(opts Options) (Merger, error) {
		m, err := newCond(opts)
		if err != nil {
			return nil, err
		}
		c := m.(*cond)
		c.mux.run = func(ctx context.Context, cmd command) ([]*v1.Pod, error) {
			if cmd.sync {
				return c.run(ctx, cmd)
			}
			c.out.mu.Lock()
			s := c.states.of(cmd.source)
			duplicates := apply(c, s, cmd.update)
			if s.changes.firstSet {
				c.sawSET(s.name)
			}
			c.out.postChanges(s)
			return duplicates, c.out.flush(ctx)
		}
		return c, nil
	}
}

func noRemove(_ *cond, s *source, update PodUpdate) []*v1.Pod {
	duplicates := s.apply(update)
	if update.Op == SET {
		s.changes.by[REMOVE] = nil
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
	for _, e := range s.changes.by[RECONCILE] {
		c.out.post(notification{update: PodUpdate{Op: RECONCILE, Source: s.name}, one: e.held})
	}
	s.changes.by[RECONCILE] = nil
	return duplicates
}

// newCanceledLost returns a cond that drops the notifications of canceled calls.
func newCanceledLost(opts Options) (Merger, error) {
	m, err := newCond(opts)
	if err != nil {
		return nil, err
	}
	c := m.(*cond)
	c.mux.run = func(ctx context.Context, cmd command) ([]*v1.Pod, error) {
		duplicates, err := c.run(ctx, cmd)
		if err != nil && ctx.Err() != nil {
			c.out.mu.Lock()
			defer c.out.mu.Unlock()
			for !c.out.sending && !c.out.empty() {
				c.out.shift()
			}
		}
		return duplicates, err
	}
	return c, nil
}

// newTornSnapshot returns a sharded merger whose snapshots lock one source at a time.
func newTornSnapshot(opts Options) (Merger, error) {
	m, err := newSharded(opts)
	if err != nil {
		return nil, err
	}
	t := m.(*sharded)
	t.mux.run = func(ctx context.Context, cmd command) ([]*v1.Pod, error) {
		if !cmd.sync {
			return t.run(ctx, cmd)
		}
		var whole backlog
		for _, s := range *t.shards.Load() {
			s.mu.Lock()
			whole.postAll([]*source{s.source})
			s.mu.Unlock()
			runtime.Gosched()
		}
		n := notification{update: PodUpdate{Op: SET, Source: AllSource, Pods: []*v1.Pod{}}}
		for !whole.empty() {
			n.update.Pods = append(n.update.Pods, whole.first().ready().Pods...)
			whole.shift()
		}
		t.out.mu.Lock()
		t.out.post(n)
		return nil, t.out.flush(ctx)
	}
	return t, nil
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
