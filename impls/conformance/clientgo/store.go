package clientgo

import (
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// RunStore tests a variant of family store. What a store returns is compared with the model, which is a
// store of client-go that one goroutine calls: after random operations, and in small concurrent
// histories, which must be linearizable, lists included.
func RunStore(t *testing.T, v store.Variant) {
	s := storeSetup{v, v.Guarantees[0]}
	if s.DropIn != "cache.Indexer" || s.Lists != impls.PointInTime {
		t.Errorf("guarantees: drops in as %q, lists %q", s.DropIn, s.Lists)
	}
	t.Run("lists="+string(s.Lists), func(t *testing.T) { conformance.Run(t, s, storeChecks) })
}

type storeCheck = conformance.Check[storeSetup]

var storeChecks = []storeCheck{
	{Name: "thousands of objects", Run: storeScript(`
		transact a/0..2999=x,v# b/1000..1999=y a/500..2499=x,v# -b/1000..1499, transact -a/0..2899 b/1400..1600=x, indexers late
		replace b/0..299=x,y a/0..2199=v#, transact -b/0..299 -a/10..2199, replace`)},
	{Name: "random operations", Run: randomStoreCalls},
	{Name: "arguments are the caller's", Run: callersOwn},
	{Name: "index functions that fail", Run: failingFunctions},
	{Name: "old objects can be collected", Run: collected},
	{Name: "no goroutine is left", Run: noGoroutine},
	{Name: "reads go on during a write", For: func(s storeSetup) bool { return s.Unlocked }, Run: readsGoOn},
	{Name: "linearizable", Concurrent: true, Run: linearizableStore},
}

// storeSetup is a variant and its guarantees.
type storeSetup struct {
	variant store.Variant
	impls.Guarantees
}

// new builds an empty store.
func (s storeSetup) new(t conformance.TB, indexers cache.Indexers) store.Store {
	t.Helper()
	made, err := s.variant.New(store.Options{Indexers: indexers})
	if err != nil {
		t.Fatal(err)
	}
	return made
}
