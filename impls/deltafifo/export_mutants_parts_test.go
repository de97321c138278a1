//go:build mutants

package deltafifo

import (
	"context"
	"runtime"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// Broken lines. They sleep in a way of their own, of which each gets something
// wrong.

type forgetful struct {
	inbox
	wake   chan struct{}
	closed atomic.Bool
}

func newForgetful(l inbox) inbox { return &forgetful{inbox: l, wake: make(chan struct{}, 1)} }

func (l *forgetful) token() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *forgetful) Push(ctx context.Context, i item) error {
	err := l.inbox.Push(ctx, i)
	if i.kind != replacedAll && i.kind != replaceCommand {
		l.token()
	}
	return err
}

func (l *forgetful) Wait() error {
	for l.Len() == 0 && !l.closed.Load() {
		<-l.wake
	}
	return l.inbox.Wait()
}

func (l *forgetful) Close() {
	l.inbox.Close()
	l.closed.Store(true)
	l.token()
}

type careless struct {
	inbox
	waiting, closed atomic.Bool
	wake            chan struct{}
}

func newCareless(l inbox) inbox { return &careless{inbox: l, wake: make(chan struct{}, 1)} }

func (l *careless) Push(ctx context.Context, i item) error {
	err := l.inbox.Push(ctx, i)
	if l.waiting.CompareAndSwap(true, false) {
		l.wake <- struct{}{}
	}
	return err
}

func (l *careless) Wait() error {
	if l.Len() == 0 && !l.closed.Load() {
		runtime.Gosched()
		l.waiting.Store(true)
		<-l.wake
	}
	return l.inbox.Wait()
}

func (l *careless) Close() {
	l.inbox.Close()
	l.closed.Store(true)
	if l.waiting.CompareAndSwap(true, false) {
		l.wake <- struct{}{}
	}
}

type hasty struct {
	inbox
	closed atomic.Bool
}

func newHasty(l inbox) inbox { return &hasty{inbox: l} }

func (l *hasty) Close() { l.closed.Store(true); l.inbox.Close() }

func (l *hasty) TakeBatch(dst []item) int {
	if n := l.Len(); l.closed.Load() {
		dst = dst[:min(len(dst), max(0, n-1))]
	}
	return l.inbox.TakeBatch(dst)
}

func (l *hasty) Wait() error {
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

// unfair has a place for each of capacity, and nothing that ends the wait for
// one but the context.
type unfair struct {
	inbox
	places chan struct{}
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
	case l.places <- struct{}{}:
		return l.inbox.Push(ctx, i)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *unfair) Release(n int) {
	for range n {
		<-l.places
	}
}

func newRoomy(o Options) (Queue, error) {
	if o.Capacity > 0 {
		o.Capacity++
	}
	return newWhole(o)
}

// Broken backlogs.

type placeLost struct{ backlog }

func (b *placeLost) freed() int { return max(min(1, b.backlog.freed()), b.backlog.freed()-1) }

type tombstonesLast struct{ *inOrder }

func (b *tombstonesLast) put(items []item) {
	for i := range items {
		from, lists := b.n, items[i].kind == replaceCommand
		if b.inOrder.put(items[i : i+1]); lists {
			b.turn(from)
		}
	}
}

// turn puts the tombstones from a place on behind the rest.
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
	b.hashed = b.taken // The places have other keys now.
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

type memoryAgain struct {
	backlog
	memory []cache.Delta
}

func (b *memoryAgain) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.backlog.take(batch)
	if deltas == nil {
		return nil, false
	}
	b.memory = append(b.memory[:0], deltas...)
	return b.memory, batched
}

type hoarder struct {
	backlog
	kept [][]cache.Delta
}

func (b *hoarder) take(batch bool) ([]cache.Delta, bool) {
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
	// fold says which deltas are dropped, though they should not be.
	fold func(waits *pending, i item) bool
	// The others say what they do.
	toTheEnd, resyncsAll, forgetsHanded, scribbles bool
}

func anyDeleted(waits *pending, i item) bool {
	if i.kind != deleted || waits.newest().kind == deleted {
		return false
	}
	found := waits.first.kind == deleted
	for n := waits.last; n != nil && !found; n = n.next {
		found = n.kind == deleted
		if n.next == waits.last {
			break
		}
	}
	return found
}

func anything(*pending, item) bool { return true }

func (b *keysMutant) put(items []item) {
	for _, i := range items {
		b.one(i)
	}
	clear(items)
	if b.scribbles {
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
		waits := e.Value
		b.queued.Remove(e)
		e, _ = b.queued.Upsert(key.Hash(), key)
		e.Value = waits
	}
	b.perKey.put([]item{i})
}

// entry returns that of an item's key, if it waits.
func (b *keysMutant) entry(i item) (*keys.Entry[pending], keys.Key) {
	key, err := b.keys.OfQueued(i.obj)
	if err != nil {
		return nil, key
	}
	return b.queued.Get(key.Hash(), key), key
}

func (b *keysMutant) take(batch bool) ([]cache.Delta, bool) {
	deltas, batched := b.perKey.take(batch)
	if b.forgetsHanded {
		b.inProcess = nil
	}
	return deltas, batched
}
