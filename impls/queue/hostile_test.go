package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/queue"
)

// each runs a test on each variant.
func each(t *testing.T, test func(t *testing.T, build func(cache.KeyFunc) queue.Queue)) {
	for _, v := range queue.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) {
			test(t, func(f cache.KeyFunc) queue.Queue {
				q, err := v.New(queue.Options{KeyFunction: f})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(q.Close)
				return q
			})
		})
	}
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// drain pops all queued objects and returns their names.
func drain(t *testing.T, q queue.Queue) (names []string) {
	t.Helper()
	for q.Len() > 0 {
		if _, err := q.Pop(func(obj any, _ bool) error {
			names = append(names, obj.(metav1.Object).GetName())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	return names
}

// TestTombstones: a tombstone has the key that the key function gives, as in client-go's FIFO.
func TestTombstones(t *testing.T) {
	custom := func(obj any) (string, error) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			return d.Key, nil
		}
		return cache.MetaNamespaceKeyFunc(obj)
	}
	for name, c := range map[string]struct {
		f       cache.KeyFunc
		refused bool
	}{
		"default":  {nil, true},
		"plain":    {cache.MetaNamespaceKeyFunc, true},
		"deletion": {cache.DeletionHandlingMetaNamespaceKeyFunc, false},
		"custom":   {custom, false},
		"labels":   {func(obj any) (string, error) { return "ns/" + obj.(metav1.Object).GetName(), nil }, true},
	} {
		t.Run("key="+name, func(t *testing.T) {
			each(t, func(t *testing.T, build func(cache.KeyFunc) queue.Queue) {
				q := build(c.f)
				for _, name := range []string{"a", "b", "c"} {
					if err := q.Add(pod(name)); err != nil {
						t.Fatal(err)
					}
				}
				err := recovered(func() error {
					return errors.Join(
						q.Delete(cache.DeletedFinalStateUnknown{Key: "ns/a", Obj: pod("a")}),
						q.Delete(cache.DeletedFinalStateUnknown{Key: "ns/b"}),
						q.Delete(cache.DeletedFinalStateUnknown{Key: "ns/unknown"}))
				})
				want := []string{"c"}
				if c.refused {
					want = []string{"a", "b", "c"}
				}
				if got := drain(t, q); (err != nil) != c.refused || !slices.Equal(got, want) {
					t.Errorf("Delete of tombstones returned %v, then %v was popped, want %v", err, got, want)
				}
			})
		})
	}
}

// recovered returns the error of f, or its panic as one.
func recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errPanic, r)
		}
	}()
	return f()
}

var errPanic = errors.New("panic")

// hollow has its metadata behind a pointer, which may be nil.
type hollow struct{ *metav1.ObjectMeta }

// TestPanics: the caller that brings an object whose key cannot be read gets the panic. Nothing
// that is queued is lost, and no later call hangs.
func TestPanics(t *testing.T) {
	fails := func(obj any) (string, error) {
		if p, ok := obj.(*v1.Pod); !ok || p.Labels["fails"] != "" {
			panic("the key function fails")
		}
		return cache.MetaNamespaceKeyFunc(obj)
	}
	labelled := pod("bad")
	labelled.Labels = map[string]string{"fails": "true"}
	for name, c := range map[string]struct {
		f   cache.KeyFunc
		bad any
	}{
		"nil pod":      {nil, (*v1.Pod)(nil)},
		"nil metadata": {nil, hollow{}},
		"nil typed":    {cache.DeletionHandlingMetaNamespaceKeyFunc, (*metav1.ObjectMeta)(nil)},
		"key function": {fails, labelled},
		"nil for it":   {fails, (*v1.Pod)(nil)},
	} {
		t.Run("object="+name, func(t *testing.T) {
			each(t, func(t *testing.T, build func(cache.KeyFunc) queue.Queue) {
				q := build(c.f)
				if err := errors.Join(q.Add(pod("a")), q.Add(pod("b"))); err != nil {
					t.Fatal(err)
				}
				for name, call := range map[string]func(any) error{
					"Add": q.Add, "Update": q.Update, "Delete": q.Delete,
					"Replace": func(obj any) error { return q.Replace([]any{pod("x"), obj}, "1") },
				} {
					if err := recovered(func() error { return call(c.bad) }); !errors.Is(err, errPanic) {
						t.Errorf("%s returned %v, want a panic", name, err)
					}
				}
				if err := q.Add(pod("c")); err != nil {
					t.Error(err)
				}
				if got := drain(t, q); !slices.Equal(got, []string{"a", "b", "c"}) {
					t.Errorf("popped %v, want a, b and c", got)
				}
			})
		})
	}
}
