package store_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"watchlab/impls"
	"watchlab/impls/store"
)

const ttl = time.Minute

func newExpiration(t *testing.T, variant string) (*store.ExpirationCache, *testingclock.FakeClock) {
	t.Helper()
	c := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e, err := store.NewExpirationCache(variant, &cache.TTLPolicy{TTL: ttl, Clock: c}, c, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e, c
}

// TestExpirationCache runs a script. Steps of upper case are calls; the others read.
func TestExpirationCache(t *testing.T) {
	steps := []struct{ call, list, keys, got string }{ // got is GetByKey("a/x")
		{"ADD a/x 1", "a/x@1", "a/x", "a/x@1"},
		{"WAIT 1m", "a/x@1", "a/x", "a/x@1"}, // an age equal to the TTL is not above it
		{"ADD a/y 2", "a/x@1 a/y@2", "a/x a/y", "a/x@1"},
		{"WAIT 1ns", "a/y@2", "a/x a/y", ""}, // keys are read first
		{"nothing", "a/y@2", "a/y", ""},
		{"ADD a/x 3", "a/x@3 a/y@2", "a/x a/y", "a/x@3"}, // again after it expired
		{"WAIT 40s", "a/x@3 a/y@2", "a/x a/y", "a/x@3"},
		{"UPDATE a/x 3", "a/x@3 a/y@2", "a/x a/y", "a/x@3"}, // stamps anew
		{"WAIT 30s", "a/x@3", "a/x a/y", "a/x@3"},
		{"DELETE a/x 4", "", "", ""},
		{"REPLACE a/x 5 a/z 5", "a/x@5 a/z@5", "a/x a/z", "a/x@5"},
		{"WAIT 2m", "", "a/x a/z", ""},
		{"nothing", "", "", ""},
	}
	forAll(t, func(t *testing.T, variant string) {
		for _, getFirst := range []bool{false, true} {
			e, clock := newExpiration(t, variant)
			for i, s := range steps {
				words := strings.Fields(s.call)
				var err error
				switch words[0] {
				case "ADD":
					err = e.Add(configMap(words[1], words[2]))
				case "UPDATE":
					err = e.Update(configMap(words[1], words[2]))
				case "DELETE":
					err = e.Delete(configMap(words[1], words[2]))
				case "REPLACE":
					err = e.Replace([]any{configMap(words[1], words[2]), configMap(words[3], words[4])}, words[2])
				case "WAIT":
					d, _ := time.ParseDuration(words[1])
					clock.Step(d)
				}
				keys := e.ListKeys()
				slices.Sort(keys)
				var list, got string
				read := []func(){func() { list = contents(e.List()) }, func() {
					if obj, exists, _ := e.GetByKey("a/x"); exists {
						got = contents([]any{obj})
					}
				}}
				if getFirst {
					slices.Reverse(read)
				}
				for _, f := range read {
					f()
				}
				if k := strings.Join(keys, " "); err != nil || list != s.list || got != s.got || k != s.keys {
					t.Fatalf("step %d, %s: list %q, keys %q, get %q, error %v (want %q, %q, %q)",
						i, s.call, list, k, got, err, s.list, s.keys, s.got)
				}
			}
		}
	})
}

func TestExpirationCacheErrors(t *testing.T) {
	forAll(t, func(t *testing.T, variant string) {
		e, _ := newExpiration(t, variant)
		if err := e.Replace([]any{configMap("a/x", "1")}, "1"); err != nil {
			t.Fatal(err)
		}
		_, _, get := e.Get("no object")
		for name, err := range map[string]error{
			"Add": e.Add("no object"), "Update": e.Update("no object"), "Delete": e.Delete("no object"),
			"Replace": e.Replace([]any{configMap("a/y", "2"), "no object"}, "2"), "Get": get,
		} {
			if !errors.As(err, &cache.KeyError{}) {
				t.Errorf("%s without a key: %v (want a KeyError)", name, err)
			}
		}
		if list := contents(e.List()); list != "a/x@1" {
			t.Errorf("after errors, the cache has %q", list)
		}
		_, err := store.NewExpirationCache(variant, nil, nil, store.Options{Indexers: cache.Indexers{"i": nil}})
		if !errors.Is(err, impls.ErrOptions) {
			t.Errorf("indexers: %v (want ErrOptions)", err)
		}
	})
}

// TestExpirationCacheResourceVersion compares with upstream's.
func TestExpirationCacheResourceVersion(t *testing.T) {
	forAll(t, func(t *testing.T, variant string) {
		e, _ := newExpiration(t, variant)
		upstream := cache.NewTTLStore(cache.MetaNamespaceKeyFunc, ttl)
		for i, call := range []func(cache.Store) error{
			func(s cache.Store) error { return s.Replace([]any{configMap("a/x", "3")}, "4") },
			func(s cache.Store) error { return s.Add(configMap("a/y", "5")) },
			func(s cache.Store) error { return s.Delete(configMap("a/y", "6")) },
			func(s cache.Store) error { s.Bookmark("7"); return nil },
		} {
			if err := errors.Join(call(e), call(upstream)); err != nil {
				t.Fatal(err)
			}
			if got, want := e.LastStoreSyncResourceVersion(), upstream.LastStoreSyncResourceVersion(); got != want {
				t.Errorf("call %d: resourceVersion %q (upstream %q)", i, got, want)
			}
		}
	})
}

// policyFunc is an [cache.ExpirationPolicy].
type policyFunc func(*cache.TimestampedEntry) bool

func (f policyFunc) IsExpired(e *cache.TimestampedEntry) bool { return f(e) }

// TestExpirationKeepsAFreshObject writes an object between the judgement of the old one and its
// removal, which must not remove the new one.
func TestExpirationKeepsAFreshObject(t *testing.T) {
	forAll(t, func(t *testing.T, variant string) {
		for name, read := range map[string]func(*store.ExpirationCache) string{
			"List": func(e *store.ExpirationCache) string { return contents(e.List()) },
			"Get": func(e *store.ExpirationCache) string {
				obj, exists, err := e.Get(configMap("a/x", ""))
				if !exists || err != nil {
					return "nothing"
				}
				return contents([]any{obj})
			},
		} {
			var e *store.ExpirationCache
			var once sync.Once
			policy := policyFunc(func(s *cache.TimestampedEntry) bool {
				if s.Obj.(*v1.ConfigMap).ResourceVersion != "1" {
					return false
				}
				once.Do(func() {
					if err := e.Add(configMap("a/x", "2")); err != nil {
						t.Error(err)
					}
				})
				return true
			})
			e, _ = store.NewExpirationCache(variant, policy, nil, store.Options{})
			if err := e.Add(configMap("a/x", "1")); err != nil {
				t.Fatal(err)
			}
			if got := read(e); got != "a/x@2" {
				t.Errorf("%s returned %q (want the object of the later Add)", name, got)
			}
			if got := contents(e.List()); got != "a/x@2" {
				t.Errorf("after %s the cache has %q", name, got)
			}
		}
	})
}

// TestExpirationRace reads and writes one key from many goroutines while its objects expire. A reader
// whose own write is younger than the TTL finds an object.
func TestExpirationRace(t *testing.T) {
	forAll(t, func(t *testing.T, variant string) {
		e, clock := newExpiration(t, variant)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for range 100 {
					if g == 0 {
						clock.Step(ttl / 50)
					}
					if err := e.Add(configMap("a/x", "1")); err != nil {
						t.Error(err)
					}
					e.List()
					_, _, _ = e.GetByKey("a/x")
				}
			})
		}
		wg.Wait()
		if got := contents(e.List()); got != "a/x@1" {
			t.Errorf("the cache has %q", got)
		}
	})
}
