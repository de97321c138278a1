package storetest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/store"
)

func listsDuringTransactions(t *testing.T, s setup) { s.listsDuring(t, 2, false) }
func listsDuringReplace(t *testing.T, s setup)      { s.listsDuring(t, 1, true) }

const (
	unitKeys     = 120
	unitVersions = 40
)

// unit is the keys that one writer always writes together: all have the same version.
type unit struct {
	started, finished atomic.Int64 // versions whose write began, and returned
}

// listsDuring writes units of keys, version after version, while readers read. What a read shows was
// not replaced before it began, and was written before it returned. A reader goes back neither in a
// list nor in a key. Each key is always stored, so no list is partial. Where lists show a point in
// time, all keys of a unit have one version. Replace needs a single writer, which alternates it with
// Transaction.
func (s setup) listsDuring(t *testing.T, writers int, replace bool) {
	r := &readers{t: t, store: s.new(t, yielding()), units: make([]unit, writers), atomic: pointInTime(s)}
	write := func(u int, version int) error {
		r.units[u].started.Store(int64(version))
		defer r.units[u].finished.Store(int64(version))
		var list []any
		var txns []cache.Transaction
		for i := range unitKeys {
			o := newObject(unitKey(u, i), version, "all", "v"+strconv.Itoa(version%3))
			list, txns = append(list, o), append(txns, cache.Transaction{Type: cache.TransactionTypeUpdate, Object: o})
		}
		if replace && version%2 == 0 {
			return r.store.Replace(list, strconv.Itoa(version))
		}
		return transact(r.store, txns...)
	}
	for u := range r.units {
		if err := write(u, 1); err != nil {
			t.Fatal(err)
		}
	}
	var writing, reading sync.WaitGroup
	for u := range r.units {
		writing.Go(func() {
			for v := 2; v <= unitVersions; v++ {
				if err := write(u, v); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
	}
	for range 3 {
		seed := rand.Uint64()
		reading.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 0))
			seen := map[string]int64{}
			for !r.done.Load() && !t.Failed() {
				r.read(rng.IntN(unitReads), rng, seen)
				runtime.Gosched()
			}
		})
	}
	writing.Wait()
	r.done.Store(true)
	reading.Wait()
	for call := range unitReads {
		r.read(call, rand.New(rand.NewPCG(1, 1)), map[string]int64{})
	}
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

func unitKey(u, i int) string { return fmt.Sprintf("%c/u%d-k%03d", 'a'+i%2, u, i) }

type readers struct {
	t      *testing.T
	store  store.Store
	units  []unit
	atomic bool // all keys of a unit have one version
	done   atomic.Bool
}

// unitReads is the number of kinds of reads.
const unitReads = 9

// read makes a read of a kind. seen has the newest version of each key that its reader has seen.
func (r *readers) read(kind int, rng *rand.Rand, seen map[string]int64) {
	all := len(r.units) * unitKeys
	low := make([]int64, len(r.units))
	for u := range low {
		low[u] = r.units[u].finished.Load()
	}
	value := int64(rng.IntN(3))
	u := rng.IntN(len(r.units))
	key := unitKey(u, rng.IntN(unitKeys))
	switch kind {
	case 0:
		r.objects("List", r.store.List(), all, -1, low, seen)
	case 1:
		r.objects("ByIndex of all", must(r.store.ByIndex("value", "all")), all, -1, low, seen)
	case 2:
		r.objects("Index of all", must(r.store.Index("value", probe("all"))), all, -1, low, seen)
	case 3:
		r.objects("ByIndex of a namespace", must(r.store.ByIndex(cache.NamespaceIndex, "a")), all/2, -1, low, seen)
	case 4:
		r.objects("ByIndex", must(r.store.ByIndex("value", "v"+strconv.Itoa(int(value)))), -1, value, low, seen)
	case 5:
		obj, ok, _ := r.store.GetByKey(key)
		if !ok {
			r.t.Errorf("GetByKey finds no %s", key)
			return
		}
		r.objects("GetByKey", []any{obj}, 1, -1, low, seen)
	case 6:
		if keys := r.store.ListKeys(); len(keys) != all || len(slices.Compact(slices.Sorted(slices.Values(keys)))) != all {
			r.t.Errorf("ListKeys returned %d keys of %d", len(keys), all)
		}
	case 7:
		if keys := must(r.store.IndexKeys("value", "all")); len(keys) != all || len(slices.Compact(keys)) != all {
			r.t.Errorf("IndexKeys returned %d keys of %d", len(keys), all)
		}
	case 8: // Of one writer, the resourceVersion is that of all objects.
		if version, err := strconv.ParseInt(r.store.LastStoreSyncResourceVersion(), 10, 64); err == nil && len(r.units) == 1 {
			obj, _, _ := r.store.GetByKey(key)
			if got := versionOf(obj); got < version {
				r.t.Errorf("%s has version %d after the store had version %d", key, got, version)
			}
		}
	}
}

func versionOf(obj any) int64 {
	v, _ := strconv.ParseInt(obj.(*object).ResourceVersion, 10, 64)
	return v
}

// objects tests what a read returned: the number of objects, if it is known; that each has the value
// that was asked for, if not negative; and their versions.
func (r *readers) objects(call string, objs []any, want int, value int64, low []int64, seen map[string]int64) {
	high := make([]int64, len(r.units))
	for u := range high {
		high[u] = r.units[u].started.Load()
	}
	if want >= 0 && len(objs) != want {
		r.t.Errorf("%s returned %d objects of %d", call, len(objs), want)
	}
	versions, counts := make([]int64, len(r.units)), make([]int, len(r.units))
	twice := map[string]bool{}
	for _, obj := range objs {
		key, _ := keyOf(obj)
		u, v := int(obj.(*object).Name[1]-'0'), versionOf(obj)
		switch {
		case twice[key]:
			r.t.Errorf("%s returned %s twice", call, key)
		case v < low[u] || v > high[u]:
			r.t.Errorf("%s returned %s@%d, where %d had been written before and %d was the last to begin", call, key, v, low[u], high[u])
		case v < seen[key]:
			r.t.Errorf("%s returned %s@%d to a reader that had seen %d", call, key, v, seen[key])
		case value >= 0 && v%3 != value:
			r.t.Errorf("%s of v%d returned %s@%d", call, value, key, v)
		case r.atomic && counts[u] > 0 && v != versions[u]:
			r.t.Errorf("%s returned %s@%d beside version %d of the same transaction", call, key, v, versions[u])
		default:
			twice[key], seen[key], versions[u] = true, v, v
			counts[u]++
			continue
		}
		return
	}
	for u, n := range counts {
		if r.atomic && value >= 0 && n != 0 && n != unitKeys {
			r.t.Errorf("%s returned %d keys of %d of a transaction", call, n, unitKeys)
		}
		// Where lists show a point in time, a later read of any key sees as much.
		for i := 0; r.atomic && n > 0 && i < unitKeys; i++ {
			seen[unitKey(u, i)] = versions[u]
		}
	}
}
