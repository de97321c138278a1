package keys_test

import (
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
)

func TestLen(t *testing.T) {
	for _, q := range []cache.Queue{
		cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{}),
		cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{AtomicEvents: true}),
		cache.NewFIFO(cache.MetaNamespaceKeyFunc),
	} {
		length, err := keys.UpstreamLen(q)
		if err != nil {
			t.Fatalf("%T: %v", q, err)
		}
		for want := range 3 {
			if got := length(); got != want {
				t.Errorf("%T: length is %d, want %d", q, got, want)
			}
			if err := q.Add(cache.ExplicitKey(rune('a' + want))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got := length(); got != 2 {
			t.Errorf("%T: length is %d after Pop, want 2", q, got)
		}
	}
}

func TestLenOfSomethingElse(t *testing.T) {
	for _, q := range []any{nil, 1, struct{}{}, &struct{ lock int }{}, &struct{ items map[string]int }{}} {
		if _, err := keys.UpstreamLen(q); err == nil {
			t.Errorf("Len of %T is not an error", q)
		}
	}
}
