package deltafifo

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// named makes an object of a name; its key is that.
func named(format string, args ...any) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: fmt.Sprintf(format, args...)}
}

func newQueue[T Queue](t *testing.T, v Variant, o Options) T {
	t.Helper()
	q, err := v.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q.(T)
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// each runs a test with each variant, upstream's among them, and each of its deliveries.
func each(t *testing.T, f func(t *testing.T, v Variant, o Options)) {
	for _, v := range Variants() {
		for _, g := range v.Guarantees {
			t.Run(fmt.Sprintf("impl=%s/delivery=%s", v.Name, g.Mode), func(t *testing.T) {
				f(t, v, Options{Delivery: Delivery(g.Mode)})
			})
		}
	}
}

// panickyStore panics while it is armed.
type panickyStore struct{ list, get bool }

func (s *panickyStore) ListKeys() []string {
	if s.list {
		panic("list")
	}
	return []string{"known"}
}

func (s *panickyStore) GetByKey(string) (any, bool, error) {
	if s.get {
		panic("get")
	}
	return named("known"), true, nil
}

// TestPanics: the caller that brings something bad gets the panic, also while the consumer waits.
// What is queued before and after is delivered, and nothing hangs.
func TestPanics(t *testing.T) {
	var none *v1.Pod
	badKey := func(obj any) (string, error) { return obj.(*metav1.ObjectMeta).Name, nil }
	toNil := func(obj any) (any, error) {
		if obj.(*metav1.ObjectMeta).Name == "bad" {
			return (*metav1.ObjectMeta)(nil), nil
		}
		return obj, nil
	}
	store := new(panickyStore)
	for _, c := range []struct {
		name string
		set  Options
		call func(q Queue) error
	}{
		{"Add of nil", Options{}, func(q Queue) error { return q.Add(none) }},
		{"Update of nil", Options{}, func(q Queue) error { return q.Update(none) }},
		{"Delete of nil", Options{}, func(q Queue) error { return q.Delete(none) }},
		{"Replace with nil", Options{KnownObjects: store}, func(q Queue) error { return q.Replace([]any{none}, "1") }},
		{"Replace lists", Options{KnownObjects: store}, func(q Queue) error { store.list = true; return q.Replace(nil, "1") }},
		{"Replace gets", Options{KnownObjects: store}, func(q Queue) error { store.get = true; return q.Replace(nil, "1") }},
		{"Resync lists", Options{KnownObjects: store}, func(q Queue) error { store.list = true; return q.Resync() }},
		{"Resync gets", Options{KnownObjects: store}, func(q Queue) error { store.get = true; return q.Resync() }},
		{"key function", Options{KeyFunction: badKey}, func(q Queue) error { return q.Add(none) }},
		{"key function on what the transformer returns", Options{KeyFunction: badKey, Transformer: toNil},
			func(q Queue) error { return q.Add(named("bad")) }},
	} {
		each(t, func(t *testing.T, v Variant, o Options) {
			if v.Baseline() && c.set.Transformer != nil {
				t.Skip("the consumer gets it, or nobody")
			}
			o.KeyFunction, o.KnownObjects, o.Transformer = c.set.KeyFunction, c.set.KnownObjects, c.set.Transformer
			for _, waits := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					*store = panickyStore{}
					q, err := v.New(o)
					if err != nil {
						t.Skip(err)
					}
					var popped []string
					pop := func() {
						_, err := q.Pop(func(obj any, _ bool) error {
							for _, d := range obj.(cache.Deltas) {
								if o, ok := d.Object.(*metav1.ObjectMeta); ok {
									popped = append(popped, o.Name)
								}
							}
							return nil
						})
						if err != nil && !errors.Is(err, cache.ErrFIFOClosed) {
							t.Error(err)
						}
					}
					if mustDo(t, q.Add(named("a"))); waits {
						pop()
						go pop()
						synctest.Wait()
					}
					if !panics(func() { _ = c.call(q) }) {
						t.Errorf("%s, consumer waits=%t: no panic", c.name, waits)
					}
					*store = panickyStore{}
					mustDo(t, q.Add(named("b")))
					synctest.Wait()
					for q.Len() > 0 {
						pop()
					}
					q.Close()
					synctest.Wait()
					if slices.Sort(popped); !slices.Equal(slices.Compact(popped), []string{"a", "b"}) {
						t.Errorf("%s, consumer waits=%t: popped %q", c.name, waits, popped)
					}
				})
			}
		})
	}
}

// TestDeletePanics: client-go's caller of Delete gets a panic of KnownObjects. Ours does not; the
// deletion is delivered, and what is queued before and after it.
func TestDeletePanics(t *testing.T) {
	each(t, func(t *testing.T, v Variant, o Options) {
		if o.Delivery != PerKey {
			t.Skip("it delivers every Delete")
		}
		store := new(panickyStore)
		o.KnownObjects = store
		q := newQueue[Queue](t, v, o)
		mustDo(t, q.Add(named("a")))
		store.get = true
		if panicked := panics(func() { mustDo(t, q.Delete(named("known"))) }); panicked != v.Baseline() {
			t.Errorf("the caller got the panic: %t", panicked)
		}
		mustDo(t, q.Add(named("b")))
		var popped []string
		for q.Len() > 0 {
			if _, err := q.Pop(func(obj any, _ bool) error {
				d := obj.(cache.Deltas)[0]
				popped = append(popped, fmt.Sprint(d.Type, " ", d.Object.(*metav1.ObjectMeta).Name))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"Added a", "Added b", "Deleted known"}
		if v.Baseline() {
			want = want[:2]
		}
		// Shards have no order between keys.
		if slices.Sort(popped); !slices.Equal(popped, want) {
			t.Errorf("popped %q, want %q", popped, want)
		}
	})
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

// TestTransformedKey: delivery per key uses the key before the transformer, and every object is
// delivered, also one without metadata.
func TestTransformedKey(t *testing.T) {
	each(t, func(t *testing.T, v Variant, o Options) {
		o.Transformer = func(obj any) (any, error) {
			if obj.(*metav1.ObjectMeta).ResourceVersion == "" {
				return "bare " + obj.(*metav1.ObjectMeta).Name, nil
			}
			return obj, nil
		}
		q := newQueue[Queue](t, v, o)
		mustDo(t, q.Replace([]any{named("a"), named("b")}, "1"), q.Add(&metav1.ObjectMeta{Name: "a", ResourceVersion: "2"}),
			q.Update(named("a")), q.Update(named("c")))
		pops, deltas := 0, 0
		for ; q.Len() > 0; pops++ {
			if _, err := q.Pop(func(obj any, _ bool) error {
				for _, d := range obj.(cache.Deltas) {
					if info, ok := d.Object.(cache.ReplacedAllInfo); ok {
						deltas += len(info.Objects) - 1
					}
					deltas++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if want := map[Delivery]int{PerKey: 3, InOrder: 4}[o.Delivery]; pops != want || deltas != 5 {
			t.Errorf("%d pops of %d objects, want %d of 5", pops, deltas, want)
		}
	})
}

// TestSyncedAtOnce: HasSynced is true when a first Add or an empty first list has returned, though
// the consumer waits, and false after a Delete of DeltaFIFO without a key.
func TestSyncedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, v Variant, o Options) {
		for name, first := range map[string]func(Queue) error{
			"Add":     func(q Queue) error { return q.Add(named("a")) },
			"Replace": func(q Queue) error { return q.Replace(nil, "1") },
		} {
			if name == "Replace" && o.Delivery == InOrder {
				continue // It is a delta to be processed.
			}
			for range 100 {
				q := newQueue[Queue](t, v, o)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = q.Pop(func(any, bool) error { return nil })
				}()
				if mustDo(t, first(q)); !q.HasSynced() {
					t.Fatalf("HasSynced is false after %s", name)
				}
				q.Close()
				<-ended
			}
		}
		q := newQueue[Queue](t, v, o)
		var keyError cache.KeyError
		if err := q.Delete("no metadata"); !errors.As(err, &keyError) || q.HasSynced() != (o.Delivery == InOrder) {
			t.Errorf("after a Delete without a key, %v, HasSynced is %t", err, q.HasSynced())
		}
	})
}
