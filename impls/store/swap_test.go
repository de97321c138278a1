package store_test

import (
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/store"
)

// TestSwap: Swap does what Transaction does, and says what was replaced.
func TestSwap(t *testing.T) {
	object := func(name string) any { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	swappers := 0
	for _, v := range store.Variants() {
		s, err := v.New(store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		swapper, ok := s.(store.Swapper)
		if !ok {
			continue
		}
		swappers++
		a, b, c := object("a"), object("b"), object("c")
		if err := s.Transaction(cache.Transaction{Object: a}, cache.Transaction{Object: b}); err != nil {
			t.Fatal(err)
		}
		again, old := object("a"), []any{1, 2, 3, 4, 5}
		failed := swapper.Swap(old,
			cache.Transaction{Object: again, Type: cache.TransactionTypeAdd}, cache.Transaction{Object: struct{}{}},
			cache.Transaction{Object: cache.DeletedFinalStateUnknown{Key: "b"}, Type: cache.TransactionTypeDelete},
			cache.Transaction{Object: c, Type: cache.TransactionTypeUpdate}, cache.Transaction{Object: object("d"), Type: cache.TransactionTypeDelete})
		if want := []any{a, nil, b, nil, nil}; !slices.Equal(old, want) {
			t.Errorf("%s: replaced %v, want %v", v.Name, old, want)
		}
		if failed == nil || !reflect.DeepEqual(failed.SuccessfulIndices, []int{0, 2, 3, 4}) {
			t.Errorf("%s: returned %v", v.Name, failed)
		}
		last := []any{nil, nil}
		_ = swapper.Swap(last, cache.Transaction{Object: c, Type: cache.TransactionTypeDelete}, cache.Transaction{Object: c})
		if want := []any{c, nil}; !slices.Equal(last, want) {
			t.Errorf("%s: one key twice: replaced %v, want %v", v.Name, last, want)
		}
		got, _, _ := s.GetByKey("a")
		keys := s.ListKeys()
		slices.Sort(keys)
		if got != again || !slices.Equal(keys, []string{"a", "c"}) {
			t.Errorf("%s: holds %v and %v", v.Name, keys, got)
		}
	}
	if swappers == 0 {
		t.Error("no variant is a Swapper")
	}
}
