package storetest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// callersOwn changes every map and slice that was given or returned. Only the list of a Replace
// becomes the store's.
func callersOwn(t *testing.T, s setup) {
	given := indexers()
	p := &player{TB: t, store: s.new(t, given), model: newReference()}
	more := cache.Indexers{"late": valuesOf}
	p.do("AddIndexers", func(s store.Store) error { return s.AddIndexers(maps.Clone(more)) })
	for _, m := range []cache.Indexers{given, more} {
		clear(m)
		m["none"] = valuesOf
	}
	txns := []cache.Transaction{
		{Type: cache.TransactionTypeAdd, Object: p.object("a/k0", "x", "y")},
		{Type: cache.TransactionTypeAdd, Object: p.object("a/k1", "x")},
		{Type: cache.TransactionTypeAdd, Object: p.object("b/k0", "x", "z")},
	}
	p.transact(txns...)
	for i := range txns {
		txns[i] = cache.Transaction{Type: cache.TransactionTypeDelete, Object: p.object("k0", "z")}
	}
	p.look("after the transactions were overwritten")
	for name, list := range map[string]func() []any{
		"List":                  p.store.List,
		"ByIndex":               func() []any { return must(p.store.ByIndex("value", "x")) },
		"Index":                 func() []any { return must(p.store.Index("value", probe("x"))) },
		"Index of the late":     func() []any { return must(p.store.Index("late", probe("x"))) },
		"Index of a namespace":  func() []any { return must(p.store.Index(cache.NamespaceIndex, probe(""))) },
		"Index of two values":   func() []any { return must(p.store.Index("value", probe("x,y"))) },
		"ByIndex without a hit": func() []any { return must(p.store.ByIndex("value", "nothing")) },
	} {
		overwrite[any](p, name, list, "scribble")
	}
	for name, list := range map[string]func() []string{
		"ListKeys":            p.store.ListKeys,
		"IndexKeys":           func() []string { return must(p.store.IndexKeys("value", "x")) },
		"ListIndexFuncValues": func() []string { return p.store.ListIndexFuncValues("value") },
	} {
		overwrite(p, name, list, "scribble")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// overwrite changes a list, and tests that it is not the store's, nor that of a second call. Writes
// must not change it.
func overwrite[T comparable](p *player, name string, list func() []T, scribble T) {
	p.Helper()
	first, second := list(), list()
	kept := slices.Clone(second)
	for i := range first {
		first[i] = scribble
	}
	_ = append(first, scribble)
	p.look("after a change of the list of " + name)
	p.update(p.object("a/k0", "x"))
	p.update(p.object("a/k0", "x", "y"))
	p.delete(p.object("b/k0"))
	p.add(p.object("b/k0", "x", "z"))
	if !slices.Equal(second, kept) {
		p.Errorf("the list of %s was %v and became %v", name, kept, second)
	}
	p.look("after writes")
}

// failingFunctions: a write of an object whose index function fails panics, as upstream's does. The
// store stays usable, and a Replace makes it right.
func failingFunctions(t *testing.T, s setup) {
	for name, write := range map[string]func(p *player, broken any) error{
		"Add":    func(p *player, broken any) error { return p.store.Add(broken) },
		"Update": func(p *player, broken any) error { return p.store.Update(broken) },
		"Transaction": func(p *player, broken any) error {
			return transact(p.store,
				cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p.object("a/k1", "z")},
				cache.Transaction{Type: cache.TransactionTypeUpdate, Object: broken},
				cache.Transaction{Type: cache.TransactionTypeAdd, Object: p.object("k1", "z")})
		},
		"Replace": func(p *player, broken any) error { return p.store.Replace([]any{p.object("k1"), broken}, "1") },
		"AddIndexers": func(p *player, _ any) error {
			return p.store.AddIndexers(cache.Indexers{"late": func(any) ([]string, error) { return nil, errBroken }})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.newPlayer(t)
			p.add(p.object("a/k0", "x"))
			p.add(p.object("b/k0", "x", "y"))
			broken := p.object("a/k0")
			broken.broken = true
			if !panics(func() { _ = write(p, broken) }) {
				t.Fatal("the write did not panic")
			}
			within(t, func() {
				if name == "AddIndexers" {
					return // Upstream has the index, with the function that fails.
				}
				if got := (read{call: "Get", arg: "b/k0"}).of(p.store); name != "Replace" && !slices.Equal(got, []string{"b/k0@2"}) {
					t.Errorf("an object that was not written is %v", got)
				}
				if err := p.store.Update(p.object("b/k1", "w")); err != nil {
					t.Error(err)
				}
				if got := must(p.store.IndexKeys("value", "w")); !slices.Equal(got, []string{"b/k1"}) {
					t.Errorf("the index of an object that was added then is %v", got)
				}
			})
			if _, late := p.store.GetIndexers()["late"]; late {
				return
			}
			within(t, func() {
				p.replace(p.object("a/k0", "y"), p.object("k1", "x"))
				p.addIndexers("late")
				p.update(p.object("k1", "y"))
				p.look("after Replace")
			})
		})
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// within fails if f does not return, as it cannot where a lock is left held.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(conformance.Patience):
		t.Fatal("a call does not return")
	}
}

// collected: what was replaced or deleted can be collected, once no reader has it.
func collected(t *testing.T, s setup) {
	store, version := s.new(t, indexers()), 0
	var all []weak.Pointer[object]
	made := func(key string, values ...string) *object {
		version++
		o := newObject(key, version, values...)
		all = append(all, weak.Make(o))
		return o
	}
	alive := func(when string, want int) {
		t.Helper()
		runtime.GC()
		n := 0
		for _, o := range all {
			if o.Value() != nil {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: %d objects are in memory, %d are stored", when, n, want)
		}
	}
	const keys = 70
	key := func(i int) string { return fmt.Sprintf("%c/k%d", 'a'+i%3, i%keys) }
	write := func(i int, typ cache.TransactionType) cache.Transaction {
		return cache.Transaction{Type: typ, Object: made(key(i), "x", "v"+strconv.Itoa(i%7))}
	}
	for i := range 10 * keys {
		_ = transact(store, write(i, cache.TransactionTypeUpdate))
		if i%50 == 0 {
			_, _ = store.List(), must(store.ByIndex("value", "x"))
		}
	}
	alive("after updates", keys*3)
	for i := range 3 * keys {
		if i%2 == 0 {
			_ = transact(store, write(i, cache.TransactionTypeDelete))
		} else {
			_ = store.Delete(tombstone(made(key(i))))
		}
	}
	alive("after deletions", 0)
	for range 3 {
		var list []any
		for i := range keys {
			list = append(list, made("a/"+strconv.Itoa(i), "x"))
		}
		_ = store.Replace(list, "1")
	}
	alive("after Replace", keys)
	_ = store.Replace(nil, "2")
	alive("after an empty Replace", 0)
	runtime.KeepAlive(store)
}

// noGoroutine: a store cannot be closed, so it has none.
func noGoroutine(t *testing.T, s setup) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		p := s.newPlayer(t)
		replaces(p)
		lateIndexers(p)
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines more than before", n-before)
		}
	})
}

// readsGoOn stops a writer in an index function. Reads return meanwhile.
func readsGoOn(t *testing.T, s setup) {
	for name, write := range map[string]func(store.Store, *object) error{
		"Update": func(s store.Store, o *object) error { return s.Update(o) },
		"Transaction": func(s store.Store, o *object) error {
			return transact(s, cache.Transaction{Type: cache.TransactionTypeUpdate, Object: o})
		},
		"Replace": func(s store.Store, o *object) error { return s.Replace([]any{o, newObject("b/k0", 1)}, "2") },
	} {
		t.Run(name, func(t *testing.T) {
			entered, gate := make(chan struct{}), make(chan struct{})
			store := s.new(t, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "value": func(obj any) ([]string, error) {
				if obj.(*object).ResourceVersion == "2" {
					select {
					case entered <- struct{}{}:
						<-gate
					case <-gate:
					}
				}
				return []string{"x"}, nil
			}})
			if err := store.Replace([]any{newObject("a/k0", 1), newObject("b/k0", 1)}, "1"); err != nil {
				t.Fatal(err)
			}
			writing := conformance.Async(func() error { return write(store, newObject("a/k0", 2)) })
			<-entered
			released := make(chan struct{})
			go func() {
				defer close(released)
				for r, want := range map[read]int{
					{call: "Get", arg: "a/k0"}:             1,
					{call: "Get", arg: "b/k0"}:             1,
					{call: "List"}:                         2,
					{call: "ListKeys"}:                     2,
					{"ByIndex", "value", "x"}:              2,
					{"ByIndex", cache.NamespaceIndex, "a"}: 1,
					{"Index", "value", "b"}:                2,
					{"IndexKeys", "value", "x"}:            2,
				} {
					if got := r.of(store); len(got) != want {
						t.Errorf("%v is %v during the write", r, got)
					}
				}
			}()
			select {
			case <-released:
			case <-time.After(conformance.Patience):
				t.Error("a read waits for the writer")
			}
			close(gate)
			<-released
			if err := writing.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
