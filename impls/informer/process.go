package informer

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/store"
)

// processor stores the deltas of the queue in the indexer and then notifies the
// distributor (client-go v0.37, controller.go, processDeltas and
// processDeltasInBatch, and shared_informer.go, OnAdd, OnUpdate, OnDelete).
//
// It keeps only the objects, neither the slice of deltas nor the list of a
// ReplacedAll, so that a queue can reuse them.
type processor struct {
	indexer     cache.Indexer
	swapper     store.Swapper // nil if the indexer is none
	transacts   bool          // ProcessBatch can be used
	distributor *distributor
	mutations   cache.MutationDetector

	// mu is held from the change of the indexer to the notification of the
	// distributor, so that a handler added in between misses nothing.
	mu sync.Mutex
	// notices, transactions and old are buffers that each pop reuses.
	notices      []notice
	transactions []cache.Transaction
	old          []any // what each transaction replaced or deleted
}

const scratchLimit = 4 * 1024 // of a buffer that is reused, as lists of all objects are rare

func newProcessor(indexer cache.Indexer, d *distributor, m cache.MutationDetector) *processor {
	p := &processor{indexer: indexer, distributor: d, mutations: m}
	p.swapper, _ = indexer.(store.Swapper)
	_, p.transacts = indexer.(cache.TransactionStore)
	return p
}

// Process stores the deltas of a Pop and notifies the handlers.
func (p *processor) Process(obj any, isInInitialList bool) error {
	deltas, ok := obj.(cache.Deltas)
	if !ok {
		return fmt.Errorf("the queue handed over a %T (want cache.Deltas)", obj)
	}
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
		t, err := transaction(d)
		if err != nil {
			return err
		}
		old, err := p.store(t)
		if err != nil {
			return err
		}
		p.note(noticeOf(t, old, isInInitialList))
	}
	return nil
}

func wrongContent(d cache.Delta) error {
	return fmt.Errorf("a delta of type %s holds a %T", d.Type, d.Object)
}

// transaction returns the transaction of a delta of one object.
func transaction(d cache.Delta) (cache.Transaction, error) {
	t := cache.Transaction{Object: d.Object}
	switch d.Type {
	case cache.Added:
		t.Type = cache.TransactionTypeAdd
	case cache.Updated, cache.Replaced, cache.Sync:
		t.Type = cache.TransactionTypeUpdate
	case cache.Deleted:
		t.Type = cache.TransactionTypeDelete
	default:
		return t, fmt.Errorf("a delta of type %q (want one of client-go v0.37)", d.Type)
	}
	return t, nil
}

// noticeOf returns the notice of a transaction that replaced or deleted old, nil for none.
func noticeOf(t cache.Transaction, old any, initial bool) notice {
	switch {
	case t.Type == cache.TransactionTypeDelete:
		return notice{kind: deleted, obj: t.Object}
	case old != nil:
		return update(old, t.Object)
	default:
		return notice{kind: added, initial: initial, obj: t.Object}
	}
}

// known returns the stored object that a transaction will replace; nil for none, and for a deletion,
// whose notice has the delta's. It sets the type to what the transaction does.
func (p *processor) known(t *cache.Transaction) any {
	if t.Type == cache.TransactionTypeDelete {
		return nil
	}
	// An object without a key is refused when it is stored.
	if old, exists, err := p.indexer.Get(t.Object); err == nil && exists {
		t.Type = cache.TransactionTypeUpdate
		return old
	}
	t.Type = cache.TransactionTypeAdd
	return nil
}

// store stores an object alone and returns what it replaced.
func (p *processor) store(t cache.Transaction) (any, error) {
	if p.swapper != nil {
		p.transactions = append(p.transactions[:0], t)
		if err := p.swap(); err != nil {
			return nil, err
		}
		return p.old[0], nil
	}
	old := p.known(&t)
	switch t.Type {
	case cache.TransactionTypeDelete:
		return nil, p.indexer.Delete(t.Object)
	case cache.TransactionTypeUpdate:
		return old, p.indexer.Update(t.Object)
	default:
		return nil, p.indexer.Add(t.Object)
	}
}

// swap stores p.transactions at once, and puts what they replaced into p.old.
func (p *processor) swap() *cache.TransactionError {
	p.old = slices.Grow(p.old[:0], len(p.transactions))[:len(p.transactions)]
	if p.swapper != nil {
		return p.swapper.Swap(p.old, p.transactions...)
	}
	for i := range p.transactions {
		p.old[i] = p.known(&p.transactions[i])
	}
	return p.indexer.(cache.TransactionStore).Transaction(p.transactions...)
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
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.reset()
	for _, d := range deltas {
		t, err := transaction(d)
		if err != nil {
			return err
		}
		p.transactions = append(p.transactions, t)
	}
	err := p.swap()
	for i, t := range p.transactions {
		p.note(noticeOf(t, p.old[i], isInInitialList))
	}
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
	p.notices, p.transactions, p.old = reuse(p.notices), reuse(p.transactions), reuse(p.old)
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
