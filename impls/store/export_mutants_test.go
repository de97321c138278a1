//go:build mutants

package store

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// Mutant is a variant with a deliberate bug.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the name of the subtest that must detect it.
	Check string
}

// Mutants returns one variant per bug. Each is a variant of this package with a method or an index
// function replaced.
func Mutants() []Mutant {
	snapshot, perObject := snapshotVariant(), concurrentMapVariant()
	return []Mutant{
		mutant("stale-index", "leaves an updated object under the values that it had", "an update moves an object between values", snapshot, newStaleIndex),
		mutant("lost-value", "indexes the first of several values", "no value, one and several", snapshot, newLostValue),
		mutant("listed-twice", "lists an object twice that has two of several values", "no value, one and several", snapshot, newListedTwice),
		mutant("first-of-key", "keeps the first object of a key that a Replace lists twice", "Replace is the whole contents", snapshot, newFirstOfKey),
		mutant("nothing-stored", "drops a Transaction that has an object without a key", "objects without a key", snapshot, newNothingStored),
		mutant("tombstone-version", "takes the resourceVersion of a tombstone", "the resourceVersion is that of the last write", snapshot, newTombstoneVersion),
		mutant("late-is-empty", "indexes late only what is written later", "a late AddIndexers indexes what is stored", snapshot, newLateIsEmpty),
		mutant("half-a-conflict", "adds the indexers in front of the one that is taken", "AddIndexers refuses a name that is taken", snapshot, newHalfAConflict),
		mutant("not-added-again", "drops an addition that follows a removal in a Transaction", "random operations", snapshot, newNotAddedAgain),
		mutant("shared-list", "returns one slice to all callers until the next write", "maps and slices are the caller's", snapshot, newSharedList),
		mutant("caller-map", "uses the caller's map of indexers", "maps and slices are the caller's", clientgoVariant(), newCallerMap),
		mutant("lock-left", "leaves its lock held when an index function panics", "index functions that fail", snapshot, newLockLeft),
		mutant("objects-kept", "keeps references to deleted objects", "old objects can be collected", snapshot, newObjectsKept),
		mutant("goroutine-left", "starts a goroutine that does not end", "no goroutine is left", snapshot, newGoroutineLeft),
		mutant("readers-wait", "makes readers wait for the writer", "reads go on during a write", snapshot, newReadersWait),
		mutant("torn-transaction", "publishes each write of a Transaction", "lists during transactions", snapshot, newTornTransaction),
		mutant("torn-half", "publishes a Transaction in two halves", "linearizable", snapshot, newTornHalf),
		mutant("index-later", "publishes the objects before the indices", "lists during transactions", snapshot, newIndexLater),
		mutant("torn-replace", "replaces one object after the other", "lists during Replace", snapshot, newTornReplace),
		mutant("version-first", "publishes the resourceVersion before the objects", "lists during Replace", snapshot, newVersionFirst),
		mutant("empty-at-replace", "removes all objects before it stores those of a Replace", "lists during Replace", perObject, newEmptyAtReplace),
		mutant("gone-at-update", "updates an object by removing and adding it", "lists during transactions", perObject, newGoneAtUpdate),
		mutant("other-value", "lists an object that has lost the value meanwhile", "each key is linearizable", perObject, newOtherValue),
	}
}

func mutant(name, broken, check string, of Variant, build func(Options) Store) Mutant {
	return Mutant{
		Variant: Variant{Name: name, Summary: broken, Guarantees: of.Guarantees, New: func(o Options) (Store, error) {
			return build(o.complete()), nil
		}},
		Broken: broken, Check: check,
	}
}

func newSnapshotBase(o Options) *base { return newBase(o, newSnapshots(), true) }

// differently is a snapshot whose index functions are replaced.
type differently struct {
	*snapshots
	function func(cache.IndexFunc) cache.IndexFunc
}

func (e differently) addIndexers(more cache.Indexers) {
	changed := cache.Indexers{}
	for name, f := range more {
		changed[name] = e.function(f)
	}
	e.snapshots.addIndexers(changed)
}

func newStaleIndex(o Options) Store {
	return newBase(o, differently{newSnapshots(), func(f cache.IndexFunc) cache.IndexFunc {
		had := map[string][]string{}
		return func(obj any) ([]string, error) {
			values, err := f(obj)
			key, _ := o.KeyFunction(obj)
			had[key] = append(had[key], values...)
			return slices.Clone(had[key]), err
		}
	}}, true)
}

func newLostValue(o Options) Store {
	return newBase(o, differently{newSnapshots(), func(f cache.IndexFunc) cache.IndexFunc {
		return func(obj any) ([]string, error) {
			values, err := f(obj)
			return values[:min(1, len(values))], err
		}
	}}, true)
}

type lateIsEmpty struct {
	differently
	adding *bool
}

func newLateIsEmpty(o Options) Store {
	adding := new(bool)
	return newBase(o, lateIsEmpty{differently{newSnapshots(), func(f cache.IndexFunc) cache.IndexFunc {
		return func(obj any) ([]string, error) {
			if *adding {
				return nil, nil
			}
			return f(obj)
		}
	}}, adding}, true)
}

func (e lateIsEmpty) addIndexers(more cache.Indexers) {
	*e.adding = true
	e.differently.addIndexers(more)
	*e.adding = false
}

type listedTwice struct{ *snapshots }

func newListedTwice(o Options) Store { return newBase(o, listedTwice{newSnapshots()}, true) }

func (e listedTwice) byValues(name string, values []string) []any {
	list := []any{}
	for _, v := range slices.Compact(slices.Sorted(slices.Values(values))) {
		list = append(list, e.byIndex(name, v)...)
	}
	return list
}

type firstOfKey struct{ *snapshots }

func newFirstOfKey(o Options) Store { return newBase(o, firstOfKey{newSnapshots()}, true) }

func (e firstOfKey) replace(batch []write) {
	slices.Reverse(batch)
	e.snapshots.replace(batch)
}

type nothingStored struct{ *base }

func newNothingStored(o Options) Store { return nothingStored{newSnapshotBase(o)} }

func (s nothingStored) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	for _, txn := range txns {
		if _, err := s.keyFunction(txn.Object); err != nil {
			return &cache.TransactionError{TotalTransactions: len(txns), Errors: []error{cache.KeyError{Obj: txn.Object, Err: err}}}
		}
	}
	return s.base.Transaction(txns...)
}

type tombstoneVersion struct{ *base }

func newTombstoneVersion(o Options) Store { return tombstoneVersion{newSnapshotBase(o)} }

func (s tombstoneVersion) Delete(obj any) error {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	return s.base.Delete(obj)
}

type halfAConflict struct{ *base }

func newHalfAConflict(o Options) Store { return halfAConflict{newSnapshotBase(o)} }

func (s halfAConflict) AddIndexers(more cache.Indexers) error {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if err := s.base.AddIndexers(cache.Indexers{name: more[name]}); err != nil {
			return err
		}
	}
	return nil
}

type notAddedAgain struct{ *snapshots }

func newNotAddedAgain(o Options) Store { return newBase(o, notAddedAgain{newSnapshots()}, true) }

func (e notAddedAgain) write(batch []write) {
	removed := map[string]bool{}
	e.snapshots.write(slices.DeleteFunc(batch, func(w write) bool {
		removed[w.key] = removed[w.key] || w.remove
		return removed[w.key] && !w.remove
	}))
}

type sharedList struct {
	*snapshots
	last atomic.Pointer[[]any]
}

func newSharedList(o Options) Store { return newBase(o, &sharedList{snapshots: newSnapshots()}, true) }

func (e *sharedList) list() []any {
	if list := e.last.Load(); list != nil {
		return *list
	}
	list := e.snapshots.list()
	e.last.Store(&list)
	return list
}

func (e *sharedList) write(batch []write) {
	e.snapshots.write(batch)
	e.last.Store(nil)
}

// newCallerMap is what client-go's constructor does.
func newCallerMap(o Options) Store { return cache.NewIndexer(o.KeyFunction, o.Indexers).(Store) }

type lockLeft struct {
	*snapshots
	mu *sync.Mutex
}

func newLockLeft(o Options) Store {
	return newBase(o, lockLeft{newSnapshots(), new(sync.Mutex)}, false)
}

func (e lockLeft) write(batch []write) {
	e.mu.Lock()
	e.snapshots.write(batch)
	e.mu.Unlock()
}

func (e lockLeft) replace(batch []write) {
	e.mu.Lock()
	e.snapshots.replace(batch)
	e.mu.Unlock()
}

func (e lockLeft) addIndexers(more cache.Indexers) {
	e.mu.Lock()
	e.snapshots.addIndexers(more)
	e.mu.Unlock()
}

type objectsKept struct {
	*snapshots
	kept *[]any
}

func newObjectsKept(o Options) Store {
	return newBase(o, objectsKept{newSnapshots(), new([]any)}, true)
}

func (e objectsKept) write(batch []write) {
	for _, w := range batch {
		if obj, ok := e.get(w.key); ok && w.remove {
			*e.kept = append(*e.kept, obj)
		}
	}
	e.snapshots.write(batch)
}

func newGoroutineLeft(o Options) Store {
	ends := make(chan struct{})
	go func() { <-ends }()
	return newSnapshotBase(o)
}

type readersWait struct {
	*snapshots
	mu *sync.RWMutex
}

func newReadersWait(o Options) Store {
	return newBase(o, readersWait{newSnapshots(), new(sync.RWMutex)}, true)
}

func (e readersWait) list() []any {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.snapshots.list()
}

func (e readersWait) write(batch []write) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshots.write(batch)
}

type tornTransaction struct{ *snapshots }

func newTornTransaction(o Options) Store { return newBase(o, tornTransaction{newSnapshots()}, true) }

func (e tornTransaction) write(batch []write) {
	for i := range batch {
		e.snapshots.write(batch[i : i+1])
		runtime.Gosched()
	}
}

type tornHalf struct{ *snapshots }

func newTornHalf(o Options) Store { return newBase(o, tornHalf{newSnapshots()}, true) }

func (e tornHalf) write(batch []write) {
	half := len(batch) / 2
	e.snapshots.write(batch[:half])
	runtime.Gosched()
	e.snapshots.write(batch[half:])
}

// indexLater reads indices in a version that is published last.
type indexLater struct {
	*snapshots
	indexed *snapshots
}

func newIndexLater(o Options) Store {
	return newBase(o, indexLater{newSnapshots(), newSnapshots()}, true)
}

func (e indexLater) addIndexers(more cache.Indexers) {
	e.snapshots.addIndexers(more)
	e.indexed.published.Store(e.published.Load())
}

func (e indexLater) write(batch []write) {
	e.snapshots.write(batch)
	runtime.Gosched()
	e.indexed.published.Store(e.published.Load())
}

func (e indexLater) byIndex(name, value string) []any { return e.indexed.byIndex(name, value) }

type tornReplace struct{ *snapshots }

func newTornReplace(o Options) Store { return newBase(o, tornReplace{newSnapshots()}, true) }

func (e tornReplace) replace(batch []write) {
	listed := map[string]bool{}
	for i, w := range batch {
		listed[w.key] = true
		e.write(batch[i : i+1])
		runtime.Gosched()
	}
	for _, key := range e.listKeys() {
		if !listed[key] {
			e.write([]write{{key: key, remove: true}})
		}
	}
}

type versionFirst struct{ *base }

func newVersionFirst(o Options) Store { return versionFirst{newSnapshotBase(o)} }

func (s versionFirst) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	if len(txns) > 0 {
		if object, err := meta.Accessor(txns[len(txns)-1].Object); err == nil {
			s.Bookmark(object.GetResourceVersion())
		}
	}
	return s.base.Transaction(txns...)
}

type emptyAtReplace struct{ *concurrentMap }

func newEmptyAtReplace(o Options) Store {
	return newBase(o, emptyAtReplace{newConcurrentMap(newMapTable)}, false)
}

func (e emptyAtReplace) replace(batch []write) {
	e.concurrentMap.replace(nil)
	e.concurrentMap.replace(batch)
}

type goneAtUpdate struct{ *concurrentMap }

func newGoneAtUpdate(o Options) Store {
	return newBase(o, goneAtUpdate{newConcurrentMap(newMapTable)}, false)
}

func (e goneAtUpdate) write(batch []write) {
	for i, w := range batch {
		e.concurrentMap.write([]write{{key: w.key, obj: w.obj, remove: true}})
		e.concurrentMap.write(batch[i : i+1])
	}
}

type otherValue struct{ *concurrentMap }

func newOtherValue(o Options) Store {
	return newBase(o, otherValue{newConcurrentMap(newMapTable)}, false)
}

func (e otherValue) byIndex(name, value string) []any {
	list := []any{}
	for _, key := range e.indexKeys(name, value) {
		runtime.Gosched()
		if obj, ok := e.get(key); ok {
			list = append(list, obj)
		}
	}
	return list
}
