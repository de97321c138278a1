package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/store"
)

// object is what the checks store.
type object struct {
	metav1.ObjectMeta

	values []string // in the indices value and late
	broken bool     // the functions of these indices fail
}

// newObject returns an object of the key NAMESPACE/NAME, or NAME.
func newObject(key string, version int, values ...string) *object {
	o := &object{values: values}
	o.Namespace, o.Name, _ = cache.SplitMetaNamespaceKey(key)
	o.ResourceVersion = strconv.Itoa(version)
	return o
}

// nameless has no key.
type nameless struct{}

var (
	keyOf     = cache.DeletionHandlingMetaNamespaceKeyFunc
	errBroken = errors.New("broken object")
)

func valuesOf(obj any) ([]string, error) {
	if o := obj.(*object); !o.broken {
		return o.values, nil
	}
	return nil, errBroken
}

// indexers returns those of a new store.
func indexers() cache.Indexers {
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "value": valuesOf}
}

// reference is the contract as a sequential store without indices.
type reference struct {
	objs     map[string]any
	indexers cache.Indexers
	version  string
}

var _ store.Store = (*reference)(nil)

func newReference() *reference { return &reference{objs: map[string]any{}, indexers: indexers()} }

func (r *reference) clone() *reference {
	return &reference{maps.Clone(r.objs), maps.Clone(r.indexers), r.version}
}

// String returns the state of a history. The resourceVersion is no part of it.
func (r *reference) String() string {
	return fmt.Sprint(read{call: "List"}.of(r), slices.Sorted(maps.Keys(r.indexers)))
}

func (r *reference) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	failed := &cache.TransactionError{TotalTransactions: len(txns)}
	var last any
	for i, txn := range txns {
		key, err := keyOf(txn.Object)
		if err != nil {
			failed.Errors = append(failed.Errors, cache.KeyError{Obj: txn.Object, Err: err})
			continue
		}
		last, failed.SuccessfulIndices = txn.Object, append(failed.SuccessfulIndices, i)
		if txn.Type == cache.TransactionTypeDelete {
			delete(r.objs, key)
		} else {
			r.objs[key] = txn.Object
		}
	}
	if m, err := meta.Accessor(last); err == nil {
		r.version = m.GetResourceVersion()
	}
	if len(failed.Errors) > 0 {
		return failed
	}
	return nil
}

func (r *reference) one(typ cache.TransactionType, obj any) error {
	if err := r.Transaction(cache.Transaction{Type: typ, Object: obj}); err != nil {
		return err.Errors[0]
	}
	return nil
}

func (r *reference) Add(obj any) error    { return r.one(cache.TransactionTypeAdd, obj) }
func (r *reference) Update(obj any) error { return r.one(cache.TransactionTypeUpdate, obj) }
func (r *reference) Delete(obj any) error { return r.one(cache.TransactionTypeDelete, obj) }

func (r *reference) Replace(list []any, version string) error {
	objs := map[string]any{}
	for _, obj := range list {
		key, err := keyOf(obj)
		if err != nil {
			return cache.KeyError{Obj: obj, Err: err}
		}
		objs[key] = obj
	}
	r.objs, r.version = objs, version
	return nil
}

func (r *reference) Bookmark(version string)              { r.version = version }
func (r *reference) LastStoreSyncResourceVersion() string { return r.version }
func (r *reference) Resync() error                        { return nil }
func (r *reference) List() []any                          { return slices.Collect(maps.Values(r.objs)) }
func (r *reference) ListKeys() []string                   { return slices.Collect(maps.Keys(r.objs)) }

func (r *reference) GetByKey(key string) (any, bool, error) {
	obj, ok := r.objs[key]
	return obj, ok, nil
}

func (r *reference) Get(obj any) (any, bool, error) {
	key, err := keyOf(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return r.GetByKey(key)
}

// with returns the objects that have one of the values, by key.
func (r *reference) with(index string, values ...string) (map[string]any, error) {
	f, ok := r.indexers[index]
	if !ok {
		return nil, errors.New("no such index")
	}
	found := map[string]any{}
	for key, obj := range r.objs {
		have, err := f(obj)
		if err != nil {
			panic(err)
		}
		if slices.ContainsFunc(have, func(v string) bool { return slices.Contains(values, v) }) {
			found[key] = obj
		}
	}
	return found, nil
}

func (r *reference) ByIndex(index, value string) ([]any, error) {
	found, err := r.with(index, value)
	return slices.Collect(maps.Values(found)), err
}

func (r *reference) IndexKeys(index, value string) ([]string, error) {
	found, err := r.with(index, value)
	return slices.Sorted(maps.Keys(found)), err
}

func (r *reference) Index(index string, obj any) ([]any, error) {
	f, ok := r.indexers[index]
	if !ok {
		return nil, errors.New("no such index")
	}
	values, err := f(obj)
	if err != nil {
		return nil, err
	}
	found, err := r.with(index, values...)
	return slices.Collect(maps.Values(found)), err
}

func (r *reference) ListIndexFuncValues(index string) []string {
	all := map[string]bool{}
	for _, obj := range r.objs {
		if f, ok := r.indexers[index]; ok {
			values, _ := f(obj)
			for _, v := range values {
				all[v] = true
			}
		}
	}
	return slices.Collect(maps.Keys(all))
}

func (r *reference) GetIndexers() cache.Indexers { return r.indexers }

func (r *reference) AddIndexers(more cache.Indexers) error {
	for name := range more {
		if _, taken := r.indexers[name]; taken {
			return errors.New("indexer conflict")
		}
	}
	maps.Copy(r.indexers, more)
	return nil
}

// read is a call that reads.
type read struct{ call, index, arg string }

// of makes the call and returns its result in words, sorted where the contract leaves the order open.
// An object is KEY@VERSION.
func (r read) of(s store.Store) []string {
	switch r.call {
	case "Get":
		return found(s.Get(newObject(r.arg, 0)))
	case "GetByKey":
		return found(s.GetByKey(r.arg))
	case "List":
		return listed(s.List(), nil)
	case "ListKeys":
		return slices.Sorted(slices.Values(s.ListKeys()))
	case "ByIndex":
		return listed(s.ByIndex(r.index, r.arg))
	case "Index": // by an object with the values of arg
		return listed(s.Index(r.index, probe(r.arg)))
	case "IndexKeys":
		keys, err := s.IndexKeys(r.index, r.arg)
		if err != nil {
			return []string{"error"}
		}
		return keys
	case "ListIndexFuncValues":
		return slices.Sorted(slices.Values(s.ListIndexFuncValues(r.index)))
	case "GetIndexers":
		return slices.Sorted(maps.Keys(s.GetIndexers()))
	case "LastStoreSyncResourceVersion":
		return []string{s.LastStoreSyncResourceVersion()}
	}
	panic("unknown call " + r.call)
}

// probe returns an object with the values of a list, "" for none and "broken" for a broken object.
func probe(list string) *object {
	o := newObject("a/probe", 0, strings.FieldsFunc(list, func(c rune) bool { return c == ',' })...)
	o.broken = list == "broken"
	return o
}

func found(obj any, exists bool, err error) []string {
	switch {
	case err != nil:
		return []string{"error"}
	case !exists && obj == nil:
		return nil
	}
	return []string{word(obj)}
}

func listed(objs []any, err error) []string {
	if err != nil {
		return []string{"error"}
	}
	words := make([]string, 0, len(objs))
	for _, obj := range objs {
		words = append(words, word(obj))
	}
	slices.Sort(words)
	return words
}

func word(obj any) string {
	key, err := keyOf(obj)
	if err != nil {
		return fmt.Sprint(obj)
	}
	if o, ok := obj.(*object); ok {
		return key + "@" + o.ResourceVersion
	}
	return "tombstone " + key
}

// The names and values that reads ask for. Some are never stored.
var (
	indexNames = []string{cache.NamespaceIndex, "value", "late", "none"}
	values     = []string{"", "a", "b", "x", "y", "z", "nothing"}
	probes     = []string{"", "x", "x,y", "x,x,z", "nothing", "nothing,y", "broken"}
	keys       = []string{"k0", "k1", "a/k0", "a/k1", "b/k0", "b/k1"}
)

// reads are all calls that read, on all of these.
var reads = func() []read {
	all := []read{{call: "List"}, {call: "ListKeys"}, {call: "GetIndexers"}, {call: "LastStoreSyncResourceVersion"}}
	for _, key := range append(keys, "nothing") {
		all = append(all, read{call: "Get", arg: key}, read{call: "GetByKey", arg: key})
	}
	for _, name := range indexNames {
		all = append(all, read{call: "ListIndexFuncValues", index: name})
		for _, v := range values {
			all = append(all, read{"ByIndex", name, v}, read{"IndexKeys", name, v})
		}
		for _, p := range probes {
			all = append(all, read{"Index", name, p})
		}
	}
	return all
}()
