package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/store"
)

// forAll runs a test on each variant.
func forAll(t *testing.T, test func(t *testing.T, variant string)) {
	for _, v := range store.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { test(t, v.Name) })
	}
}

// configMap makes an object named "namespace/name" with a resourceVersion.
func configMap(key, resourceVersion string) *v1.ConfigMap {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: resourceVersion,
	}}
}

// contents writes a list as "a/x@1 a/y@2".
func contents(list []any) string {
	words := make([]string, len(list))
	for i, obj := range list {
		o := obj.(*v1.ConfigMap)
		words[i] = cache.MetaObjectToName(o).String() + "@" + o.ResourceVersion
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func newUndelta(t *testing.T, variant string, push func([]any)) *store.UndeltaStore {
	t.Helper()
	u, err := store.NewUndeltaStore(variant, push, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestUndeltaStorePushesTheContentsAfterEachChange(t *testing.T) {
	steps := []struct {
		name string
		call func(u *store.UndeltaStore) error
		want []string // the pushes
	}{
		{"Add", func(u *store.UndeltaStore) error { return u.Add(configMap("a/x", "1")) }, []string{"a/x@1"}},
		{"Update", func(u *store.UndeltaStore) error { return u.Update(configMap("a/x", "2")) }, []string{"a/x@2"}},
		{"Add of another", func(u *store.UndeltaStore) error { return u.Add(configMap("a/y", "3")) }, []string{"a/x@2 a/y@3"}},
		{"Delete", func(u *store.UndeltaStore) error { return u.Delete(configMap("a/x", "4")) }, []string{"a/y@3"}},
		{"Delete of nothing", func(u *store.UndeltaStore) error { return u.Delete(configMap("a/z", "5")) }, []string{"a/y@3"}},
		{"Replace", func(u *store.UndeltaStore) error {
			return u.Replace([]any{configMap("b/x", "6"), configMap("b/y", "6")}, "6")
		}, []string{"b/x@6 b/y@6"}},
		{"Replace by nothing", func(u *store.UndeltaStore) error { return u.Replace(nil, "7") }, []string{""}},
		{"reads, Bookmark, Resync", func(u *store.UndeltaStore) error {
			u.List()
			u.ListKeys()
			u.Bookmark("8")
			_, _, err := u.Get(configMap("b/x", ""))
			_, _, err2 := u.GetByKey("b/x")
			return errors.Join(err, err2, u.Resync())
		}, nil},
	}
	forAll(t, func(t *testing.T, variant string) {
		var pushes []string
		u := newUndelta(t, variant, func(list []any) { pushes = append(pushes, contents(list)) })
		for _, s := range steps {
			pushes = nil
			if err := s.call(u); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if !slices.Equal(pushes, s.want) {
				t.Errorf("%s pushed %q (want %q)", s.name, pushes, s.want)
			}
		}
		pushes = nil
		for name, err := range map[string]error{
			"Add": u.Add("no object"), "Update": u.Update("no object"), "Delete": u.Delete("no object"),
			"Replace": u.Replace([]any{"no object"}, "9"),
		} {
			if !errors.As(err, &cache.KeyError{}) {
				t.Errorf("%s without a key: %v (want a KeyError)", name, err)
			}
		}
		if len(pushes) != 0 {
			t.Errorf("failed changes pushed %q", pushes)
		}
	})
}

// TestUndeltaStoreOrder is what upstream does not promise: with concurrent writers, each push has one
// change more than the one before.
func TestUndeltaStoreOrder(t *testing.T) {
	const writers, each = 4, 25
	forAll(t, func(t *testing.T, variant string) {
		var pushes []map[string]bool // without a lock: pushes do not overlap
		u := newUndelta(t, variant, func(list []any) {
			names := map[string]bool{}
			for _, obj := range list {
				names[obj.(*v1.ConfigMap).Name] = true
			}
			pushes = append(pushes, names)
		})
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if err := u.Add(configMap(fmt.Sprintf("a/%d-%d", w, i), "1")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if len(pushes) != writers*each {
			t.Fatalf("%d pushes of %d changes", len(pushes), writers*each)
		}
		for i, names := range pushes {
			if len(names) != i+1 {
				t.Fatalf("push %d has %d objects", i+1, len(names))
			}
			if i == 0 {
				continue
			}
			for name := range pushes[i-1] {
				if !names[name] {
					t.Fatalf("push %d lacks %s of the push before", i+1, name)
				}
			}
		}
	})
}

func TestUndeltaStoreAfterAPanicOfPush(t *testing.T) {
	forAll(t, func(t *testing.T, variant string) {
		var last string
		u := newUndelta(t, variant, func(list []any) {
			if last = contents(list); last == "a/x@1" {
				panic(last)
			}
		})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the caller did not get the panic")
				}
			}()
			_ = u.Add(configMap("a/x", "1"))
		}()
		if err := u.Add(configMap("a/y", "2")); err != nil || last != "a/x@1 a/y@2" {
			t.Errorf("after a panic, Add returned %v and pushed %q", err, last)
		}
	})
}

func TestUnknownVariantBelow(t *testing.T) {
	_, err := store.NewUndeltaStore("none", nil, store.Options{})
	_, err2 := store.NewExpirationCache("none", nil, nil, store.Options{})
	if !errors.Is(err, impls.ErrUnknownVariant) || !errors.Is(err2, impls.ErrUnknownVariant) {
		t.Errorf("errors %v, %v (want ErrUnknownVariant)", err, err2)
	}
}
