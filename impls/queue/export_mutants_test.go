//go:build mutants

package queue

import (
	"runtime"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// Mutant is a variant with a deliberate bug.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the name of the subtest that must detect it.
	Check string
}

// Mutants returns one variant for each named invariant. Each is a variant of this package with a
// method or an option replaced.
func Mutants() []Mutant {
	return []Mutant{
		mutant("stale", "reads the inbox only when the backlog is empty", "random operations", ringVariant(), newStale),
		mutant("torn-replace", "replaces one shard after the other", "linearizable", shardedVariant(), newTornReplace),
		mutant("forgotten-key", "wakes no consumer for a key that was in process", "consumers pass over a key in process", shardedVariant(), newForgottenKey),
	}
}

func mutant(name, broken, check string, of Variant, build func(Options) Queue) Mutant {
	return Mutant{
		Variant: Variant{Name: name, Summary: broken, Guarantees: of.Guarantees, New: func(o Options) (Queue, error) {
			o, err := o.complete(MaxShards)
			if err != nil {
				return nil, err
			}
			return build(o), nil
		}},
		Broken: broken,
		Check:  check,
	}
}

type stale struct{ *buffered }

func newStale(o Options) Queue {
	o.Shards = 0
	return stale{newBuffered(o, "ring", ring.NewLockFree[item](inboxSize))}
}

func (q stale) Pop(process cache.PopProcessFunc) (any, error) {
	q.consumer.Lock()
	defer q.consumer.Unlock()
	q.owner.Lock()
	if q.backlog.len() == 0 {
		q.owner.Unlock()
		obj, epoch, ok := q.take()
		if !ok {
			return nil, cache.ErrFIFOClosed
		}
		defer q.initial.left(epoch)
		return obj, process(obj, !q.initial.HasSynced())
	}
	obj, epoch := q.backlog.take()
	q.owner.Unlock()
	defer q.initial.left(epoch)
	return obj, process(obj, !q.initial.HasSynced())
}

type tornReplace struct{ *sharded }

func newTornReplace(o Options) Queue { return tornReplace{newSharded(o)} }

func (q tornReplace) Replace(list []any, _ string) error {
	r, err := newReplacement(q.keys, list)
	if err != nil {
		return err
	}
	for i := range q.shards {
		s := &q.shards[i]
		s.mu.Lock()
		s.backlog.waiting.Clear()
		s.held = 0
		for _, l := range r.list {
			if q.shardOf(l.hash) == i {
				e, _ := s.backlog.put1(l.obj, l.key, l.hash)
				s.hold(e)
			}
		}
		q.announce(i)
		s.mu.Unlock()
		runtime.Gosched()
	}
	return nil
}

type forgottenKey struct{ *sharded }

func newForgottenKey(o Options) Queue { return forgottenKey{newSharded(o)} }

func (q forgottenKey) Pop(process cache.PopProcessFunc) (any, error) {
	return q.sharded.Pop(func(obj any, initial bool) error {
		err := process(obj, initial)
		for i := range q.shards {
			s := &q.shards[i]
			s.mu.Lock()
			s.ready = s.ready || s.held > 0
			s.mu.Unlock()
		}
		return err
	})
}
