package clientgo

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"weak"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
)

// callersOwn changes every map and slice that was given. Only the list of a Replace becomes the store's.
// What is returned is changed by each read, see [scribbled].
func callersOwn(t *testing.T, s storeSetup) {
	given, more := indexers(), cache.Indexers{"late": valuesOf}
	p := &storePlayer{TB: t, store: s.new(t, given), model: newStoreModel()}
	p.run("indexers late")
	if err := p.store.AddIndexers(more); err == nil {
		t.Error("AddIndexers took a name twice")
	}
	txns := []cache.Transaction{{Type: cache.TransactionTypeAdd, Object: newObject("a/k0", 1, "x", "y")}}
	if p.store.Transaction(txns...) != nil || p.model.Transaction(txns...) != nil {
		t.Error("Transaction failed")
	}
	txns[0] = cache.Transaction{Type: cache.TransactionTypeDelete, Object: newObject("a/k0", 2)}
	for _, m := range []cache.Indexers{given, more} {
		clear(m)
		m["unknown"] = valuesOf
	}
	p.run("transact b/k0=x,z a/k1=x")
	p.look("a change of the arguments")
}

// failingFunctions: a write of an object whose index function fails panics, as upstream's does. The
// store stays usable, other objects are as before, and a Replace makes it right.
func failingFunctions(t *testing.T, s storeSetup) {
	for _, write := range []string{
		"add a/k0=broken", "update a/k0=broken", "transact a/k1=z a/k0=broken k1=z", "replace k1 a/k0=broken", "indexers late",
	} {
		p := s.newPlayer(t)
		p.run("add a/k0=x, add b/k0=x,y")
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", write)
				}
			}()
			if write == "indexers late" {
				_ = p.store.AddIndexers(cache.Indexers{"late": func(any) ([]string, error) { return nil, errBroken }})
			} else {
				_ = storeCall{write, 7}.apply(p.store)
			}
		}()
		// A lock that is left held blocks a call for ever.
		rest := conformance.Async(func() error {
			if late := p.store.GetIndexers()["late"]; late != nil {
				return nil // Upstream has the index, whose function fails again.
			}
			got := storeRead{call: "Get", arg: "b/k0"}.of(p.store)
			if want := []string{"b/k0@2=x,y"}; write != "replace k1 a/k0=broken" && !slices.Equal(got, want) {
				t.Errorf("after %s, another object is %v, want %v", write, got, want)
			}
			p.run("update b/k1=z, delete b/k1")
			p.run("replace a/k0=y k1=x, indexers late, update k1=y")
			p.look(write + " and Replace")
			return nil
		})
		if ok, err := rest.Await(); !ok || err != nil {
			t.Fatalf("after %s, a call does not return: %v", write, err)
		}
	}
}

// collected: what was replaced or deleted can be collected, once no reader has it.
func collected(t *testing.T, s storeSetup) {
	store := s.new(t, indexers())
	var all []weak.Pointer[object]
	for i, call := range []string{
		"transact a/0..99=x,v#", "transact a/0..99=x,v#", "transact a/50..79=y", "update a/7=x", "delete a/7", "delete ~a/8",
		"replace a/0..79=x b/0..19=x", "replace b/0..49=x", "transact -b/0..39", "add a/7=x", "transact -a/7", "replace",
	} {
		if err := (storeCall{call, i}).apply(store); err != nil {
			t.Fatal(err)
		}
		for _, obj := range store.List() {
			all = append(all, weak.Make(obj.(*object)))
		}
		stored, alive := len(store.ListKeys()), map[*object]bool{nil: true}
		runtime.GC()
		for _, w := range all {
			alive[w.Value()] = true
		}
		if n := len(alive) - 1; n != stored {
			t.Errorf("after %s, %d objects are in memory and %d are stored", call, n, stored)
		}
	}
	runtime.KeepAlive(store)
}

// noGoroutine: a store cannot be closed, so it has none.
func noGoroutine(t *testing.T, s storeSetup) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		s.newPlayer(t).run("add a/k0=x, indexers late, transact a/k0=y b/k0=x, replace a/k0=x b/k1=y, delete a/k0")
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines more than before", n-before)
		}
	})
}

// readsGoOn stops a writer in an index function. Reads return meanwhile.
func readsGoOn(t *testing.T, s storeSetup) {
	for _, write := range []string{"update a/k0=gate", "transact a/k0=gate", "replace b/k0=x a/k0=gate"} {
		entered, gate := make(chan struct{}, 100), make(chan struct{})
		own := indexers()
		own["value"] = func(obj any) ([]string, error) {
			if values, _ := valuesOf(obj); !slices.Contains(values, "gate") {
				return values, nil
			}
			entered <- struct{}{}
			<-gate
			return []string{"x"}, nil
		}
		store := s.new(t, own)
		if err := (storeCall{"replace a/k0=x b/k0=x", 1}).apply(store); err != nil {
			t.Fatal(err)
		}
		writing := conformance.Async(func() error { return storeCall{write, 2}.apply(store) })
		<-entered
		reading := conformance.Async(func() error {
			for r, want := range map[storeRead]int{
				{call: "Get", arg: "a/k0"}: 1, {call: "Get", arg: "b/k0"}: 1, {call: "List"}: 2, {call: "ListKeys"}: 2,
				{"ByIndex", "value", "x"}: 2, {"Index", "value", "x"}: 2, {"IndexKeys", "value", "x"}: 2,
				{"ByIndex", cache.NamespaceIndex, "a"}: 1,
			} {
				if got := r.of(store); len(got) != want {
					t.Errorf("%v is %v during %s", r, got, write)
				}
			}
			return nil
		})
		if ok, err := reading.Await(); !ok || err != nil {
			t.Errorf("a read waits for %s: %v", write, err)
		}
		close(gate)
		if err := writing.Wait(); err != nil {
			t.Error(err)
		}
	}
}
