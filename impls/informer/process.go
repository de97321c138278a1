package informer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// processor stores the deltas of the queue in the indexer and then notifies the
// distributor (client-go v0.37, controller.go, processDeltas and
// processDeltasInBatch, and shared_informer.go, OnAdd, OnUpdate, OnDelete).
//
// It keeps only the objects, neither the slice of deltas nor the list of a
// ReplacedAll, so that a queue can reuse them.
type processor struct {
	indexer     cache.Indexer
	distributor *distributor
	mutations   cache.MutationDetector

	// mu is held from the change of the indexer to the notification of the
	// distributor, so that a handler added in between misses nothing.
	mu sync.Mutex
	// notices and transactions are buffers that each pop reuses.
	notices      []notice
	transactions []cache.Transaction
}

const scratchLimit = 4 * 1024 // of a buffer that is reused, as lists of all objects are rare

// transacts reports whether ProcessBatch can be used.
func (p *processor) transacts() bool {
	_, ok := p.indexer.(cache.TransactionStore)
	return ok
}

// Process stores the deltas of a Pop and notifies the handlers.
func (p *processor) Process(obj any, isInInitialList bool) error {
	deltas, ok := obj.(cache.Deltas)
	if !ok {
		return fmt.Errorf("the queue handed over a %T (want cache.Deltas)", obj)
	}
	return p.inParts(deltas, func(part []cache.Delta) error { return p.single(part, isInInitialList) })
}

// inParts calls process with all deltas. If backlogs are bounded, it calls it with as many at a time as
// take half of a backlog, and waits for room before each call.
func (p *processor) inParts(deltas []cache.Delta, process func(part []cache.Delta) error) error {
	limit := p.distributor.limit
	if limit == 0 {
		return process(deltas)
	}
	var err error
	for part := range slices.Chunk(deltas, max(1, limit/2)) {
		p.distributor.admit(size(part))
		err = errors.Join(err, process(part))
	}
	return err
}

func (p *processor) single(deltas []cache.Delta, isInInitialList bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.reset()
	// After an error, handlers are still notified of stored objects.
	defer p.notify()
	for _, d := range deltas {
		if err := p.take(d, isInInitialList); err != nil {
			return err
		}
	}
	return nil
}

// size returns the number of notices of deltas. A list or a resync needs all the room that there is.
func size(deltas []cache.Delta) int {
	for i := range deltas {
		if t := deltas[i].Type; t == cache.ReplacedAll || t == cache.SyncAll {
			return math.MaxInt
		}
	}
	return len(deltas)
}

// take stores one delta and records its notice.
func (p *processor) take(d cache.Delta, isInInitialList bool) error {
	switch d.Type {
	case cache.ReplacedAll:
		info, ok := d.Object.(cache.ReplacedAllInfo)
		if !ok {
			return wrongContent(d)
		}
		return p.replaceAll(info, isInInitialList)
	case cache.SyncAll:
		if _, ok := d.Object.(cache.SyncAllInfo); !ok {
			return wrongContent(d)
		}
		for _, obj := range p.indexer.List() {
			p.note(update(obj, obj))
		}
	case cache.Bookmark:
		info, ok := d.Object.(cache.BookmarkInfo)
		if !ok {
			return wrongContent(d)
		}
		p.indexer.Bookmark(info.ResourceVersion)
	default:
		n, t, err := p.read(d, isInInitialList)
		if err != nil {
			return err
		}
		if err := p.store(t); err != nil {
			return err
		}
		p.note(n)
	}
	return nil
}

func wrongContent(d cache.Delta) error {
	return fmt.Errorf("a delta of type %s holds a %T", d.Type, d.Object)
}

// read returns the notice and the transaction of a delta of one object.
func (p *processor) read(d cache.Delta, isInInitialList bool) (notice, cache.Transaction, error) {
	t := cache.Transaction{Object: d.Object}
	switch d.Type {
	case cache.Deleted:
		t.Type = cache.TransactionTypeDelete
		return notice{kind: deleted, obj: d.Object}, t, nil
	case cache.Added, cache.Updated, cache.Replaced, cache.Sync:
		// An object without a key is refused when it is stored.
		if old, exists, err := p.indexer.Get(d.Object); err == nil && exists {
			t.Type = cache.TransactionTypeUpdate
			return update(old, d.Object), t, nil
		}
		t.Type = cache.TransactionTypeAdd
		return notice{kind: added, initial: isInInitialList, obj: d.Object}, t, nil
	}
	return notice{}, t, fmt.Errorf("a delta of type %q (want one of client-go v0.37)", d.Type)
}

func (p *processor) store(t cache.Transaction) error {
	switch t.Type {
	case cache.TransactionTypeDelete:
		return p.indexer.Delete(t.Object)
	case cache.TransactionTypeUpdate:
		return p.indexer.Update(t.Object)
	default:
		return p.indexer.Add(t.Object)
	}
}

// update returns the notice of an update. It is a resync if the resourceVersion is unchanged.
func update(old, obj any) notice {
	n := notice{kind: updated, old: old, obj: obj}
	if a, err := meta.Accessor(obj); err == nil {
		if b, err := meta.Accessor(old); err == nil {
			n.resync = a.GetResourceVersion() == b.GetResourceVersion()
		}
	}
	return n
}

// replaceAll replaces the contents of the indexer. It records the deleted objects
// first, then the listed ones.
func (p *processor) replaceAll(info cache.ReplacedAllInfo, isInInitialList bool) error {
	listed := make(sets.Set[string], len(info.Objects))
	came := make([]notice, len(info.Objects))
	for i, obj := range info.Objects {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if err != nil {
			return cache.KeyError{Obj: obj, Err: err}
		}
		listed.Insert(key)
		if old, exists, err := p.indexer.GetByKey(key); err == nil && exists {
			came[i] = update(old, obj)
		} else {
			came[i] = notice{kind: added, initial: isInInitialList, obj: obj}
		}
	}
	var gone []notice
	for _, key := range p.indexer.ListKeys() {
		if listed.Has(key) {
			continue
		}
		// A tombstone without the object still has the key.
		old, _, _ := p.indexer.GetByKey(key)
		gone = append(gone, notice{kind: deleted, obj: cache.DeletedFinalStateUnknown{Key: key, Obj: old}})
	}
	if err := p.indexer.Replace(info.Objects, info.ResourceVersion); err != nil {
		return err
	}
	p.notices = append(append(p.notices, gone...), came...)
	return nil
}

// ProcessBatch stores the deltas of a PopBatch in one transaction. All deltas have different keys.
func (p *processor) ProcessBatch(deltas []cache.Delta, isInInitialList bool) error {
	return p.inParts(deltas, func(part []cache.Delta) error { return p.batch(part, isInInitialList) })
}

func (p *processor) batch(deltas []cache.Delta, isInInitialList bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.reset()
	for _, d := range deltas {
		n, t, err := p.read(d, isInInitialList)
		if err != nil {
			return err
		}
		p.note(n)
		p.transactions = append(p.transactions, t)
	}
	err := p.indexer.(cache.TransactionStore).Transaction(p.transactions...)
	if err != nil {
		p.keepNotices(err.SuccessfulIndices)
	}
	p.notify()
	if err != nil {
		return fmt.Errorf("a batch of %d: %w", len(deltas), err)
	}
	return nil
}

// keepNotices keeps only the notices with successful transactions.
func (p *processor) keepNotices(indices []int) {
	kept := make([]notice, len(indices))
	for i, index := range indices {
		kept[i] = p.notices[index]
	}
	p.notices = kept
}

func (p *processor) note(n notice) { p.notices = append(p.notices, n) }

func (p *processor) notify() {
	for i := range p.notices {
		if n := &p.notices[i]; n.kind != deleted {
			p.mutations.AddObject(n.obj)
		}
	}
	p.distributor.distribute(p.notices)
}

func (p *processor) reset() {
	p.notices, p.transactions = reuse(p.notices), reuse(p.transactions)
}

// reuse empties a slice, or drops it if it is larger than scratchLimit. Memory
// beyond its length holds no references, because it is always emptied here.
func reuse[T any](s []T) []T {
	if cap(s) > scratchLimit {
		return nil
	}
	clear(s)
	return s[:0]
}
