package merge

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/impls"
)

func condVariant() Variant {
	return Variant{
		Name:    "cond",
		Summary: "mutex and condition variable, unchanged pods known by pointer, sent without a lock",
		Guarantees: []impls.Guarantees{{
			Order:     impls.OrderTotal,
			Coalesces: impls.CoalesceNone,
			Bounded:   true,
			Consumers: impls.ManyConsumers,
			Unlocked:  true,
		}},
		New: newCond,
	}
}

// cond merges under a mutex at a cost that depends on what changed, and sends
// without it, taking turns by a condition variable.
//
// A SET costs one look into a small table for each pod whose pointer is the one
// received last (see source), and no allocation if that is so for all of them.
// A pod with another pointer is compared up to the first difference. What
// changed is copied: its outline under the lock, and all of what is told by
// whoever sends it.
//
// What has to be told goes to an outbox, from which one caller at a time sends,
// oldest first. A caller sends until its own notifications are out, those of
// earlier callers before them, or waits while another does. Meanwhile other
// callers' updates go on into the state. The outbox is bounded by the number
// of callers, each of which waits, plus what callers left that gave up.
type cond struct {
	mux
	mode     Mode
	recorder EventRecorder
	updates  chan PodUpdate

	// mu guards everything below; it is not held while sending or copying.
	mu sync.Mutex
	// turn is signalled when sending turns false.
	turn *sync.Cond
	// states of the sources, in order of appearance.
	states []*source
	// outbox holds what is to be sent, oldest first, from head on. The first
	// is the sender's while sending is true.
	outbox []notification
	head   int
	// sent and queued count the notifications that left and entered the outbox.
	sent, queued uint64
	// sending is true while a caller sends the first of the outbox.
	sending bool
}

// notification is a PodUpdate on its way.
type notification struct {
	op     Op
	source string
	// held are the pods to tell of; pods are their copies, once made.
	held []held
	pods []*v1.Pod
}

func newCond(opts Options) (Merger, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	c := &cond{
		mode:     opts.Mode,
		recorder: opts.Recorder,
		updates:  make(chan PodUpdate, opts.Capacity),
	}
	c.turn = sync.NewCond(&c.mu)
	c.mux.init(opts, c.Merge)
	return c, nil
}

// Updates is [Merger.Updates].
func (c *cond) Updates() <-chan PodUpdate { return c.updates }

// Merge is [Merger.Merge].
func (c *cond) Merge(ctx context.Context, source string, update PodUpdate) error {
	if source == "" {
		return fmt.Errorf("merge: %w", ErrSource)
	}
	if err := update.Check(); err != nil {
		return fmt.Errorf("merge from %s: %w", source, err)
	}
	c.mu.Lock()
	s := c.state(source)
	duplicates := s.apply(update)
	c.tell(s)
	target := c.queued
	if len(duplicates) > 0 {
		// The recorder is the caller's code: not under the lock.
		c.mu.Unlock()
		for _, pod := range duplicates {
			tellDuplicate(c.recorder, source, pod)
		}
		c.mu.Lock()
	}
	return c.send(ctx, target)
}

// Sync is [Merger.Sync].
func (c *cond) Sync() {
	c.mu.Lock()
	// Without an end of ctx, send has no error.
	c.post(SET, AllSource, c.snapshot())
	_ = c.send(context.Background(), c.queued)
}

// SeenAllSources is [Merger.SeenAllSources].
func (c *cond) SeenAllSources(seen sets.Set[string]) bool {
	sources := c.registered()
	if !seen.HasAll(sources...) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range sources {
		if !c.state(name).set {
			return false
		}
	}
	return true
}

// state returns the state of a source, which it makes if there is none. There
// are three sources, so that a loop is the fastest map.
func (c *cond) state(name string) *source {
	for _, s := range c.states {
		if s.name == name {
			return s
		}
	}
	s := newSource(name)
	c.states = append(c.states, s)
	return s
}

// tell puts what the last update of s changed into the outbox.
func (c *cond) tell(s *source) {
	d := &s.delta
	defer d.reset()
	if d.empty() {
		return
	}
	changed := len(d.adds) > 0 || len(d.updates) > 0 || len(d.deletes) > 0
	switch c.mode {
	case SnapshotAndUpdates:
		if d.firstSet || len(d.removes) > 0 || len(d.adds) > 0 {
			c.post(SET, s.name, c.snapshot())
		}
		c.postEntries(UPDATE, s.name, d.updates)
		c.postEntries(DELETE, s.name, d.deletes)
	case Snapshot:
		if d.firstSet || changed || len(d.removes) > 0 {
			c.post(SET, s.name, c.snapshot())
		}
	default:
		c.postEntries(REMOVE, s.name, d.removes)
		c.postEntries(ADD, s.name, d.adds)
		c.postEntries(UPDATE, s.name, d.updates)
		c.postEntries(DELETE, s.name, d.deletes)
		if d.firstSet && !changed {
			c.post(ADD, s.name, nil)
		}
		c.postEntries(RECONCILE, s.name, d.reconciles)
	}
}

// postEntries puts the pods of entries, as they are now, into the outbox.
func (c *cond) postEntries(op Op, source string, entries []*entry) {
	if len(entries) == 0 {
		return
	}
	pods := make([]held, len(entries))
	for i, e := range entries {
		pods[i] = e.held
	}
	c.post(op, source, pods)
}

func (c *cond) post(op Op, source string, pods []held) {
	if c.head > 0 && len(c.outbox) == cap(c.outbox) {
		n := copy(c.outbox, c.outbox[c.head:])
		clear(c.outbox[n:])
		c.outbox, c.head = c.outbox[:n], 0
	}
	c.outbox = append(c.outbox, notification{op: op, source: source, held: pods})
	c.queued++
}

// snapshot returns all pods as they are held.
func (c *cond) snapshot() []held {
	n := 0
	for _, s := range c.states {
		n += len(s.byUID)
	}
	pods := make([]held, 0, n)
	for _, s := range c.states {
		for _, e := range s.byUID {
			pods = append(pods, e.held)
		}
	}
	return pods
}

// send returns when target notifications have been sent since the beginning or
// ctx has ended. It sends them itself while nobody else does. It is called with
// the mutex held and returns without it.
func (c *cond) send(ctx context.Context, target uint64) error {
	defer c.mu.Unlock()
	var stop func() bool
	for c.sent < target {
		if c.sending {
			if stop == nil {
				stop = context.AfterFunc(ctx, c.wake)
				defer stop()
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			c.turn.Wait()
			continue
		}
		if err := c.sendFirst(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sendFirst sends the first notification of the outbox. It is called with the
// mutex held and lets go of it meanwhile.
func (c *cond) sendFirst(ctx context.Context) error {
	c.sending = true
	first := c.outbox[c.head]
	c.mu.Unlock()

	if first.pods == nil {
		first.pods = make([]*v1.Pod, len(first.held))
		for i, h := range first.held {
			first.pods[i] = h.copy()
		}
	}
	update := PodUpdate{Pods: first.pods, Op: first.op, Source: first.source}
	var err error
	select {
	case c.updates <- update:
	default:
		select {
		case c.updates <- update:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}

	c.mu.Lock()
	c.sending = false
	c.turn.Broadcast()
	if err != nil {
		c.outbox[c.head].pods = first.pods
		return err
	}
	c.sent++
	c.outbox[c.head] = notification{}
	if c.head++; c.head == len(c.outbox) {
		c.outbox, c.head = c.outbox[:0], 0
	}
	return nil
}

// wake makes those that wait for their turn look at their ctx.
func (c *cond) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.Broadcast()
}
