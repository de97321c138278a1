package store

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestListsDuringChurn lists while keys come, leave a value, come back and go, so that tables grow,
// shrink and have entries that do not belong to them. No list has a key twice, an object without the
// value, or fewer than all objects that are never gone.
func TestListsDuringChurn(t *testing.T) {
	const stable, churning, rounds = 40, 150, 12
	for _, v := range Variants() {
		for _, procs := range []int{1, 2, 8} {
			if v.Baseline() || testing.Short() && procs != 2 {
				continue
			}
			t.Run(fmt.Sprintf("impl=%s/procs=%d", v.Name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				s, err := v.New(Options{Indexers: cache.Indexers{"values": valuesIndex}})
				if err != nil {
					t.Fatal(err)
				}
				write := func(kind cache.TransactionType, first, n, version int, values ...string) {
					txns := make([]cache.Transaction, n)
					for i := range txns {
						txns[i] = cache.Transaction{Type: kind, Object: newObject(first+i, version, values...)}
					}
					if err := s.Transaction(txns...); err != nil {
						t.Error(err)
					}
				}
				write(cache.TransactionTypeAdd, 0, stable, 0, "all")
				var done atomic.Bool
				var writing, reading sync.WaitGroup
				writing.Go(func() {
					for i := range rounds * 8 {
						write(cache.TransactionTypeUpdate, 0, stable, i, "all", fmt.Sprint(i%3))
					}
				})
				for w := range 2 {
					writing.Go(func() {
						first := stable + w*churning
						for i := range rounds {
							write(cache.TransactionTypeAdd, first, churning, i, "all")
							write(cache.TransactionTypeUpdate, first, churning/2, i, "other")
							write(cache.TransactionTypeUpdate, first, churning/2, i, "other", "all")
							write(cache.TransactionTypeDelete, first+5, churning-5, i)
						}
					})
				}
				for range 2 {
					reading.Go(func() {
						for !done.Load() && !t.Failed() {
							list, err := s.ByIndex("values", "all")
							checkList(t, "ByIndex", list, stable, "all", err)
							several, err := s.Index("values", newObject(0, 0, "other", "all"))
							checkList(t, "Index", several, 0, "", err)
							checkList(t, "List", s.List(), stable, "", nil)
						}
					})
				}
				writing.Wait()
				done.Store(true)
				reading.Wait()
			})
		}
	}
}

func checkList(t *testing.T, read string, list []any, stable int, value string, err error) {
	if err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, obj := range list {
		o := obj.(*object)
		has := value == ""
		for _, v := range o.values {
			has = has || v == value
		}
		if seen[o.Name] || !has {
			t.Errorf("%s: %s is there twice (%t) or lacks %q: it has %q", read, o.Name, seen[o.Name], value, o.values)
		}
		seen[o.Name] = true
	}
	for i := range stable {
		if name := newObject(i, 0).Name; !seen[name] {
			t.Errorf("%s: no %s, which is stored all the time", read, name)
		}
	}
}
