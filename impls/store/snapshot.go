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

func snapshotVariant() Variant {
	return Variant{
		Name:       "snapshot",
		Summary:    "immutable versions that share memory, published once a batch: reads take no lock",
		Guarantees: guarantees(true),
		New:        func(o Options) (Store, error) { return newSnapshots(o.complete()), nil },
	}
}

// snapshots is a [Store] that publishes an immutable version of its contents after each batch. A read
// loads the version once and then uses only that, so it takes no lock, and all that it returns is of
// one point in time. The writer edits a draft, which shares the memory of the published version but
// for the nodes that the batch changes (see [vector]).
//
// Objects have numbers from 0 to n-1, without gaps. What is found by key or by value is a number.
//
// Around the contents it does what `cache` (tools/cache/store.go) and the ends of the calls of threadSafeMap
// (thread_safe_store.go, both client-go v0.37.2) do: keys, errors, indexers and resourceVersions.
//
// Rejected: postings that hold the objects. A list would be a copy, but each update would copy a chunk
// in each index, and an index would take four times the memory.
type snapshots struct {
	keyFunction cache.KeyFunc
	// published is stored after the last write to what it points to, and read before the first read
	// of it. That is the only order that readers need.
	published atomic.Pointer[snapshot]
	// versions is a store of client-go that stays empty. Its Bookmark keeps the resourceVersion and
	// sets the metric; so the default metrics provider and the feature gate are client-go's own.
	versions cache.Store

	writer sync.Mutex // held by each write; guards the fields below
	draft  draft
	values [][]string // scratch
}

var (
	_ Store   = (*snapshots)(nil)
	_ Swapper = (*snapshots)(nil)
)

// write stores an object at a key, or removes the key.
type write struct {
	key    string
	obj    any // in a removal, the object that the caller gave
	remove bool
	old    any // what it has replaced or removed; nil for nothing
	index  int // in the transaction
}

// state is what a version and the draft have. Indices stand in the order of names and functions, which change with
// AddIndexers alone.
type state struct {
	keys    dictionary
	objects vector[any] // by number
	names   []string
	funcs   []cache.IndexFunc
}

// snapshot is an immutable state of the contents.
type snapshot struct {
	state
	indices []*snapshotIndex
}

// draft is the version that the next batch publishes.
type draft struct {
	state
	indices []*indexDraft
}

// newSnapshots returns an empty store. The options are complete.
func newSnapshots(o Options) *snapshots {
	s := &snapshots{
		keyFunction: o.KeyFunction,
		versions:    cache.NewStore(o.KeyFunction, cache.WithStoreMetrics(o.Identifier, o.MetricsProvider)),
	}
	s.published.Store(new(snapshot))
	s.addIndexers(o.Indexers)
	return s
}

// apply makes the writes and takes the resourceVersion of the last object, if it has metadata.
func (s *snapshots) apply(batch []write) {
	last := batch[len(batch)-1].obj
	s.writer.Lock()
	defer s.writer.Unlock()
	s.write(batch)
	if object, err := meta.Accessor(last); err == nil {
		s.versions.Bookmark(object.GetResourceVersion())
	}
}

func (s *snapshots) one(obj any, remove bool) error {
	key, err := s.keyFunction(obj)
	if err != nil {
		return cache.KeyError{Obj: obj, Err: err}
	}
	s.apply([]write{{key: key, obj: obj, remove: remove}})
	return nil
}

func (s *snapshots) Add(obj any) error    { return s.one(obj, false) }
func (s *snapshots) Update(obj any) error { return s.one(obj, false) }
func (s *snapshots) Delete(obj any) error { return s.one(obj, true) }

// Transaction makes the writes in order. It leaves out those whose object has no key, and returns an
// error with them.
func (s *snapshots) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	return s.Swap(nil, txns...)
}

// Swap is Transaction, and says what each write replaced or removed.
func (s *snapshots) Swap(old []any, txns ...cache.Transaction) *cache.TransactionError {
	batch := make([]write, 0, len(txns))
	clear(old)
	var failed *cache.TransactionError
	for i, txn := range txns {
		key, err := s.keyFunction(txn.Object)
		if err == nil {
			batch = append(batch, write{key: key, obj: txn.Object, remove: txn.Type == cache.TransactionTypeDelete, index: i})
			continue
		}
		if failed == nil {
			failed = &cache.TransactionError{SuccessfulIndices: []int{}, TotalTransactions: len(txns)}
		}
		failed.Errors = append(failed.Errors, cache.KeyError{Obj: txn.Object, Err: err})
	}
	if len(batch) > 0 {
		s.apply(batch)
	}
	for i := range batch {
		if old != nil {
			old[batch[i].index] = batch[i].old
		}
		if failed != nil {
			failed.SuccessfulIndices = append(failed.SuccessfulIndices, batch[i].index)
		}
	}
	return failed
}

// Replace makes the list the whole contents. After an error nothing has changed.
func (s *snapshots) Replace(list []any, resourceVersion string) error {
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

func (s *snapshots) Bookmark(resourceVersion string) {
	s.writer.Lock()
	defer s.writer.Unlock()
	s.versions.Bookmark(resourceVersion)
}

// LastStoreSyncResourceVersion waits for a write, as client-go's does: a reader may have found the write's objects already.
func (s *snapshots) LastStoreSyncResourceVersion() string {
	s.writer.Lock()
	defer s.writer.Unlock()
	return s.versions.LastStoreSyncResourceVersion()
}

func (s *snapshots) Resync() error { return nil }

func (s *snapshots) GetByKey(key string) (any, bool, error) {
	v := s.published.Load()
	if number, found := v.keys.find(hashOf(key), key); found {
		return v.objects.at(number), true, nil
	}
	return nil, false, nil
}

func (s *snapshots) Get(obj any) (any, bool, error) {
	key, err := s.keyFunction(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return s.GetByKey(key)
}

func (s *snapshots) List() []any {
	v := s.published.Load()
	list := make([]any, 0, v.keys.n)
	for objects := range v.objects.chunks(v.keys.n) {
		list = append(list, objects...)
	}
	return list
}

func (s *snapshots) ListKeys() []string { return s.published.Load().keys.all() }

// index returns an index and its function.
func (v *snapshot) index(name string) (*snapshotIndex, cache.IndexFunc, error) {
	if i := slices.Index(v.names, name); i >= 0 {
		return v.indices[i], v.funcs[i], nil
	}
	return nil, nil, fmt.Errorf("Index with name %s does not exist", name)
}

func (s *snapshots) Index(name string, obj any) ([]any, error) {
	v := s.published.Load()
	x, f, err := v.index(name)
	if err != nil {
		return nil, err
	}
	values, err := f(obj)
	if err != nil {
		return nil, err
	}
	if len(values) == 1 {
		return v.with(x, values[0]), nil
	}
	list, seen := []any{}, map[uint32]bool{}
	for _, value := range values {
		p := x.posting(value)
		for numbers := range p.chunks {
			for _, number := range numbers {
				if !seen[number] {
					seen[number] = true
					list = append(list, v.objects.at(number))
				}
			}
		}
	}
	return list, nil
}

func (s *snapshots) ByIndex(name, value string) ([]any, error) {
	v := s.published.Load()
	x, _, err := v.index(name)
	if err != nil {
		return nil, err
	}
	return v.with(x, value), nil
}

// with returns the objects with a value.
func (v *snapshot) with(x *snapshotIndex, value string) []any {
	p := x.posting(value)
	list := make([]any, 0, p.n)
	for numbers := range p.chunks {
		at := len(list)
		list = list[:at+len(numbers)]
		for i, number := range numbers {
			list[at+i] = v.objects.at(number)
		}
	}
	return list
}

// IndexKeys returns the keys in order, as client-go's does.
func (s *snapshots) IndexKeys(name, value string) ([]string, error) {
	v := s.published.Load()
	x, _, err := v.index(name)
	if err != nil {
		return nil, err
	}
	p := x.posting(value)
	list := make([]string, 0, p.n)
	for numbers := range p.chunks {
		for _, number := range numbers {
			list = append(list, v.keys.names.at(number))
		}
	}
	slices.Sort(list)
	return list, nil
}

func (s *snapshots) ListIndexFuncValues(name string) []string {
	x, _, err := s.published.Load().index(name)
	if err != nil {
		return []string{}
	}
	return x.values.all()
}

// GetIndexers returns a copy.
func (s *snapshots) GetIndexers() cache.Indexers {
	v := s.published.Load()
	indexers := make(cache.Indexers, len(v.names))
	for i, name := range v.names {
		indexers[name] = v.funcs[i]
	}
	return indexers
}

func (s *snapshots) AddIndexers(more cache.Indexers) error {
	s.writer.Lock()
	defer s.writer.Unlock()
	if taken := sets.New(s.draft.names...).Intersection(sets.KeySet(more)); len(taken) > 0 {
		return fmt.Errorf("indexer conflict: %v", taken)
	}
	s.addIndexers(more)
	return nil
}

// write calls the index functions first. So a panic of one changes nothing.
func (s *snapshots) write(batch []write) {
	d, old := &s.draft, s.published.Load()
	s.values = slices.Grow(s.values[:0], len(batch)*len(d.indices))
	defer func() { clear(s.values) }()
	for i := range batch {
		s.values = d.valuesOf(s.values, &batch[i])
	}
	for i := range batch {
		d.write(old, &batch[i], s.values[i*len(d.indices):])
	}
	s.published.Store(d.freeze())
}

// replace makes a new draft, which shares nothing with the published version.
func (s *snapshots) replace(batch []write) {
	d, old := draft{state: state{names: s.draft.names, funcs: s.draft.funcs}}, new(snapshot)
	for range d.names {
		d.indices = append(d.indices, newIndexDraft())
	}
	d.keys.resize(&old.keys, uint32(len(batch)+len(batch)/3))
	var values [][]string
	for i := range batch {
		values = d.valuesOf(values[:0], &batch[i])
		d.write(old, &batch[i], values)
	}
	s.published.Store(d.freeze())
	s.draft = d
}

// addIndexers indexes what is stored by further functions, whose names are not taken. After a panic of a function
// the store is as before.
func (s *snapshots) addIndexers(more cache.Indexers) {
	d, v := s.draft, s.published.Load()
	d.names, d.funcs, d.indices = slices.Clone(d.names), slices.Clone(d.funcs), slices.Clone(d.indices)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		f, x := more[name], newIndexDraft()
		for number := range v.keys.n {
			x.put(number, valuesOf(name, f, v.keys.names.at(number), v.objects.at(number)))
		}
		d.names, d.funcs, d.indices = append(d.names, name), append(d.funcs, f), append(d.indices, x)
	}
	s.published.Store(d.freeze())
	s.draft = d
}

// valuesOf appends the values of a written object in each index.
func (d *draft) valuesOf(values [][]string, w *write) [][]string {
	for i, f := range d.funcs {
		if w.remove {
			values = append(values, nil)
		} else {
			values = append(values, valuesOf(d.names[i], f, w.key, w.obj))
		}
	}
	return values
}

// write stores or removes an object with its values in each index. old is the published version.
func (d *draft) write(old *snapshot, w *write, values [][]string) {
	hash := hashOf(w.key)
	number, found := d.keys.find(hash, w.key)
	if found {
		w.old = d.objects.at(number)
	}
	switch {
	case w.remove && found:
		d.remove(old, number)
	case !w.remove:
		if !found {
			number = d.keys.add(&old.keys, hash, w.key)
		}
		*d.objects.edit(old.objects, number) = w.obj
		for i, x := range d.indices {
			x.put(number, values[i])
		}
	}
}

// remove removes an object. The last object takes its number.
func (d *draft) remove(old *snapshot, number uint32) {
	for _, x := range d.indices {
		x.remove(number)
	}
	d.keys.remove(&old.keys, number)
	if last := d.keys.n; last != number {
		*d.objects.edit(old.objects, number) = d.objects.at(last)
	}
	d.objects.pop(old.objects, d.keys.n)
}

// freeze returns the draft as a version. Later writes copy what they change of it.
func (d *draft) freeze() *snapshot {
	v := &snapshot{state: d.state, indices: make([]*snapshotIndex, len(d.indices))}
	for i, x := range d.indices {
		v.indices[i] = x.freeze()
	}
	return v
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
