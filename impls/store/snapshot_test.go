package store

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

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

// TestVariantsAreClientGos plays the same calls on a variant and on client-go's store, in sizes from one
// object to several pages. All versions that snapshot has published stay what they were.
func TestVariantsAreClientGos(t *testing.T) {
	for _, v := range Variants() {
		if !v.Baseline() {
			t.Run("impl="+v.Name, func(t *testing.T) { isClientGos(t, v.Name) })
		}
	}
}

func isClientGos(t *testing.T, variant string) {
	rapid.Check(t, func(t *rapid.T) {
		indexers := func() cache.Indexers {
			return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "values": valuesIndex}
		}
		options := func() Options { return Options{Indexers: indexers()}.complete() }
		ours, err := New(variant, options())
		theirs, err2 := New("clientgo", options())
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		engine, _ := ours.(*snapshots)
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
				_ = ours.Transaction(txns...)
				_ = theirs.Transaction(txns...)
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
				if engine == nil {
					return
				}
				history = append(history, old{engine.published.Load(), want})
				for _, o := range history[max(0, len(history)-4):] {
					compare(t, contents(viewOf(o.version)), o.want)
				}
			},
		})
	})
}

// viewOf returns a store that has a version as its contents.
func viewOf(v *snapshot) Store {
	view := &snapshots{}
	view.published.Store(v)
	return view
}

// fill returns a store with n objects in the three namespaces, each with the value "all" and one of its own.
func fill(t *testing.T, n int) *snapshots {
	s := newSnapshots(Options{Indexers: cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "values": valuesIndex,
	}}.complete())
	if err := s.Replace(objects(n, 1), "1"); err != nil {
		t.Fatal(err)
	}
	return s
}

func objects(n, version int) (list []any) {
	for i := range n {
		list = append(list, newObject(i, version, "all", fmt.Sprint(i)))
	}
	return list
}

func updates(list []any) (txns []cache.Transaction) {
	for _, obj := range list {
		txns = append(txns, cache.Transaction{Type: cache.TransactionTypeUpdate, Object: obj})
	}
	return txns
}

// fresh counts the chunks of a vector that its version before lacks.
func fresh[T any](before, after vector[T]) (n int) {
	old := map[*chunk[T]]bool{}
	for _, c := range nodes(before) {
		old[c] = true
	}
	for _, c := range nodes(after) {
		if !old[c] {
			n++
		}
	}
	return n
}

func nodes[T any](v vector[T]) (list []*chunk[T]) {
	for _, b := range v {
		for _, p := range b {
			for c := 0; p != nil && c < pageSize; c++ {
				if p[c] != nil {
					list = append(list, p[c])
				}
			}
		}
	}
	return list
}

// runChunks counts the chunks from the slot of an object's key to the next free slot. Their number depends
// on the seed of the hash.
func runChunks(s *snapshots, o any) (n int) {
	d := &s.published.Load().keys
	key, err := cache.MetaNamespaceKeyFunc(o)
	if err != nil {
		panic(err)
	}
	number, ok := d.find(hashOf(key), key)
	if !ok {
		panic(key + " has no number")
	}
	slot := d.slotOf(number)
	for n = 1; d.slots.at(slot) != 0; slot = d.after(slot) {
		if slot%chunkSize == 0 {
			n++
		}
	}
	return n
}

// TestSnapshotsShareMemory counts the chunks that a write copies, of a store with three blocks.
func TestSnapshotsShareMemory(t *testing.T) {
	const n = 2*perBlock + 1
	s := fill(t, n)
	for _, c := range []struct {
		name                                    string
		write                                   func() error
		objects, keys, slots, postings, members int // the most
	}{
		{"update", func() error { return s.Update(newObject(7, 2, "all", "7")) }, 1, 0, 0, 0, 0},
		{"batch of neighbours", func() error {
			_ = s.Transaction(updates(objects(chunkSize, 3))...)
			return nil
		}, 1, 0, 0, 0, 0},
		// The deletion moves the last object, and slots of the run that the deleted key is in.
		{"delete", func() error { return s.Delete(newObject(0, 4)) }, 1, 1, runChunks(s, newObject(0, 4)) + 1, 4, 1},
		{"add", func() error { return s.Add(newObject(0, 5, "all", "0")) }, 1, 1, 1, 2, 1},
		{"other value", func() error { return s.Update(newObject(9, 6, "all", "new")) }, 1, 0, 0, 4, 0},
		{"nothing", func() error { _ = s.Transaction(); s.Bookmark("8"); return s.Delete(newObject(n, 7)) }, 0, 0, 0, 0, 0},
	} {
		old := s.published.Load()
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		now := s.published.Load()
		before, _, _ := old.index("values")
		after, _, _ := now.index("values")
		all := func(x *snapshotIndex) vector[uint32] { p := x.posting("all"); return p.many }
		for _, copied := range []struct {
			name      string
			got, most int
		}{
			{"objects", fresh(old.objects, now.objects), c.objects},
			{"keys", fresh(old.keys.names, now.keys.names), c.keys},
			{"slots", fresh(old.keys.slots, now.keys.slots), c.slots},
			{"postings", fresh(before.postings, after.postings), c.postings},
			{"objects with a value", fresh(all(before), all(after)), c.members},
		} {
			if copied.got > copied.most || copied.most == 1 && copied.got == 0 {
				t.Errorf("%s: %d chunks of %s are new, want %d", c.name, copied.got, copied.name, copied.most)
			}
		}
		if c.postings == 0 && before != after {
			t.Errorf("%s: the index is another one", c.name)
		}
	}
}

// TestSnapshotsEndWithTheirReaders: a version is collected once it is neither published nor read, and one
// that is read keeps no other. A store that shrinks has no more nodes than it needs.
func TestSnapshotsEndWithTheirReaders(t *testing.T) {
	s := fill(t, 3*perPage)
	var versions []weak.Pointer[snapshot]
	var read *snapshot
	for i := range 40 {
		if i == 20 {
			read = s.published.Load()
		}
		versions = append(versions, weak.Make(s.published.Load()))
		if err := s.Update(newObject(i, i, "all", fmt.Sprint(i%3))); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	for i, v := range versions {
		if kept := v.Value() != nil; kept != (i == 20) {
			t.Errorf("version %d of %d: kept %t", i, len(versions), kept)
		}
	}
	runtime.KeepAlive(read)
	var txns []cache.Transaction
	for _, obj := range s.List()[3:] {
		txns = append(txns, cache.Transaction{Type: cache.TransactionTypeDelete, Object: obj})
	}
	_ = s.Transaction(txns...)
	v := s.published.Load()
	x, _, _ := v.index("values")
	for name, n := range map[string]int{
		"objects": len(nodes(v.objects)), "keys": len(nodes(v.keys.names)), "slots": len(nodes(v.keys.slots)),
		"values": len(nodes(x.values.names)), "value slots": len(nodes(x.values.slots)), "postings": len(nodes(x.postings)),
	} {
		if n != 1 {
			t.Errorf("%s of 3 objects: %d chunks", name, n)
		}
	}
	if p := x.posting("all"); p.n != 3 || p.many != nil {
		t.Errorf("the posting of 3 objects is %+v", p)
	}
}
