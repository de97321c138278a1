package workqueue_test

import (
	"math"
	"testing"

	"watchlab/impls/workqueue"
)

// forEach builds a queue of each own variant, for items of any type.
func forEach[T comparable](t *testing.T, test func(t *testing.T, q workqueue.Queue[T])) {
	for _, v := range workqueue.Variants() {
		if v.Baseline() {
			continue
		}
		q, err := workqueue.New(v.Name, workqueue.Options[T]{})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(v.Name, func(t *testing.T) { test(t, q) })
	}
}

// request is like controller-runtime's.
type request struct{ Namespace, Name string }

func TestItemsOfAnyType(t *testing.T) {
	t.Run("struct", func(t *testing.T) {
		forEach(t, func(t *testing.T, q workqueue.Queue[request]) {
			q.Add(request{"a", "b"})
			q.Add(request{"a", "b"})
			got, _ := q.Get()
			q.Add(request{"a", "b"})
			q.Add(got)
			q.Done(request{"a", "b"})
			if again, _ := q.Get(); again != got || q.Len() != 0 {
				t.Errorf("got %v, then %v, %d left", got, again, q.Len())
			}
		})
	})
	t.Run("interface", func(t *testing.T) {
		forEach(t, func(t *testing.T, q workqueue.Queue[any]) {
			for _, item := range []any{1, int64(1), "1", 1, nil, request{}, nil} {
				q.Add(item)
			}
			if q.Len() != 5 {
				t.Errorf("%d items, want 5", q.Len())
			}
			for _, call := range []func(any){q.Add, q.Done} {
				func() {
					defer func() {
						if recover() == nil {
							t.Error("no panic with an item that is not comparable")
						}
					}()
					call([]int{})
				}()
			}
			if q.Add(2); q.Len() != 6 {
				t.Error("a panic left the queue locked or changed")
			}
		})
	})
	t.Run("NaN", func(t *testing.T) {
		forEach(t, func(t *testing.T, q workqueue.Queue[float64]) {
			for _, item := range []float64{math.NaN(), math.NaN(), 0, math.Copysign(0, -1)} {
				q.Add(item)
			}
			if q.Len() != 3 {
				t.Errorf("%d items, want 3", q.Len())
			}
			for q.Len() > 0 {
				item, _ := q.Get()
				q.Done(item)
			}
			q.ShutDownWithDrain()
		})
	})
}
