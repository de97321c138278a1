package keys_test

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"watchlab/impls/internal/keys"
)

// TestCanonical: keys are equal exactly where client-go's strings are, whatever
// stands in the names, and turn back into those strings. Raw and Hashed make the
// same keys with the same hashes, which differ where the keys do.
func TestCanonical(t *testing.T) {
	part := rapid.OneOf(rapid.StringOfN(rapid.SampledFrom([]rune("ab/")), 0, 4, -1), rapid.StringOfN(rapid.SampledFrom([]rune("ab-/0.\u00af")), 0, 20, -1))
	pod := rapid.Custom(func(t *rapid.T) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: part.Draw(t, "namespace"), Name: part.Draw(t, "name")}}
	})
	f := keys.NewFunc(nil)
	rapid.Check(t, func(t *rapid.T) {
		var k [2]keys.Key
		var s [2]string
		for i := range k {
			p := pod.Draw(t, "pod")
			var err error
			if s[i], err = cache.MetaNamespaceKeyFunc(p); err != nil {
				t.Fatal(err)
			}
			if k[i], err = f.OfQueued(p); err != nil {
				t.Fatal(err)
			}
			if k[i].String() != s[i] {
				t.Fatalf("key of %q/%q reads %q, client-go's %q", p.Namespace, p.Name, k[i], s[i])
			}
			if raw, ok := f.Raw(p); !ok {
				t.Fatal("a pod has no raw key")
			} else if key, hash := raw.Hashed(); key != k[i] || hash != key.Hash() {
				t.Fatalf("Hashed returned %#v with hash %x, want %#v with %x", key, hash, k[i], k[i].Hash())
			}
			if split := keys.Split(s[i]); split != k[i] {
				t.Fatalf("Split(%q) is %#v, the object's key %#v", s[i], split, k[i])
			}
		}
		if (k[0] == k[1]) != (s[0] == s[1]) {
			t.Fatalf("%#v and %#v are equal=%t, %q and %q are not", k[0], k[1], k[0] == k[1], s[0], s[1])
		}
		if (k[0] == k[1]) != (k[0].Hash() == k[1].Hash()) {
			t.Fatalf("%#v and %#v have the hashes %x and %x", k[0], k[1], k[0].Hash(), k[1].Hash())
		}
	})
}

func TestOfQueued(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"}}
	custom := func(obj any) (string, error) {
		if s, ok := obj.(string); ok {
			return s, nil
		}
		return "", fmt.Errorf("%T has no key", obj)
	}
	for _, c := range []struct {
		f    cache.KeyFunc
		obj  any
		want string
		fail bool
	}{
		{nil, pod, "ns/n", false},
		{cache.MetaNamespaceKeyFunc, pod, "ns/n", false},
		{cache.DeletionHandlingMetaNamespaceKeyFunc, pod, "ns/n", false},
		{nil, cache.ExplicitKey("a/b"), "a/b", false},
		{nil, cache.DeletedFinalStateUnknown{Key: "x/y"}, "x/y", false},
		{custom, cache.DeletedFinalStateUnknown{Key: "x/y"}, "x/y", false},
		{nil, cache.Deltas{{Type: cache.Added, Object: pod}}, "ns/n", false},
		{nil, cache.Deltas{}, "", true},
		{nil, struct{}{}, "", true},
		{nil, nil, "", true},
		{custom, "k", "k", false},
		{custom, pod, "", true},
	} {
		f := keys.NewFunc(c.f)
		k, err := f.OfQueued(c.obj)
		var keyError cache.KeyError
		switch {
		case c.fail && !errors.As(err, &keyError):
			t.Errorf("%#v: error %v, want a KeyError", c.obj, err)
		case !c.fail && (err != nil || k.String() != c.want):
			t.Errorf("%#v: %q, %v, want %q", c.obj, k, err, c.want)
		}
		if got := f.Check(c.obj); (got != nil) != c.fail {
			t.Errorf("%#v: Check returned %v", c.obj, got)
		}
	}
}

// TestObjectFunc: a key function for objects accepts what client-go's accepts, and no more.
func TestObjectFunc(t *testing.T) {
	for name, f := range map[string]cache.KeyFunc{
		"plain": cache.MetaNamespaceKeyFunc, "deletion": cache.DeletionHandlingMetaNamespaceKeyFunc,
	} {
		for _, obj := range []any{
			&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"}}, cache.ExplicitKey("a/b"), nil, "text",
			cache.DeletedFinalStateUnknown{Key: "x/y"}, cache.Deltas{{Object: &v1.Pod{}}}, cache.Deltas{},
			&overridden{ObjectMeta: metav1.ObjectMeta{Name: "n"}, name: "one"}, &namespaced{name: "n", namespace: "two"},
			&accessor{metav1.ObjectMeta{Namespace: "three", Name: "n"}},
		} {
			want, refused := f(obj)
			key, err := keys.NewObjectFunc(f).OfQueued(obj)
			var keyError cache.KeyError
			if key.String() != want || errors.As(err, &keyError) != (refused != nil) {
				t.Errorf("%s of %#v: %q, %v, want %q, %v", name, obj, key, err, want, refused)
			}
			if hashed, hash, err := keys.NewObjectFunc(f).Hashed(obj); hashed != key || err == nil && hash != key.Hash() {
				t.Errorf("%s of %#v: Hashed returned %q, want %q", name, obj, hashed, key)
			}
			if got := keys.NewObjectFunc(f).Check(obj); (got != nil) != (refused != nil) {
				t.Errorf("%s of %#v: Check returned %v, want %v", name, obj, got, refused)
			}
		}
	}
}

// overridden and namespaced have names and namespaces other than their metadata's.
type overridden struct {
	metav1.ObjectMeta

	name string
}

func (o *overridden) GetName() string { return o.name }

type namespaced struct {
	metav1.ObjectMeta

	name, namespace string
}

func (o *namespaced) GetName() string      { return o.name }
func (o *namespaced) GetNamespace() string { return o.namespace }

// accessor has metadata and is no metav1.Object.
type accessor struct{ meta metav1.ObjectMeta }

func (a *accessor) GetObjectMeta() metav1.Object { return &a.meta }

func TestNoAllocation(t *testing.T) {
	f := keys.NewFunc(nil)
	for _, obj := range []any{
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace", Name: "name"}},
		&namespaced{namespace: "namespace", name: "name"}, // not of Kubernetes' own API
	} {
		if n := testing.AllocsPerRun(100, func() {
			k, err := f.OfQueued(obj)
			if err != nil || k.Hash() == 0 {
				t.Fatal(k, err)
			}
		}); n != 0 {
			t.Errorf("a key of %T allocates %v times", obj, n)
		}
	}
}
