// Package storetest is the conformance suite of family store. [Run] runs it. See the package comment
// of watchlab/impls/store for the guarantees.
//
//	func TestConformance(t *testing.T) {
//		for _, v := range store.Variants() {
//			t.Run(v.Name, func(t *testing.T) { storetest.Run(t, v) })
//		}
//	}
//
// What a store returns is compared with the model, which is a store of client-go that one goroutine
// calls: after scripted and random operations, and in small concurrent histories. Where lists show a
// point in time, a history must be linearizable, lists included. Where they do not, that of each key
// must be, and a list is a read of each key. Longer concurrent runs count versions.
package storetest

import (
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// Run tests a variant.
func Run(t *testing.T, v store.Variant) {
	s := setup{v, v.Guarantees[0]}
	if s.DropIn != "cache.Indexer" || s.Lists != impls.PointInTime && s.Lists != impls.PerObject {
		t.Errorf("guarantees: drops in as %q, lists %q", s.DropIn, s.Lists)
	}
	t.Run("lists="+string(s.Lists), func(t *testing.T) { conformance.Run(t, s, checks) })
}

type check = conformance.Check[setup]

var checks = []check{
	{Name: "an update moves an object between values", Run: script(`
		add a/k0=x; add a/k1=x; update a/k0=y; transact a/k0=z a/k0=x a/k1=y; delete a/k1`)},
	{Name: "no value, one and several", Run: script(`
		update a/k0; update a/k0=x; update a/k0=x,y; update a/k0=x,y,z; update a/k0=y,y,z; update a/k0=z,x,z
		update a/k0=y,y; add a/k1=y; update a/k0=y; update a/k0; update a/k0=x,x; delete a/k0`)},
	{Name: "Replace is the whole contents", Run: script(`
		add a/k0=x,y; add b/k0=x; indexers late; replace a/k1=x b/k0=z
		replace a/k1=x a/k1=y k0; replace; add k0=x`)},
	{Name: "objects without a key", Run: script(`
		add a/k0=x; add a/k1=x; add !; update !; delete !; replace b/k0 !
		transact -! a/k0=y +! -a/k1 !; transact !; transact; replace ! b/k0`)},
	// A write without metadata, as of a tombstone, leaves the resourceVersion.
	{Name: "the resourceVersion is that of the last write", Run: script(`
		add a/k0; delete a/k0; delete a/k1; transact +a/k0 !; delete ~a/k0; bookmark 77; replace a/k0; bookmark`)},
	{Name: "a late AddIndexers indexes what is stored", Run: script(`
		add a/k0=x; add b/k0=x,y; indexers late; update b/k0=z; delete a/k0; indexers`)},
	{Name: "AddIndexers refuses a name that is taken", Run: script(`
		add a/k0=x; indexers late value; add a/k1=x; indexers late; indexers late`)},
	{Name: "thousands of objects", Run: script(`
		transact a/0..2999=x,v# b/1000..1999=y a/500..2499=x,v# -b/1000..1499; transact -a/0..2899 b/1400..1600=x; indexers late
		replace b/0..299=x,y a/0..2199=v#; transact -b/0..299 -a/10..2199; replace`)},
	{Name: "random operations", Run: randomOperations},
	{Name: "maps and slices are the caller's", Run: callersOwn},
	{Name: "index functions that fail", Run: failingFunctions},
	{Name: "old objects can be collected", Run: collected},
	{Name: "no goroutine is left", Run: noGoroutine},
	{Name: "reads go on during a write", For: func(s setup) bool { return s.Unlocked }, Run: readsGoOn},
	{Name: "linearizable", For: pointInTime, Concurrent: true, Run: histories(whole)},
	{Name: "each key is linearizable", Concurrent: true, Run: histories(byKey)},
	{Name: "lists during transactions", Concurrent: true, Run: func(t *testing.T, s setup) { listsDuring(t, s, 2, false) }},
	{Name: "lists during Replace", Concurrent: true, Run: func(t *testing.T, s setup) { listsDuring(t, s, 1, true) }},
}

// setup is a variant and its guarantees.
type setup struct {
	variant store.Variant
	impls.Guarantees
}

func pointInTime(s setup) bool { return s.Lists == impls.PointInTime }

// new builds an empty store.
func (s setup) new(t conformance.TB, indexers cache.Indexers) store.Store {
	t.Helper()
	made, err := s.variant.New(store.Options{Indexers: indexers})
	if err != nil {
		t.Fatal(err)
	}
	return made
}
