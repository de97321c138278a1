package pipeline

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/profile"
)

// eventHandler is told what the indexer took in; see
// [cache.ResourceEventHandler].
type eventHandler interface {
	OnAdd(obj any, isInInitialList bool)
	OnUpdate(old, obj any)
	OnDelete(obj any)
}

// processor takes what the queue hands over into the indexer and then tells
// the handler, as an informer does (k8s.io/client-go v0.37,
// tools/cache/controller.go, processDeltas and processDeltasInBatch). It is for
// one goroutine.
type processor struct {
	indexer cache.Indexer
	handler eventHandler
	log     *ledger

	done    chan struct{}
	seen    []bool
	handled int

	newest atomic.Uint64
	err    error

	due    bool
	stored int64

	stages profile.Stages
	tap    *tap

	upstream *upstream

	transactions []cache.Transaction
	olds         []any
}

// Process is [cache.Config].Process.
func (p *processor) Process(obj any, isInInitialList bool) error {
	deltas, ok := obj.(cache.Deltas)
	if !ok {
		return p.fail(fmt.Errorf("the queue handed over a %T, not Deltas", obj))
	}
	p.stages.To(1)
	defer p.stages.To(0)
	var popped int64
	p.due, p.stored = p.log.due(len(deltas)), 0
	if p.due {
		popped = p.log.st.now()
	}
	for _, d := range deltas {
		if err := p.take(d, isInInitialList); err != nil {
			return p.fail(err)
		}
		p.stages.To(1)
	}
	p.log.add(deltas, popped, p.stored)
	p.tap.processed(deltas, popped, p.stored)
	p.upstream.processed(p.log.st, popped)
	p.count(deltas)
	return nil
}

// take stores one delta and tells the handler.
func (p *processor) take(d cache.Delta, isInInitialList bool) error {
	switch d.Type {
	case cache.ReplacedAll:
		info, ok := d.Object.(cache.ReplacedAllInfo)
		if !ok {
			return fmt.Errorf("%s with a %T", d.Type, d.Object)
		}
		return p.replaceAll(info, isInInitialList)
	case cache.SyncAll:
		for _, o := range p.indexer.List() {
			p.handler.OnUpdate(o, o)
		}
	case cache.Bookmark:
		info, ok := d.Object.(cache.BookmarkInfo)
		if !ok {
			return fmt.Errorf("%s with a %T", d.Type, d.Object)
		}
		p.indexer.Bookmark(info.ResourceVersion)
	case cache.Deleted:
		if err := p.indexer.Delete(d.Object); err != nil {
			return err
		}
		p.stamp()
		p.handler.OnDelete(d.Object)
	case cache.Added, cache.Updated, cache.Replaced, cache.Sync:
		if old, exists, err := p.indexer.Get(d.Object); err == nil && exists {
			if err := p.indexer.Update(d.Object); err != nil {
				return err
			}
			p.stamp()
			p.handler.OnUpdate(old, d.Object)
			return nil
		}
		if err := p.indexer.Add(d.Object); err != nil {
			return err
		}
		p.stamp()
		p.handler.OnAdd(d.Object, isInInitialList)
	default:
		return fmt.Errorf("a delta of unknown type %q", d.Type)
	}
	return nil
}

// stamp notes when a delta was stored, as the handler is next. With several deltas in a hand-over, it
// is that of the last.
func (p *processor) stamp() {
	if p.due {
		p.stored = p.log.st.now()
	}
	p.stages.To(2)
}

// fail keeps the first error: client-go's controller drops what Process
// returns.
func (p *processor) fail(err error) error {
	if p.err == nil {
		p.err = err
	}
	return err
}

// count notes which events have been handled.
func (p *processor) count(deltas []cache.Delta) {
	for _, d := range deltas {
		if all, ok := d.Object.(cache.ReplacedAllInfo); ok {
			for _, o := range all.Objects {
				p.countOne(o)
			}
			continue
		}
		p.countOne(d.Object)
	}
}

func (p *processor) countOne(obj any) {
	seq := sequence(obj)
	if seq == 0 || seq >= uint64(len(p.seen)) || p.seen[seq] {
		return
	}
	p.seen[seq] = true
	if seq > p.newest.Load() {
		p.newest.Store(seq)
	}
	if p.handled++; p.handled == len(p.seen)-1 {
		close(p.done)
	}
}

// replaceAll replaces what the indexer holds, then tells of what is gone and of
// what came, in this order.
func (p *processor) replaceAll(info cache.ReplacedAllInfo, isInInitialList bool) error {
	listed := sets.New[string]()
	olds := make([]any, len(info.Objects))
	for i, o := range info.Objects {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if err != nil {
			return cache.KeyError{Obj: o, Err: err}
		}
		listed.Insert(key)
		if old, exists, err := p.indexer.GetByKey(key); err == nil && exists {
			olds[i] = old
		}
	}
	var gone []cache.DeletedFinalStateUnknown
	for _, key := range p.indexer.ListKeys() {
		if listed.Has(key) {
			continue
		}
		if old, exists, err := p.indexer.GetByKey(key); err == nil && exists {
			gone = append(gone, cache.DeletedFinalStateUnknown{Key: key, Obj: old})
		}
	}
	if err := p.indexer.Replace(info.Objects, info.ResourceVersion); err != nil {
		return err
	}
	p.stamp()
	for _, t := range gone {
		p.handler.OnDelete(t)
	}
	for i, o := range info.Objects {
		if olds[i] != nil {
			p.handler.OnUpdate(olds[i], o)
		} else {
			p.handler.OnAdd(o, isInInitialList)
		}
	}
	return nil
}

// transactor is what client-go's indexers are too.
type transactor interface {
	cache.Indexer
	cache.TransactionStore
}

// ProcessBatch is [cache.Config].ProcessBatch: one transaction, then the
// handlers.
func (p *processor) ProcessBatch(deltas []cache.Delta, isInInitialList bool) error {
	indexer, ok := p.indexer.(transactor)
	if !ok {
		return p.fail(fmt.Errorf("the indexer %T has no transactions", p.indexer))
	}
	p.stages.To(1)
	defer p.stages.To(0)
	var popped, stored int64
	due := p.log.due(len(deltas))
	if due {
		popped = p.log.st.now()
	}
	p.transactions, p.olds = p.transactions[:0], p.olds[:0]
	for _, d := range deltas {
		t := cache.Transaction{Object: d.Object, Type: cache.TransactionTypeAdd}
		var old any
		switch d.Type {
		case cache.Deleted:
			t.Type = cache.TransactionTypeDelete
		case cache.Added, cache.Updated, cache.Replaced, cache.Sync:
			if o, exists, err := indexer.Get(d.Object); err == nil && exists {
				old, t.Type = o, cache.TransactionTypeUpdate
			}
		default:
			return p.fail(fmt.Errorf("a delta of type %q in a batch", d.Type))
		}
		p.transactions = append(p.transactions, t)
		p.olds = append(p.olds, old)
	}
	if err := indexer.Transaction(p.transactions...); err != nil {
		return p.fail(fmt.Errorf("a batch of %d: %w", len(deltas), err))
	}
	if due {
		stored = p.log.st.now()
	}
	p.stages.To(2)
	for i, t := range p.transactions {
		switch t.Type {
		case cache.TransactionTypeAdd:
			p.handler.OnAdd(t.Object, isInInitialList)
		case cache.TransactionTypeUpdate:
			p.handler.OnUpdate(p.olds[i], t.Object)
		case cache.TransactionTypeDelete:
			p.handler.OnDelete(t.Object)
		}
	}
	p.stages.To(1)
	clear(p.transactions)
	clear(p.olds)
	p.log.addBatch(deltas, popped, stored)
	p.tap.processed(deltas, popped, stored)
	p.upstream.processed(p.log.st, popped)
	p.count(deltas)
	return nil
}
