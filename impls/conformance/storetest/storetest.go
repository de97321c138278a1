// Package storetest is the conformance suite of family store. [Run] runs it. See the package comment
// of watchlab/impls/store for the guarantees.
//
//	func TestConformance(t *testing.T) {
//		for _, v := range store.Variants() {
//			t.Run(v.Name, func(t *testing.T) { storetest.Run(t, v) })
//		}
//	}
//
// What a store returns is compared with a reference, the contract as a sequential machine without
// indices: after scripted and random operations, and in small concurrent histories. Where lists show a
// point in time, a history must be linearizable, lists included. Where they do not, that of each key
// must be, and a list is a read of each key. Longer runs test the same with named checks.
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
	if s.DropIn != "cache.Indexer" {
		t.Errorf("guarantees: drops in as %q, the contract is cache.Indexer", s.DropIn)
	}
	if s.Lists != impls.PointInTime && s.Lists != impls.PerObject {
		t.Errorf("guarantees: lists %q", s.Lists)
	}
	t.Run("lists="+string(s.Lists), func(t *testing.T) { conformance.Run(t, s, checks) })
}

type check = conformance.Check[setup]

var checks = []check{
	{Name: "an update moves an object between values", Run: played(moves)},
	{Name: "no value, one and several", Run: played(manyValues)},
	{Name: "Replace is the whole contents", Run: played(replaces)},
	{Name: "objects without a key", Run: played(keyErrors)},
	{Name: "the resourceVersion is that of the last write", Run: played(versions)},
	{Name: "a late AddIndexers indexes what is stored", Run: played(lateIndexers)},
	{Name: "AddIndexers refuses a name that is taken", Run: played(conflicts)},
	{Name: "maps and slices are the caller's", Run: callersOwn},
	{Name: "index functions that fail", Run: failingFunctions},
	{Name: "old objects can be collected", Run: collected},
	{Name: "no goroutine is left", Run: noGoroutine},
	{Name: "reads go on during a write", For: func(s setup) bool { return s.Unlocked }, Run: readsGoOn},
	{Name: "random operations", Run: randomOperations},
	{Name: "linearizable", For: pointInTime, Concurrent: true, Run: linearizable},
	{Name: "each key is linearizable", Concurrent: true, Run: keysLinearizable},
	{Name: "lists during transactions", Concurrent: true, Run: listsDuringTransactions},
	{Name: "lists during Replace", Concurrent: true, Run: listsDuringReplace},
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
