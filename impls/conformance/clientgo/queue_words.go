package clientgo

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// consumerStore is the consumer's: a map, listed in order of its keys so that runs repeat.
type consumerStore struct {
	mu   sync.Mutex
	objs map[string]any
}

func newConsumerStore() *consumerStore { return &consumerStore{objs: map[string]any{}} }

func (s *consumerStore) ListKeys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objs))
}

func (s *consumerStore) GetByKey(key string) (any, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.objs[key]
	return obj, ok, nil
}

// apply does what an informer does with a delta.
func (s *consumerStore) apply(d cache.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		clear(s.objs)
		for _, obj := range o.Objects {
			s.objs[keyOf(obj)] = obj
		}
	case cache.DeletedFinalStateUnknown:
		delete(s.objs, o.Key)
	case metav1.Object:
		if d.Type == cache.Deleted {
			delete(s.objs, keyOf(o))
		} else {
			s.objs[keyOf(o)] = o
		}
	}
}

// state returns key@version of all objects, in order of keys.
func (s *consumerStore) state() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return state(s.objs)
}

func state(objs map[string]any) []string {
	out := make([]string, 0, len(objs))
	for k, obj := range objs {
		out = append(out, k+"@"+obj.(metav1.Object).GetResourceVersion())
	}
	slices.Sort(out)
	return out
}
