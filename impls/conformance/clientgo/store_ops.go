package clientgo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/store"
)

// object is what the checks store. The index functions value and late return its values, and fail for
// the value broken.
type object struct {
	metav1.ObjectMeta

	values []string
}

func newObject(key string, version int, values ...string) *object {
	o := &object{values: values}
	o.Namespace, o.Name, _ = cache.SplitMetaNamespaceKey(key)
	o.ResourceVersion = strconv.Itoa(version)
	return o
}

var (
	storeKey  = cache.DeletionHandlingMetaNamespaceKeyFunc
	errBroken = errors.New("broken object")
)

func valuesOf(obj any) ([]string, error) {
	if o := obj.(*object); !slices.Contains(o.values, "broken") {
		return o.values, nil
	}
	return nil, errBroken
}

// indexers returns those of a new store.
func indexers() cache.Indexers {
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "value": valuesOf}
}

// model is the contract as a sequential machine: a store of client-go that one goroutine calls.
type storeModel struct{ store.Store }

func newStoreModel() storeModel {
	return storeModel{cache.NewIndexer(storeKey, indexers()).(store.Store)}
}

func (m storeModel) clone() storeModel {
	c := storeModel{cache.NewIndexer(storeKey, maps.Clone(m.GetIndexers())).(store.Store)}
	_ = c.Replace(m.List(), m.LastStoreSyncResourceVersion())
	return c
}

// String returns the state of a history.
func (m storeModel) String() string {
	return fmt.Sprint(storeRead{call: "List"}.of(m), storeRead{call: "GetIndexers"}.of(m), m.LastStoreSyncResourceVersion())
}

// storeCall is a call that writes, in words, and the version of its objects:
//
//	add a/k0=x,y                      an object with two values
//	update !                          an object without a key
//	delete ~a/k0                      by its tombstone
//	transact a/k0=x +k1 -a/k1 ~b/k0   updates, adds and deletes
//	replace a/k0 b/k0=x
//	bookmark 7
//	indexers late later               functions that return the object's values
//	transact a/0..9=x,v#              ten objects; # is the last digit of each
type storeCall struct {
	text    string
	version int
}

// apply makes the call.
func (o storeCall) apply(s store.Store) error {
	fields := strings.Fields(o.text)
	var txns []cache.Transaction
	var objs []any
	more := cache.Indexers{}
	for _, w := range expanded(fields[1:]) {
		txn := cache.Transaction{Type: cache.TransactionTypeUpdate, Object: objectOf(strings.TrimLeft(w, "+-"), o.version)}
		switch w[0] {
		case '+':
			txn.Type = cache.TransactionTypeAdd
		case '-', '~':
			txn.Type = cache.TransactionTypeDelete
		}
		txns, objs = append(txns, txn), append(objs, txn.Object)
		more[w] = valuesOf
	}
	switch fields[0] {
	case "add":
		return s.Add(objs[0])
	case "update":
		return s.Update(objs[0])
	case "delete":
		return s.Delete(objs[0])
	case "transact":
		if err := s.Transaction(txns...); err != nil {
			return err
		}
		return nil
	case "replace":
		return s.Replace(objs, strconv.Itoa(o.version))
	case "bookmark":
		s.Bookmark(strings.Join(fields[1:], ""))
		return nil
	case "indexers":
		return s.AddIndexers(more)
	}
	panic("unknown call " + o.text)
}

// expanded replaces each word of a range by those of its keys.
func expanded(words []string) (all []string) {
	for _, w := range words {
		from, rest, ranges := strings.Cut(w, "..")
		if !ranges {
			all = append(all, w)
			continue
		}
		namespace, first, _ := strings.Cut(from, "/")
		last, values, _ := strings.Cut(rest, "=")
		n, _ := strconv.Atoi(first)
		for m, _ := strconv.Atoi(last); n <= m; n++ {
			all = append(all, fmt.Sprintf("%s/%d=%s", namespace, n, strings.ReplaceAll(values, "#", strconv.Itoa(n%10))))
		}
	}
	return all
}

func objectOf(word string, version int) any {
	key, list, _ := strings.Cut(word, "=")
	bare := strings.TrimPrefix(key, "~")
	if bare == "!" {
		return nameless{}
	}
	obj := newObject(bare, version, strings.FieldsFunc(list, func(c rune) bool { return c == ',' })...)
	if bare != key {
		return cache.DeletedFinalStateUnknown{Key: bare, Obj: obj}
	}
	return obj
}

func errorWords(err error) string {
	var transaction *cache.TransactionError
	switch {
	case err == nil:
		return "nil"
	case errors.As(err, &transaction):
		words := fmt.Sprint(transaction.SuccessfulIndices, " of ", transaction.TotalTransactions)
		for _, err := range transaction.Errors {
			words += ", " + errorWords(err)
		}
		return words
	case errors.As(err, new(cache.KeyError)):
		return "a KeyError"
	default:
		return "an error"
	}
}

// randomOp draws a call that writes some of the keys, each once if they are to be distinct.
func randomOp(intn func(int) int, keys []string, distinct bool) string {
	pick := func(of ...string) string { return of[intn(len(of))] }
	verb := pick("add", "update", "delete", "transact", "transact", "transact", "replace", "bookmark 7", "indexers late", "indexers value later")
	text, used := verb, map[string]bool{}
	for range map[string]int{"add": 1, "update": 1, "delete": 1, "transact": intn(5), "replace": intn(5)}[verb] {
		key := pick(keys...)
		if distinct && used[key] {
			continue
		}
		used[key] = true
		prefix := ""
		switch verb {
		case "transact":
			prefix = pick("", "", "+", "-", "-", "~")
		case "delete":
			prefix = pick("", "~")
		}
		text += " " + prefix + key + pick("", "=x", "=y", "=x,y", "=y,y,z")
	}
	return text
}

// storeRead is a call that reads.
type storeRead struct{ call, index, arg string }

// of makes the call and returns its result in words, sorted where the contract leaves the order open.
func (r storeRead) of(s store.Store) []string {
	var objs []any
	var keys []string
	var err error
	switch r.call {
	case "Get":
		objs, err = one(s.Get(objectOf(r.arg, 0)))
	case "GetByKey":
		objs, err = one(s.GetByKey(r.arg))
	case "List":
		objs = s.List()
	case "ByIndex":
		objs, err = s.ByIndex(r.index, r.arg)
	case "Index": // by an object with these values
		objs, err = s.Index(r.index, objectOf("a/probe="+r.arg, 0))
	case "IndexKeys":
		keys, err = s.IndexKeys(r.index, r.arg)
	case "ListKeys":
		keys = s.ListKeys()
	case "ListIndexFuncValues":
		keys = s.ListIndexFuncValues(r.index)
	case "GetIndexers":
		keys = slices.Collect(maps.Keys(s.GetIndexers()))
	case "LastStoreSyncResourceVersion":
		keys = []string{s.LastStoreSyncResourceVersion()}
	}
	if err != nil {
		return []string{"error"}
	}
	keys = scribbled(keys, "scribble")
	for _, obj := range scribbled(objs, "scribble") {
		keys = append(keys, storeWord(obj))
	}
	if r.call != "IndexKeys" {
		slices.Sort(keys)
	}
	return keys
}

// scribbled returns a copy of a list that a read has returned, and changes the list. So a later read shows
// whether the list is the store's, or another caller's too.
func scribbled[T any](list []T, scribble T) []T {
	own := slices.Clone(list)
	for i := range list {
		list[i] = scribble
	}
	_ = append(list, scribble)
	return own
}

func one(obj any, exists bool, err error) ([]any, error) {
	if !exists && obj == nil {
		return nil, err
	}
	return []any{obj}, err
}

// storeWord returns an object as KEY@VERSION=VALUES.
func storeWord(obj any) string {
	o, ok := obj.(*object)
	if !ok {
		return fmt.Sprint(obj)
	}
	return cache.MetaObjectToName(o).String() + "@" + o.ResourceVersion + "=" + strings.Join(o.values, ",")
}

// keys are those that are stored. storeReads are all reads that read, of stored and unknown keys, names and
// values.
var (
	keys       = []string{"k0", "k1", "a/k0", "a/k1", "b/k0", "b/k1"}
	storeReads = func() []storeRead {
		all := []storeRead{{call: "List"}, {call: "ListKeys"}, {call: "GetIndexers"}, {call: "LastStoreSyncResourceVersion"}}
		for _, key := range append([]string{"!", "unknown"}, keys...) {
			all = append(all, storeRead{call: "Get", arg: key}, storeRead{call: "GetByKey", arg: key})
		}
		for _, name := range []string{cache.NamespaceIndex, "value", "late", "unknown"} {
			all = append(all, storeRead{call: "ListIndexFuncValues", index: name})
			for _, v := range []string{"", "a", "b", "x", "y", "z", "unknown"} {
				all = append(all, storeRead{"ByIndex", name, v}, storeRead{"IndexKeys", name, v}, storeRead{"Index", name, v})
			}
			for _, v := range []string{"x,y", "x,x,z", "unknown,y", "broken"} {
				all = append(all, storeRead{"Index", name, v})
			}
		}
		return all
	}()
)
