package cache

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// WatchlabStore builds the store under test; nil means upstream's. The file variants_test.go sets it.
var WatchlabStore func(KeyFunc, Indexers) WatchlabIndexer

type WatchlabIndexer interface {
	Indexer
	TransactionStore
}

func newAdaptedStore(key KeyFunc, opts ...StoreOption) Store {
	if WatchlabStore == nil {
		return NewStore(key, opts...)
	}
	return newAdaptedIndexer(key, Indexers{}, opts...)
}

func newAdaptedIndexer(key KeyFunc, indexers Indexers, opts ...StoreOption) Indexer {
	switch {
	case WatchlabStore == nil:
		return NewIndexer(key, indexers, opts...)
	case len(opts) > 0:
		panic("a store with options is not adapted: add the test to whiteBox")
	}
	return WatchlabStore(key, indexers)
}

// adaptedThreadSafeStore stands for threadSafeMap, whose callers give the keys.
type adaptedThreadSafeStore struct {
	store WatchlabIndexer
	index adaptedIndex
}

// keyedObject is what it stores.
type keyedObject struct {
	key string
	obj any
}

// GetObjectMeta returns the metadata of the object, for its resourceVersion.
func (k keyedObject) GetObjectMeta() metav1.Object {
	m, _ := meta.Accessor(k.obj)
	return m
}

// newAdaptedThreadSafeStore returns what the tests assert to be an adaptedThreadSafeStore.
func newAdaptedThreadSafeStore(indexers Indexers, _ Indices) any {
	unwrapping := Indexers{}
	for name, f := range indexers {
		unwrapping[name] = func(obj any) ([]string, error) { return f(obj.(keyedObject).obj) }
	}
	key := func(obj any) (string, error) { return obj.(keyedObject).key, nil }
	s := newAdaptedIndexer(key, unwrapping).(WatchlabIndexer)
	return &adaptedThreadSafeStore{s, adaptedIndex{s}}
}

func (s *adaptedThreadSafeStore) Add(key string, obj any) { _ = s.store.Add(keyedObject{key, obj}) }
func (s *adaptedThreadSafeStore) Update(key string, obj any) {
	_ = s.store.Update(keyedObject{key, obj})
}
func (s *adaptedThreadSafeStore) Delete(key string) { s.DeleteWithObject(key, nil) }
func (s *adaptedThreadSafeStore) DeleteWithObject(key string, obj any) {
	_ = s.store.Delete(keyedObject{key, obj})
}
func (s *adaptedThreadSafeStore) LastStoreSyncResourceVersion() string {
	return s.store.LastStoreSyncResourceVersion()
}

func (s *adaptedThreadSafeStore) Replace(items map[string]any, version string) {
	var list []any
	for key, obj := range items {
		list = append(list, keyedObject{key, obj})
	}
	_ = s.store.Replace(list, version)
}

func (s *adaptedThreadSafeStore) Transaction(txns ...ThreadSafeStoreTransaction) {
	var keyed []Transaction
	for _, t := range txns {
		keyed = append(keyed, Transaction{Object: keyedObject{t.Key, t.Object}, Type: t.Type})
	}
	if err := s.store.Transaction(keyed...); err != nil {
		panic(err)
	}
}

// adaptedIndex stands for storeIndex, whose indices the tests read.
type adaptedIndex struct{ store Indexer }

func (i adaptedIndex) indices() Indices {
	all := Indices{}
	for name := range i.store.GetIndexers() {
		all[name] = index{}
		for _, value := range i.store.ListIndexFuncValues(name) {
			keys, err := i.store.IndexKeys(name, value)
			if err != nil {
				panic(err)
			}
			all[name][value] = sets.New(keys...)
		}
	}
	return all
}
