//go:build mutants

package deltafifo

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// Broken inboxes. Each has its own way to sleep, with one mistake.

type forgottenWakeUp struct {
	inbox
	wake   chan struct{}
	closed atomic.Bool
}

func newForgotten(l inbox) inbox { return &forgottenWakeUp{inbox: l, wake: make(chan struct{}, 1)} }

func (l *forgottenWakeUp) token() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *forgottenWakeUp) Push(ctx context.Context, i item) error {
	err := l.inbox.Push(ctx, i)
	if i.kind != replacedAll && i.kind != replaceCommand {
		l.token()
	}
	return err
}

func (l *forgottenWakeUp) Wait() error {
	for l.Len() == 0 && !l.closed.Load() {
		<-l.wake
	}
	return l.inbox.Wait()
}

func (l *forgottenWakeUp) Close() {
	l.inbox.Close()
	l.closed.Store(true)
	l.token()
}

type lostWakeUp struct {
	inbox
	waiting, closed atomic.Bool
	wake            chan struct{}
}

func newLostWakeUp(l inbox) inbox { return &lostWakeUp{inbox: l, wake: make(chan struct{}, 1)} }

func (l *lostWakeUp) Push(ctx context.Context, i item) error {
	err := l.inbox.Push(ctx, i)
	if l.waiting.CompareAndSwap(true, false) {
		l.wake <- struct{}{}
	}
	return err
}

func (l *lostWakeUp) Wait() error {
	if l.Len() == 0 && !l.closed.Load() {
		runtime.Gosched()
		l.waiting.Store(true)
		<-l.wake
	}
	return l.inbox.Wait()
}

func (l *lostWakeUp) Close() {
	l.inbox.Close()
	l.closed.Store(true)
	if l.waiting.CompareAndSwap(true, false) {
		l.wake <- struct{}{}
	}
}

type droppedAtClose struct {
	inbox
	closed atomic.Bool
}

func newDroppedAtClose(l inbox) inbox { return &droppedAtClose{inbox: l} }

func (l *droppedAtClose) Close() { l.closed.Store(true); l.inbox.Close() }

func (l *droppedAtClose) TakeBatch(dst []item) int {
	if n := l.Len(); l.closed.Load() {
		dst = dst[:min(len(dst), max(0, n-1))]
	}
	return l.inbox.TakeBatch(dst)
}

func (l *droppedAtClose) Wait() error {
	if l.closed.Load() && l.Len() <= 1 {
		return ring.ErrClosed
	}
	return l.inbox.Wait()
}

type spinning struct {
	inbox
	closed atomic.Bool
}

func newSpinning(l inbox) inbox { return &spinning{inbox: l} }

func (l *spinning) Close() { l.closed.Store(true); l.inbox.Close() }

func (l *spinning) Wait() error {
	for l.Len() == 0 && !l.closed.Load() {
		runtime.Gosched()
	}
	return l.inbox.Wait()
}

// unfair has a token per unit of capacity. Only the context ends the wait for one.
type unfair struct {
	inbox
	tokens chan struct{}
}

func newUnfair(o Options) (Queue, error) {
	l, err := ring.NewLocked[item](0)
	if err != nil {
		return nil, err
	}
	if o.Capacity == 0 {
		return newBuffered(o, "mutant", l), nil
	}
	return newBuffered(o, "mutant", &unfair{l, make(chan struct{}, o.Capacity)}), nil
}

func (l *unfair) Push(ctx context.Context, i item) error {
	select {
	case l.tokens <- struct{}{}:
		return l.inbox.Push(ctx, i)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *unfair) Release(n int) {
	for range n {
		<-l.tokens
	}
}

func newExceeded(o Options) (Queue, error) {
	if o.Capacity > 0 {
		o.Capacity++
	}
	return newCond(o)
}

// Broken backlogs.

type capacityLost struct{ backlog }

func (b *capacityLost) freed() int { return max(min(1, b.backlog.freed()), b.backlog.freed()-1) }

type tombstonesLast struct{ *inOrder }

func (b *tombstonesLast) put(items []item) {
	for i := range items {
		from, lists := b.n, items[i].kind == replaceCommand
		if b.inOrder.put(items[i : i+1]); lists {
			b.turn(from)
		}
	}
}

// turn moves the tombstones from index from on behind the list.
func (b *tombstonesLast) turn(from int) {
	var list, buried []item
	for i := from; i < b.n; i++ {
		if d := *b.at(i); d.kind == deleted {
			buried = append(buried, d)
		} else {
			list = append(list, d)
		}
	}
	for i, d := range append(list, buried...) {
		*b.at(from + i) = d
	}
	b.hashed = b.taken // The indexes have other keys now.
}

type keyTwice struct{ *inOrder }

func (b *keyTwice) take(batch bool) ([]cache.Delta, bool) {
	if !batch {
		return b.inOrder.take(false)
	}
	var all []cache.Delta
	for len(all) < b.batchSize && b.n > 0 {
		one, _ := b.inOrder.take(false)
		all = append(all, one...)
	}
	return all, len(all) > 1
}

type beyondList struct{ *inOrder }

func (b *beyondList) take(batch bool) ([]cache.Delta, bool) {
	end := b.initialEnd
	b.initialEnd = 0
	defer func() { b.initialEnd = end }()
	return b.inOrder.take(batch)
}

type memoryReused struct {
	backlog
	memory []cache.Delta
}

func (b *memoryReused) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.backlog.take(batch)
	if deltas == nil {
		return nil, false
	}
	b.memory = append(b.memory[:0], deltas...)
	return b.memory, batched
}

type keepsObjects struct {
	backlog
	kept [][]cache.Delta
}

func (b *keepsObjects) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.backlog.take(batch)
	b.kept = append(b.kept, append([]cache.Delta(nil), deltas...))
	return deltas, batched
}

type early struct{ backlog }

func (b *early) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.backlog.take(batch)
	if deltas != nil {
		b.backlog.done()
	}
	return deltas, batched
}

// keysMutant is the backlog of per-key delivery with one of several mistakes.
type keysMutant struct {
	*perKey
	// fold reports whether a delta is wrongly dropped.
	fold func(queued *pending, i item) bool
	// The other mistakes.
	toTheEnd, resyncsAll, forgetsInProcess, overwritesLent bool
}

func deletesAnywhere(queued *pending, i item) bool {
	if i.kind != deleted || queued.newest().kind == deleted {
		return false
	}
	return queued.first.kind == deleted || slices.ContainsFunc(queued.more, func(i item) bool { return i.kind == deleted })
}

func anything(*pending, item) bool { return true }

func (b *keysMutant) put(items []item) {
	for _, i := range items {
		b.one(i)
	}
	clear(items)
	if b.overwritesLent {
		for i := range min(len(items), len(b.memory.lent)) {
			b.memory.lent[i] = cache.Delta{Type: "scratch"}
		}
	}
}

func (b *keysMutant) one(i item) {
	if i.kind == resyncCommand && b.resyncsAll {
		b.free++
		for _, s := range b.known.ListKeys() {
			key := keys.Split(s)
			b.add(key.Hash(), key, item{obj: knownObject(b.known, s), kind: synced, placeless: true})
		}
		return
	}
	e, key := b.entry(i)
	if e != nil && b.fold != nil && b.fold(&e.Value, i) {
		b.drop(i)
		return
	}
	if e != nil && b.toTheEnd {
		value := e.Value
		b.queued.Remove(e)
		e, _ = b.queued.Upsert(key.Hash(), key)
		e.Value = value
	}
	b.perKey.put([]item{i})
}

// entry returns the entry of an item's key, or nil if it is not queued.
func (b *keysMutant) entry(i item) (*keys.Entry[pending], keys.Key) {
	key, err := b.keys.OfQueued(i.obj)
	if err != nil {
		return nil, key
	}
	return b.queued.Get(key.Hash(), key), key
}

func (b *keysMutant) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.perKey.take(batch)
	if b.forgetsInProcess {
		b.inProcess = nil
	}
	return deltas, batched
}
