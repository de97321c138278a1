package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// The operations of a history: a Transaction, a Replace, an AddIndexers or a read, whose output is
// that of read.of.
type (
	transactOp []cache.Transaction
	replaceOp  []any
	indexersOp struct{}
)

var machine = conformance.Machine[*reference]{Init: newReference, Step: step, Describe: describe}

func step(before *reference, in, out any) ([]*reference, error) {
	after := before
	if r, ok := in.(read); ok {
		if got, want := out.([]string), r.of(before); !slices.Equal(got, want) {
			return nil, fmt.Errorf("it returned %q, not %q", want, got)
		}
		return []*reference{after}, nil
	}
	after = before.clone()
	failed, _ := out.(error)
	if err := apply(after, in); errorWords(err) != errorWords(failed) {
		return nil, fmt.Errorf("it returned %s, not %s", errorWords(err), errorWords(failed))
	}
	return []*reference{after}, nil
}

// apply makes the call of an operation that writes.
func apply(s store.Store, in any) error {
	switch op := in.(type) {
	case transactOp:
		return transact(s, op...)
	case replaceOp:
		return s.Replace(slices.Clone(op), "")
	case indexersOp:
		return s.AddIndexers(cache.Indexers{"late": valuesOf})
	}
	panic(fmt.Sprintf("unknown operation %T", in))
}

func describe(in, out any) string {
	var call strings.Builder
	write := func(typ cache.TransactionType, obj any) {
		fmt.Fprintf(&call, " %s %s%v", typ, word(obj), obj.(*object).values)
	}
	switch op := in.(type) {
	case transactOp:
		for _, txn := range op {
			write(txn.Type, txn.Object)
		}
	case replaceOp:
		for _, obj := range op {
			write("", obj)
		}
	}
	return fmt.Sprintf("%T%s → %v", in, &call, out)
}

const historyRounds = 40

func linearizable(t *testing.T, s setup) {
	for range historyRounds {
		seed := rand.Uint64()
		conformance.Linearizable(t, machine, seed, s.history(t, seed))
	}
}

// keysLinearizable: a list is a read of each key, so that it may show the keys at different times
// between its begin and its end. So it is with the writes of a Transaction and a Replace.
func keysLinearizable(t *testing.T, s setup) {
	for range historyRounds {
		seed := rand.Uint64()
		history := s.history(t, seed)
		for _, key := range historyKeys {
			conformance.Linearizable(t, machine, seed, ofKey(key, history))
		}
	}
}

var historyKeys = []string{"a/k0", "a/k1", "b/k0"}

// ofKey returns the part of a history that is about one key.
func ofKey(key string, history []porcupine.Operation) (part []porcupine.Operation) {
	is := func(obj any) bool { k, _ := keyOf(obj); return k == key }
	for _, op := range history {
		switch in := op.Input.(type) {
		case transactOp:
			of := slices.DeleteFunc(slices.Clone(in), func(txn cache.Transaction) bool { return !is(txn.Object) })
			if len(of) == 0 {
				continue
			}
			op.Input = of
		case replaceOp:
			op.Input = slices.DeleteFunc(slices.Clone(in), func(obj any) bool { return !is(obj) })
		case read:
			if in.call == "ListIndexFuncValues" || in.call == "GetByKey" && in.arg != key {
				continue
			}
			op.Output = slices.DeleteFunc(slices.Clone(op.Output.([]string)), func(w string) bool {
				return w != "error" && w != key && !strings.HasPrefix(w, key+"@")
			})
		}
		part = append(part, op)
	}
	return part
}

// history runs random operations and records them, and then reads everything. Nothing is written by
// then, so that a stale index shows.
func (s setup) history(t *testing.T, seed uint64) []porcupine.Operation {
	const writers, readers, writes, lists = 3, 3, 4, 6
	store := s.new(t, yielding())
	clients := conformance.Clients(seed, writers+readers)
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			if i >= writers {
				for range lists {
					record(c, store, historyReads[c.IntN(len(historyReads))])
					c.Yield()
				}
				return
			}
			for n := range writes {
				in := randomWrite(c, 100*(i+1)+n)
				c.Call(in, func() error { return apply(store, in) })
				c.Yield()
			}
			if i == 0 {
				c.Call(indexersOp{}, func() error { return apply(store, indexersOp{}) })
			}
		})
	}
	wg.Wait()
	for _, r := range historyReads {
		record(clients[0], store, r)
	}
	return conformance.Operations(clients)
}

func record(c *conformance.Client, s store.Store, r read) {
	began := c.Now()
	out := r.of(s)
	c.Record(began, r, out)
}

// historyReads leaves out GetIndexers, whose map upstream shares with AddIndexers.
var historyReads = []read{
	{call: "GetByKey", arg: "a/k0"}, {call: "GetByKey", arg: "b/k0"},
	{call: "List"}, {call: "ListKeys"},
	{"ByIndex", cache.NamespaceIndex, "a"}, {"ByIndex", "value", "x"}, {"ByIndex", "late", "x"},
	{"Index", "value", "y"}, {"Index", "value", "x,y"}, {"IndexKeys", "value", "x"}, {"ListIndexFuncValues", "value", ""},
}

// randomWrite draws an operation, which writes each key once at most.
func randomWrite(c *conformance.Client, version int) any {
	draw := func(key string) *object {
		return newObject(key, version, [][]string{nil, {"x"}, {"y"}, {"x", "y"}}[c.IntN(4)]...)
	}
	replace := c.IntN(5) == 0
	var txns transactOp
	list := replaceOp{}
	for _, i := range c.Perm(len(historyKeys))[:1+c.IntN(len(historyKeys))] {
		obj, typ := draw(historyKeys[i]), cache.TransactionTypeUpdate
		if c.IntN(3) == 0 {
			typ = cache.TransactionTypeDelete
		}
		txns, list = append(txns, cache.Transaction{Type: typ, Object: obj}), append(list, obj)
	}
	if replace {
		return list
	}
	return txns
}
