package clientgo

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// pod makes version rv of an object without a namespace: its key is its name.
func pod(name string, rv int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(rv)}}
}

// key makes version i of the object of number i.
func key(i int) *v1.Pod { return pod(fmt.Sprintf("k%d", i), i) }

// listOf returns the delta of a Replace.
func listOf(resourceVersion string, objects ...any) cache.Delta {
	return cache.Delta{Type: cache.ReplacedAll, Object: cache.ReplacedAllInfo{ResourceVersion: resourceVersion, Objects: objects}}
}

// tombstoneOf returns a tombstone with an object.
func tombstoneOf(obj any) cache.DeletedFinalStateUnknown {
	return cache.DeletedFinalStateUnknown{Key: keyOf(obj), Obj: obj}
}

// nameless has no metadata, hence no key.
type nameless struct{}

// keyOf returns the key of the object of a delta, or "" where it concerns no single object.
func keyOf(obj any) string {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return ""
	}
	return key
}

// version of an object; of a tombstone, that of the object in it.
func version(obj any) int {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	return number(obj.(metav1.Object).GetResourceVersion())
}

// number parses what the suite itself has written.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// words writes deltas as "Updated a@3", a tombstone as "Deleted a@3†", an object
// of family queue as "a@3".
func words(deltas []cache.Delta) []string {
	out := make([]string, 0, len(deltas))
	for _, d := range deltas {
		out = append(out, word(d))
	}
	return out
}

func word(d cache.Delta) string {
	what := string(d.Type)
	switch o := d.Object.(type) {
	case cache.DeletedFinalStateUnknown:
		if what += " " + o.Key; o.Obj != nil {
			what += "@" + o.Obj.(metav1.Object).GetResourceVersion()
		}
		return what + "†"
	case metav1.Object:
		return strings.TrimSpace(what + " " + keyOf(o) + "@" + o.GetResourceVersion())
	case cache.ReplacedAllInfo:
		return fmt.Sprintf("%s %v rv=%s", what, slices.Sorted(maps.Keys(keysOf(o.Objects))), o.ResourceVersion)
	case cache.BookmarkInfo:
		return what + " rv=" + o.ResourceVersion
	default:
		return what
	}
}

// consumerStore is the consumer's. It lists its keys in order, so that runs repeat.
type consumerStore struct{ cache.Store }

func newConsumerStore() *consumerStore {
	return &consumerStore{cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)}
}

func (s *consumerStore) ListKeys() []string { return slices.Sorted(slices.Values(s.Store.ListKeys())) }

// apply does what an informer does with a delta. The queue has refused objects without a key.
func (s *consumerStore) apply(d cache.Delta) {
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		_ = s.Replace(o.Objects, o.ResourceVersion)
	case cache.DeletedFinalStateUnknown, metav1.Object:
		if d.Type == cache.Deleted {
			_ = s.Delete(o)
		} else {
			_ = s.Update(o)
		}
	}
}

// state returns key@version of all objects, in order of keys.
func (s *consumerStore) state() []string { return state(slices.Values(s.List())) }

func state(objs iter.Seq[any]) []string {
	var out []string
	for obj := range objs {
		out = append(out, keyOf(obj)+"@"+obj.(metav1.Object).GetResourceVersion())
	}
	slices.Sort(out)
	return out
}
