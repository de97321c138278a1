package keys_test

import (
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls/internal/keys"
)

// TestModel holds the FIFO to a slice and a map. Hashes are drawn from few
// values, so that runs of the table are long and wrap around its end.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f keys.FIFO[int]
		var order []int
		entries := map[int]*keys.Entry[int]{}
		hash := func(k int) uint64 { return uint64(k % 7 * 1_000_003) }
		key := func(k int) keys.Key { return keys.Key{Namespace: strconv.Itoa(k % 3), Name: strconv.Itoa(k)} }
		remove := func(k int) {
			f.Remove(entries[k])
			delete(entries, k)
			order = slices.DeleteFunc(order, func(o int) bool { return o == k })
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				k := rapid.IntRange(0, 60).Draw(t, "key")
				if e := f.Get(hash(k), key(k)); (e != nil) != (entries[k] != nil) || e != entries[k] {
					t.Fatalf("Get(%d) is %v, want %v", k, e, entries[k])
				} else if e != nil {
					return
				}
				e := f.Push(hash(k), key(k))
				if e.Value != 0 {
					t.Fatalf("a new entry has value %d", e.Value)
				}
				e.Value = k + 1
				entries[k] = e
				order = append(order, k)
			},
			"remove": func(t *rapid.T) {
				if len(order) == 0 {
					t.Skip("empty")
				}
				remove(rapid.SampledFrom(order).Draw(t, "key"))
			},
			"pop": func(t *rapid.T) {
				if len(order) == 0 {
					t.Skip("empty")
				}
				remove(order[0])
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "rarely") == 0 {
					f.Clear()
					order, entries = nil, map[int]*keys.Entry[int]{}
				}
			},
			"": func(t *rapid.T) {
				if f.Len() != len(order) {
					t.Fatalf("length is %d, want %d", f.Len(), len(order))
				}
				var got []int
				for e := f.Front(); e != nil; e = e.Next() {
					got = append(got, e.Value-1)
				}
				if !slices.Equal(got, order) {
					t.Fatalf("order is %v, want %v", got, order)
				}
				for k := range 61 {
					if e := f.Get(hash(k), key(k)); e != entries[k] {
						t.Fatalf("Get(%d) is %v, want %v", k, e, entries[k])
					}
				}
			},
		})
	})
}

// TestSteadyState: a queue that stays within its usual length allocates nothing.
func TestSteadyState(t *testing.T) {
	var f keys.FIFO[int]
	all := make([]keys.Key, 5000)
	for i := range all {
		all[i] = keys.Key{Namespace: "ns", Name: strconv.Itoa(i)}
	}
	round := func() {
		for _, k := range all[:2000] {
			f.Push(k.Hash(), k)
		}
		for f.Len() > 0 {
			f.Remove(f.Front())
		}
	}
	round()
	// The table halves on the way down and doubles on the way up; entries don't
	// come anew.
	if n := testing.AllocsPerRun(10, round); n > 20 {
		t.Errorf("a round of 2,000 keys allocates %v times", n)
	}
	const length = 1000
	for _, k := range all[:length] {
		f.Push(k.Hash(), k)
	}
	i := length
	if n := testing.AllocsPerRun(2000, func() {
		f.Remove(f.Front())
		k := all[i%len(all)]
		f.Push(k.Hash(), k)
		i++
	}); n != 0 {
		t.Errorf("a queue of constant length allocates %v times an event", n)
	}
}
