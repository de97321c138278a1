package store

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// engine stores objects by key and finds them by the values of index functions. Variants implement
// it; [base] makes a [Store] of it. All calls may come from many goroutines, but those that write come
// from one at a time.
type engine interface {
	get(key string) (obj any, exists bool)
	list() []any
	listKeys() []string

	// The names of indices below are those of indices that addIndexers has added.

	byIndex(name, value string) []any
	// byValues returns the objects with at least one of several values, each object once.
	byValues(name string, values []string) []any
	indexKeys(name, value string) []string // in any order
	indexValues(name string) []string

	// write makes the writes in order, and sets their old. A panic of an index function passes through it and leaves the
	// engine usable.
	write(batch []write)
	// replace makes the batch, which has no removals, the whole contents. The last write of a key wins.
	replace(batch []write)
	// addIndexers indexes what is stored by further functions, whose names are not taken. After a
	// panic of a function the engine is as before.
	addIndexers(more cache.Indexers)
}

// write stores an object at a key, or removes the key.
type write struct {
	key    string
	obj    any // in a removal, the object that the caller gave
	remove bool
	// old is what engine.write has replaced or removed; nil for nothing.
	old any
}

// base makes a [Store] of an [engine]. It does what `cache` (tools/cache/store.go) and the ends of
// the calls of threadSafeMap (thread_safe_store.go, both client-go v0.37.2) do around the contents:
// keys, errors, indexers and resourceVersions.
type base struct {
	engine
	keyFunction cache.KeyFunc
	// indexers is replaced, never changed. Its functions are in the engine before they are here.
	indexers atomic.Pointer[cache.Indexers]
	// versions is a store of client-go that stays empty. Its Bookmark keeps the resourceVersion and
	// sets the metric; so the default metrics provider and the feature gate are client-go's own.
	versions cache.Store
	writer   sync.Mutex // held by each write
	adding   sync.Mutex // serialises AddIndexers
}

var (
	_ Store   = (*base)(nil)
	_ Swapper = (*base)(nil)
)

// newBase returns a store over an engine without objects and indices. The options are complete.
func newBase(o Options, e engine) *base {
	s := &base{
		engine: e, keyFunction: o.KeyFunction,
		versions: cache.NewStore(o.KeyFunction, cache.WithStoreMetrics(o.Identifier, o.MetricsProvider)),
	}
	indexers := maps.Clone(o.Indexers)
	if indexers == nil {
		indexers = cache.Indexers{}
	}
	e.addIndexers(indexers)
	s.indexers.Store(&indexers)
	return s
}

// apply makes the writes and takes the resourceVersion of the last object, if it has metadata.
func (s *base) apply(batch []write) {
	last := batch[len(batch)-1].obj
	s.writer.Lock()
	defer s.writer.Unlock()
	s.write(batch)
	if object, err := meta.Accessor(last); err == nil {
		s.versions.Bookmark(object.GetResourceVersion())
	}
}

func (s *base) one(obj any, remove bool) error {
	key, err := s.keyFunction(obj)
	if err != nil {
		return cache.KeyError{Obj: obj, Err: err}
	}
	s.apply([]write{{key: key, obj: obj, remove: remove}})
	return nil
}

func (s *base) Add(obj any) error    { return s.one(obj, false) }
func (s *base) Update(obj any) error { return s.one(obj, false) }
func (s *base) Delete(obj any) error { return s.one(obj, true) }

// Transaction makes the writes in order. It leaves out those whose object has no key, and returns an
// error with them.
func (s *base) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	return s.Swap(nil, txns...)
}

// Swap is Transaction, and says what each write replaced or removed.
func (s *base) Swap(old []any, txns ...cache.Transaction) *cache.TransactionError {
	batch := make([]write, 0, len(txns))
	clear(old)
	var failed *cache.TransactionError
	for i, txn := range txns {
		key, err := s.keyFunction(txn.Object)
		if err != nil {
			if failed == nil {
				failed = &cache.TransactionError{SuccessfulIndices: upTo(i), TotalTransactions: len(txns)}
			}
			failed.Errors = append(failed.Errors, cache.KeyError{Obj: txn.Object, Err: err})
			continue
		}
		if failed != nil {
			failed.SuccessfulIndices = append(failed.SuccessfulIndices, i)
		}
		batch = append(batch, write{key: key, obj: txn.Object, remove: txn.Type == cache.TransactionTypeDelete})
	}
	if len(batch) > 0 {
		s.apply(batch)
	}
	if old != nil {
		for i := range batch {
			n := i
			if failed != nil {
				n = failed.SuccessfulIndices[i]
			}
			old[n] = batch[i].old
		}
	}
	return failed
}

// upTo returns the numbers below n.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// Replace makes the list the whole contents. After an error nothing has changed.
func (s *base) Replace(list []any, resourceVersion string) error {
	batch := make([]write, len(list))
	for i, obj := range list {
		key, err := s.keyFunction(obj)
		if err != nil {
			return cache.KeyError{Obj: obj, Err: err}
		}
		batch[i] = write{key: key, obj: obj}
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	s.replace(batch)
	s.versions.Bookmark(resourceVersion)
	return nil
}

func (s *base) Bookmark(resourceVersion string) {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.versions.Bookmark(resourceVersion)
}

// LastStoreSyncResourceVersion waits for a write, as client-go's does: a reader may have found the write's objects already.
func (s *base) LastStoreSyncResourceVersion() string {
	s.writer.Lock()
	defer s.writer.Unlock()
	return s.versions.LastStoreSyncResourceVersion()
}
func (s *base) Resync() error { return nil }

func (s *base) GetByKey(key string) (any, bool, error) {
	obj, exists := s.get(key)
	return obj, exists, nil
}

func (s *base) Get(obj any) (any, bool, error) {
	key, err := s.keyFunction(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return s.GetByKey(key)
}

func (s *base) List() []any        { return s.list() }
func (s *base) ListKeys() []string { return s.listKeys() }

// index returns the function of an index.
func (s *base) index(name string) (cache.IndexFunc, error) {
	if f := (*s.indexers.Load())[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("Index with name %s does not exist", name)
}

func (s *base) Index(name string, obj any) ([]any, error) {
	f, err := s.index(name)
	if err != nil {
		return nil, err
	}
	values, err := f(obj)
	if err != nil {
		return nil, err
	}
	if len(values) == 1 {
		return s.byIndex(name, values[0]), nil
	}
	return s.byValues(name, values), nil
}

func (s *base) ByIndex(name, value string) ([]any, error) {
	if _, err := s.index(name); err != nil {
		return nil, err
	}
	return s.byIndex(name, value), nil
}

// IndexKeys returns the keys in order, as client-go's does.
func (s *base) IndexKeys(name, value string) ([]string, error) {
	if _, err := s.index(name); err != nil {
		return nil, err
	}
	keys := s.indexKeys(name, value)
	slices.Sort(keys)
	return keys, nil
}

func (s *base) ListIndexFuncValues(name string) []string {
	if _, err := s.index(name); err != nil {
		return []string{}
	}
	return s.indexValues(name)
}

// GetIndexers returns a copy.
func (s *base) GetIndexers() cache.Indexers { return maps.Clone(*s.indexers.Load()) }

func (s *base) AddIndexers(more cache.Indexers) error {
	s.adding.Lock()
	defer s.adding.Unlock()
	indexers := s.GetIndexers()
	have, added := sets.KeySet(indexers), sets.KeySet(more)
	if taken := have.Intersection(added); len(taken) > 0 {
		return fmt.Errorf("indexer conflict: %v", taken)
	}
	maps.Copy(indexers, more)
	s.writer.Lock()
	defer s.writer.Unlock()
	s.addIndexers(maps.Clone(more))
	s.indexers.Store(&indexers)
	return nil
}

// valuesOf returns the values of an object in an index. Like client-go's updateSingleIndex, it
// panics if the function fails, and gives a nil object no values.
func valuesOf(name string, f cache.IndexFunc, key string, obj any) []string {
	if obj == nil {
		return nil
	}
	values, err := f(obj)
	if err != nil {
		panic(fmt.Errorf("unable to calculate an index entry for key %q on index %q: %w", key, name, err))
	}
	return values
}
