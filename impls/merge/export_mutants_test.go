//go:build mutants

package merge

import (
	"context"
	"runtime"

	v1 "k8s.io/api/core/v1"
)

// Mutant is a variant that is broken on purpose.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the one of package conformance that must find it.
	Check string
}

// Mutants returns one variant for each named invariant. Each
// is one of ours with a method or an option replaced.
func Mutants() []Mutant {
	return []Mutant{
		mutant("aliased", "sends pods that it does not copy", "random updates", newBrokenCond(aliased)),
		mutant("lost-wake-up", "does not wake the attendant that waits for room", "a slow receiver does not block other sources", newLostWakeUp),
		mutant("no-remove", "sends no REMOVE for the pods that a SET lacks", "random updates", newBrokenCond(noRemove)),
		mutant("torn-snapshot", "takes a snapshot one source after the other", "concurrent sources", newTornSnapshot),
	}
}

func mutant(name, broken, check string, build func(Options) Merger) Mutant {
	cond, err := Lookup("cond")
	if err != nil {
		panic(err)
	}
	return Mutant{
		Variant: newVariant(name, broken, cond.Guarantees[0], build),
		Broken:  broken,
		Check:   check,
	}
}

func aliased(c *cond, s *source, update PodUpdate) []*v1.Pod {
	duplicates := s.apply(update)
	if s.changes.firstSet {
		c.sawSET(s.name)
	}
	c.out.postChanges(s)
	for i := c.out.head; i < len(c.out.waiting); i++ {
		n := &c.out.waiting[i]
		if n.update.Pods == nil && n.many == nil {
			pod := *n.one.pod
			pod.Status = *n.one.status
			n.update.Pods = []*v1.Pod{&pod}
		}
	}
	return duplicates
}

// newBrokenRing returns a ring whose Merge pushes and waits in another way.
func newBrokenRing(opts Options, push func(*combiner, context.Context, *request) error) Merger {
	c := newCombiner(opts).(*combiner)
	c.mux.run = func(ctx context.Context, cmd command) ([]*v1.Pod, error) {
		if cmd.sync {
			return c.run(ctx, cmd)
		}
		r := c.free.New().(*request)
		r.command = cmd
		err := push(c, ctx, r)
		return r.duplicates, err
	}
	return c
}

func newLostWakeUp(opts Options) Merger {
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

// newBrokenCond returns a cond that applies updates in another way.
func newBrokenCond(apply func(*cond, *source, PodUpdate) []*v1.Pod) func(Options) Merger {
	return func(opts Options) Merger {
		c := newCond(opts).(*cond)
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
		return c
	}
}

func noRemove(_ *cond, s *source, update PodUpdate) []*v1.Pod {
	duplicates := s.apply(update)
	if update.Op == SET {
		s.changes.by[REMOVE] = nil
	}
	return duplicates
}

// newTornSnapshot returns a sharded merger whose snapshots lock one source at a time.
func newTornSnapshot(opts Options) Merger {
	t := newSharded(opts).(*sharded)
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
	return t
}
