package clientgo

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// The operations of a history are storeCall, whose output is an error, and storeRead, whose output is that of of.
var storeMachine = conformance.Machine[storeModel]{Init: newStoreModel, Step: storeStep, Describe: func(in, out any) string {
	return fmt.Sprintf("%v → %v", in, out)
}}

func storeStep(before storeModel, in, out any) ([]storeModel, error) {
	switch in := in.(type) {
	case storeRead:
		if want := in.of(before); !slices.Equal(out.([]string), want) {
			return nil, fmt.Errorf("it is %q", want)
		}
		return []storeModel{before}, nil
	case storeCall:
		after := before.clone()
		failed, _ := out.(error)
		if err := in.apply(after); errorWords(err) != errorWords(failed) {
			return nil, fmt.Errorf("it returns %s", errorWords(err))
		}
		return []storeModel{after}, nil
	}
	panic(fmt.Sprintf("unknown operation %T", in))
}

// linearizableStore checks small histories.
func linearizableStore(t *testing.T, s storeSetup) {
	for range 40 {
		seed := rand.Uint64()
		conformance.Linearizable(t, storeMachine, seed, s.history(t, seed))
	}
}

var historyKeys = []string{"a/k0", "a/k1", "b/k0"}

// history runs random operations and records them, and then reads everything. Nothing is written by
// then, so that a stale index shows.
func (s storeSetup) history(t *testing.T, seed uint64) []porcupine.Operation {
	const writers, readers, calls = 3, 3, 5
	store := s.new(t, yielding())
	clients := conformance.Clients(seed, writers+readers)
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for n := range calls {
				if i < writers {
					in := storeCall{randomOp(c.IntN, historyKeys, true), 100*(i+1) + n}
					c.Call(in, func() error { return in.apply(store) })
				} else {
					record(c, store, historyReads[c.IntN(len(historyReads))])
				}
				c.Yield()
			}
		})
	}
	wg.Wait()
	for _, r := range historyReads {
		record(clients[0], store, r)
	}
	return conformance.Operations(clients)
}

// yielding returns indexers that yield now and then, so that others run in the middle of a write.
func yielding() cache.Indexers {
	var calls atomic.Int64
	all := indexers()
	all["value"] = func(obj any) ([]string, error) {
		if calls.Add(1)%8 == 0 {
			runtime.Gosched()
		}
		return valuesOf(obj)
	}
	return all
}

func record(c *conformance.Client, s store.Store, r storeRead) {
	began := c.Now()
	out := r.of(s)
	c.Record(began, r, out)
}

// historyReads leaves out GetIndexers, whose map upstream shares with AddIndexers.
var historyReads = []storeRead{
	{call: "GetByKey", arg: "a/k0"}, {call: "GetByKey", arg: "b/k0"},
	{call: "List"}, {call: "ListKeys"}, {call: "LastStoreSyncResourceVersion"}, {call: "LastStoreSyncResourceVersion"},
	{"ByIndex", cache.NamespaceIndex, "a"}, {"ByIndex", "value", "x"}, {"ByIndex", "late", "x"},
	{"Index", "value", "y"}, {"Index", "value", "x,y"}, {"IndexKeys", "value", "x"}, {"ListIndexFuncValues", "value", ""},
}
