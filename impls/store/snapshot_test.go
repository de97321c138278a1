package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// object has values for the index "values".
type object struct {
	metav1.ObjectMeta
	values []string
}

func newObject(number, version int, values ...string) *object {
	return &object{metav1.ObjectMeta{
		Namespace: fmt.Sprint("ns", number%3), Name: fmt.Sprint("name", number), ResourceVersion: fmt.Sprint(version),
	}, values}
}

func valuesIndex(obj any) ([]string, error) { return obj.(*object).values, nil }

func nameIndex(obj any) ([]string, error) { return []string{obj.(*object).Name}, nil }

var errIndex = errors.New("index function fails")

func newStore(t testing.TB, name string, indexers cache.Indexers) Store {
	s, err := New(name, Options{Indexers: indexers})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contents is all that the reads of a store return, in order.
func contents(s Store) map[string][]string {
	all := map[string][]string{"keys": s.ListKeys(), "list": describe(s.List())}
	for name := range s.GetIndexers() {
		values := s.ListIndexFuncValues(name)
		all[name] = values
		for _, value := range values {
			objects, err := s.ByIndex(name, value)
			if err != nil {
				panic(err)
			}
			all[name+"="+value] = describe(objects)
			keys, err := s.IndexKeys(name, value)
			if err != nil {
				panic(err)
			}
			all["keys of "+name+"="+value] = keys
		}
	}
	for _, list := range all {
		slices.Sort(list)
	}
	for _, key := range all["keys"] {
		obj, exists, err := s.GetByKey(key)
		if err != nil || !exists {
			panic("no object at listed key " + key)
		}
		all["get"] = append(all["get"], key+"="+describe([]any{obj})[0])
	}
	return all
}

func describe(objects []any) []string {
	list := make([]string, 0, len(objects))
	for _, obj := range objects {
		o := obj.(*object)
		list = append(list, o.Namespace+"/"+o.Name+"@"+o.ResourceVersion+fmt.Sprint(o.values))
	}
	return list
}

func compare(t interface{ Fatalf(string, ...any) }, got, want map[string][]string) {
	for _, what := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[what], want[what]) {
			t.Fatalf("%s: got %.300s, want %.300s", what, strings.Join(got[what], " "), strings.Join(want[what], " "))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d lists, want %d: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
}

// TestSnapshotIsClientGos plays the same calls on both, in sizes from one object to several pages.
// All versions that were published stay what they were.
func TestSnapshotIsClientGos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		indexers := func() cache.Indexers {
			return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "values": valuesIndex}
		}
		options := func() Options { return Options{Indexers: indexers()}.complete() }
		engine := newSnapshots()
		ours := Store(newBase(options(), engine, true))
		theirs, err := New("clientgo", options())
		if err != nil {
			t.Fatalf("clientgo: %v", err)
		}
		keys := rapid.SampledFrom([]int{1, 5, chunkSize + 1, 3 * chunkSize, 2*perPage + 1}).Draw(t, "keys")
		values := rapid.SampledFrom([]int{1, 2, 50, 10000}).Draw(t, "values")
		revision := 0
		draw := func(t *rapid.T) []*object {
			first := rapid.IntRange(0, keys-1).Draw(t, "first")
			n := min(rapid.IntRange(1, keys).Draw(t, "n"), rapid.IntRange(1, keys).Draw(t, "m"))
			step := rapid.SampledFrom([]int{0, 1, 1, 1, 7}).Draw(t, "step")
			shift := rapid.IntRange(0, 2).Draw(t, "shift")
			many := rapid.IntRange(0, 3).Draw(t, "values of an object")
			list := make([]*object, n)
			for i := range list {
				revision++
				of := make([]string, many)
				for j := range of {
					of[j] = fmt.Sprint((i + j*shift) % values)
				}
				list[i] = newObject((first+i*step)%keys, revision, of...)
			}
			return list
		}
		type old struct {
			version *snapshot
			want    map[string][]string
		}
		var history []old
		t.Repeat(map[string]func(*rapid.T){
			"transaction": func(t *rapid.T) {
				kinds := rapid.SampledFrom([][]cache.TransactionType{
					{cache.TransactionTypeUpdate}, {cache.TransactionTypeDelete},
					{cache.TransactionTypeAdd, cache.TransactionTypeDelete, cache.TransactionTypeUpdate},
				}).Draw(t, "kinds")
				var txns []cache.Transaction
				for i, o := range draw(t) {
					txns = append(txns, cache.Transaction{Type: kinds[i%len(kinds)], Object: o})
				}
				ours.Transaction(txns...)
				theirs.Transaction(txns...)
			},
			"single": func(t *rapid.T) {
				o := draw(t)[0]
				call := rapid.SampledFrom([]func(Store) error{
					func(s Store) error { return s.Add(o) },
					func(s Store) error { return s.Update(o) },
					func(s Store) error { return s.Delete(o) },
				}).Draw(t, "call")
				if err := errors.Join(call(ours), call(theirs)); err != nil {
					t.Fatal(err)
				}
			},
			"replace": func(t *rapid.T) {
				var list []any
				for _, o := range draw(t) {
					list = append(list, o)
				}
				revision++
				if err := errors.Join(ours.Replace(list, fmt.Sprint(revision)), theirs.Replace(list, fmt.Sprint(revision))); err != nil {
					t.Fatal(err)
				}
			},
			"index": func(t *rapid.T) {
				more := cache.Indexers{fmt.Sprint("late", rapid.IntRange(1, 2).Draw(t, "index")): nameIndex}
				got, want := ours.AddIndexers(more), theirs.AddIndexers(maps.Clone(more))
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("AddIndexers: got %v, want %v", got, want)
				}
			},
			"": func(t *rapid.T) {
				want := contents(theirs)
				compare(t, contents(ours), want)
				if got, want := ours.LastStoreSyncResourceVersion(), theirs.LastStoreSyncResourceVersion(); got != want {
					t.Fatalf("resourceVersion: got %s, want %s", got, want)
				}
				probe := draw(t)[0]
				for name := range theirs.GetIndexers() {
					got, err := ours.Index(name, probe)
					expect, err2 := theirs.Index(name, probe)
					a, b := describe(got), describe(expect)
					slices.Sort(a)
					slices.Sort(b)
					if err != nil || err2 != nil || !slices.Equal(a, b) {
						t.Fatalf("Index %s of %v: got %v (%v), want %v (%v)", name, probe.values, a, err, b, err2)
					}
				}
				history = append(history, old{engine.published.Load(), want})
				for _, o := range history[max(0, len(history)-4):] {
					compare(t, contents(viewOf(ours, o.version)), o.want)
				}
			},
		})
	})
}

// viewOf returns a store that has a version as its contents.
func viewOf(s Store, v *snapshot) Store {
	view := &snapshots{}
	view.published.Store(v)
	b := &base{engine: view}
	indexers := maps.Clone(s.GetIndexers())
	maps.DeleteFunc(indexers, func(name string, _ cache.IndexFunc) bool { return !slices.Contains(v.names, name) })
	b.indexers.Store(&indexers)
	return b
}
