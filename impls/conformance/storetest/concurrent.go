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

const (
	unitKeys     = 60
	unitVersions = 20
)

// unit is the keys that one writer always writes together: all have the same version.
type unit struct {
	started, finished atomic.Int64 // versions whose write began, and returned
}

// unitKey returns a key of a unit. Half of them are in each of two namespaces.
func unitKey(u, i int) string { return fmt.Sprintf("%c/%d", 'a'+i%2, 1000*(u+1)+i/2) }

// write writes the next version. Each object has the values all and v0, v1 or v2, by its version.
func (r *readers) write(u int, replace bool) error {
	version := r.units[u].started.Add(1)
	defer r.units[u].finished.Store(version)
	call, first := "transact", 1000*(u+1)
	if replace && version%2 == 0 {
		call = "replace"
	}
	for _, namespace := range "ab" {
		call += fmt.Sprintf(" %c/%d..%d=all,v%d", namespace, first, first+unitKeys/2-1, version%3)
	}
	return op{call, int(version)}.apply(r.store)
}

// listsDuring writes units of keys, version after version, while readers read. What a read shows was
// not replaced before it began, and was written before it returned. A reader goes back neither in a
// list nor in a key. Each key is always stored, so no list is partial. Where lists show a point in
// time, all keys of a unit have one version. Replace needs a single writer, which alternates it with
// Transaction.
func listsDuring(t *testing.T, s setup, writers int, replace bool) {
	r := &readers{T: t, store: s.new(t, yielding()), units: make([]unit, writers), atomic: pointInTime(s)}
	for u := range r.units {
		if err := r.write(u, replace); err != nil {
			t.Fatal(err)
		}
	}
	var done atomic.Bool
	var writing, reading sync.WaitGroup
	for u := range r.units {
		writing.Go(func() {
			for range unitVersions {
				if err := r.write(u, replace); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
			}
		})
	}
	for range 3 {
		rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
		reading.Go(func() {
			seen := map[string]int64{}
			for last := false; !last && !t.Failed(); runtime.Gosched() {
				last = done.Load()
				r.read(rng, seen)
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
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

type readers struct {
	*testing.T
	store  store.Store
	units  []unit
	atomic bool // all keys of a unit have one version
}

// read makes one of the calls. seen has the newest version of each key that its reader has seen.
func (r *readers) read(rng *rand.Rand, seen map[string]int64) {
	all := len(r.units) * unitKeys
	low := make([]int64, len(r.units))
	for u := range low {
		low[u] = r.units[u].finished.Load()
	}
	value := rng.Int64N(3)
	key := unitKey(rng.IntN(len(r.units)), rng.IntN(unitKeys))
	version, err := strconv.ParseInt(r.store.LastStoreSyncResourceVersion(), 10, 64)
	if obj, ok, _ := r.store.GetByKey(key); !ok {
		r.Errorf("GetByKey finds no %s", key)
	} else if r.objects("GetByKey", []any{obj}, 1, -1, low, seen); err == nil && len(r.units) == 1 && versionOf(obj) < version {
		r.Errorf("%s has version %d when the store has had version %d", key, versionOf(obj), version)
	}
	index := func(objs []any, err error) []any { return objs } // never fails
	switch rng.IntN(7) {
	case 0:
		r.objects("List", r.store.List(), all, -1, low, seen)
	case 1:
		r.objects("ByIndex of all", index(r.store.ByIndex("value", "all")), all, -1, low, seen)
	case 2: // Where lists show each object at its time, one may move from a value to another that was read.
		if !r.atomic {
			all = -1
		}
		r.objects("Index of several values", index(r.store.Index("value", newObject("a/k", 0, "v0", "v1", "v2"))), all, -1, low, seen)
	case 3:
		r.objects("Index of a namespace", index(r.store.Index(cache.NamespaceIndex, newObject("a/k", 0))), all/2, -1, low, seen)
	case 4:
		r.objects("ByIndex", index(r.store.ByIndex("value", fmt.Sprint("v", value))), -1, value, low, seen)
	default:
		keys := r.store.ListKeys()
		if rng.IntN(2) == 0 {
			keys, _ = r.store.IndexKeys("value", "all")
		}
		if slices.Sort(keys); len(keys) != all || len(slices.Compact(keys)) != all {
			r.Errorf("ListKeys or IndexKeys returned %d keys of %d", len(keys), all)
		}
	}
}

func versionOf(obj any) int64 {
	v, _ := strconv.ParseInt(obj.(*object).ResourceVersion, 10, 64)
	return v
}

// objects tests what a read returned: the number of objects and the value that was asked for, where
// these are not negative, and the versions.
func (r *readers) objects(call string, objs []any, want int, value int64, low []int64, seen map[string]int64) {
	if want >= 0 && len(objs) != want {
		r.Errorf("%s returned %d objects of %d", call, len(objs), want)
	}
	versions, counts := make([]int64, len(r.units)), make([]int, len(r.units))
	twice := map[string]bool{}
	for _, obj := range objs {
		key, _ := keyOf(obj)
		u, v := int(obj.(*object).Name[0]-'1'), versionOf(obj)
		high := r.units[u].started.Load()
		switch {
		case twice[key]:
			r.Errorf("%s returned %s twice", call, key)
		case v < low[u] || v > high:
			r.Errorf("%s returned %s@%d, where %d had been written before and %d had begun", call, key, v, low[u], high)
		case v < seen[key]:
			r.Errorf("%s returned %s@%d to a reader that had seen %d", call, key, v, seen[key])
		case value >= 0 && v%3 != value:
			r.Errorf("%s of v%d returned %s@%d", call, value, key, v)
		case r.atomic && counts[u] > 0 && v != versions[u]:
			r.Errorf("%s returned %s@%d beside version %d of one write", call, key, v, versions[u])
		default:
			twice[key], seen[key], versions[u] = true, v, v
			counts[u]++
			continue
		}
		return
	}
	for u, n := range counts {
		if r.atomic && value >= 0 && n != 0 && n != unitKeys {
			r.Errorf("%s returned %d keys of %d of one write", call, n, unitKeys)
		}
		// Where lists show a point in time, a later read of any key sees as much.
		for i := 0; r.atomic && n > 0 && i < unitKeys; i++ {
			seen[unitKey(u, i)] = versions[u]
		}
	}
}
