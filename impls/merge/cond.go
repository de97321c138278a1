package merge

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls"
)

func condVariant() Variant {
	return Variant{
		Name:       "cond",
		Summary:    "mutex and condition variable, unchanged pods known by pointer or version, sent without a lock",
		Guarantees: unlockedGuarantees(),
		New:        newCond,
	}
}

// unlockedGuarantees are those of all variants but the reference.
func unlockedGuarantees() []impls.Guarantees {
	return []impls.Guarantees{{
		Order:     impls.OrderTotal,
		Coalesces: impls.CoalesceNone,
		Bounded:   true,
		Consumers: impls.ManyConsumers,
		Unlocked:  true,
	}}
}

// cond merges under a mutex, at a cost that depends on the number of changes, and
// sends without it (see outbox).
//
// In a SET, a pod with an unchanged pointer costs one lookup in a small table
// (see source). If all pointers are unchanged, the SET does not allocate. ADD,
// UPDATE, DELETE and REMOVE cost the same for any number of held pods. Changed
// pods are copied in two steps: a shallow copy under the lock, and a deep copy by
// the sender, unless receivers share. While one caller sends, updates of other
// callers take effect.
type cond struct {
	mux
	mode     Mode
	recorder EventRecorder
	// out holds the unsent notifications. Its mutex also guards states.
	out    outbox
	states states
}

func newCond(opts Options) (Merger, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	c := &cond{
		mode:     opts.Mode,
		recorder: opts.Recorder,
		states:   states{terms: opts.terms()},
	}
	c.mux.init(opts, c.Merge)
	c.out.init(opts, c.closing)
	return c, nil
}

// Updates is [Merger.Updates].
func (c *cond) Updates() <-chan PodUpdate { return c.out.updates }

// Merge is [Merger.Merge].
func (c *cond) Merge(ctx context.Context, source string, update PodUpdate) error {
	if err := c.begin(source, &update); err != nil {
		return err
	}
	defer c.end()
	c.out.mu.Lock()
	duplicates := c.apply(source, update)
	if len(duplicates) > 0 {
		// The recorder is the caller's code and must not run under the lock.
		c.out.mu.Unlock()
		recordDuplicates(c.recorder, source, duplicates)
		c.out.mu.Lock()
	}
	return c.out.flush(ctx)
}

// apply merges an update and posts its notifications.
func (c *cond) apply(name string, update PodUpdate) (duplicates []*v1.Pod) {
	s := c.states.of(name)
	duplicates = s.apply(update)
	if s.delta.firstSet {
		c.sawSET(name)
	}
	c.out.postDelta(c.mode, s, c.states.all)
	return duplicates
}

// Sync is [Merger.Sync].
func (c *cond) Sync() {
	if !c.beginSync() {
		return
	}
	defer c.end()
	c.out.mu.Lock()
	c.out.postAll(AllSource, c.states.all)
	// The only error is that of a closed merger.
	_ = c.out.flush(context.Background())
}

// Close is [Merger.Close].
func (c *cond) Close() {
	c.close(c.out.wake, func() { close(c.out.updates) })
}
