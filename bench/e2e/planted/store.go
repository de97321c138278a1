package main

import (
	"cmp"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// store is the cache of a resource. It queues the key of what each changed object is made for, or its own. Only its Reflector writes to it.
type store struct {
	cache.Store
	queue  workqueue.TypedRateLimitingInterface[string]
	forget bool // a relist queues nothing: the bug
	filled chan struct{}
	fill   sync.Once
}

func newStore(queue workqueue.TypedRateLimitingInterface[string], forget bool) *store {
	return &store{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), queue: queue, forget: forget, filled: make(chan struct{})}
}

func (s *store) get(key string) *unstructured.Unstructured {
	o, ok, err := s.GetByKey(key)
	if !ok || err != nil {
		return nil
	}
	return o.(*unstructured.Unstructured)
}

func (s *store) changed(o any, err error) error {
	if err != nil {
		return err
	}
	s.queue.Add(keyOf(o))
	return nil
}

// keyOf is the key of what an object is made for, or its own one.
func keyOf(o any) string {
	u := o.(*unstructured.Unstructured)
	return u.GetNamespace() + "/" + cmp.Or(u.GetLabels()[widgetLabel], u.GetName())
}

// of returns the objects that are made for a key.
func (s *store) of(key string) (out []*unstructured.Unstructured) {
	for _, o := range s.List() {
		if o := o.(*unstructured.Unstructured); o.GetLabels()[widgetLabel] != "" && keyOf(o) == key {
			out = append(out, o)
		}
	}
	return out
}

// Add implements [cache.ReflectorStore].
func (s *store) Add(o any) error { return s.changed(o, s.Store.Add(o)) }

// Update implements [cache.ReflectorStore].
func (s *store) Update(o any) error { return s.changed(o, s.Store.Update(o)) }

// Delete implements [cache.ReflectorStore].
func (s *store) Delete(o any) error { return s.changed(o, s.Store.Delete(o)) }

// Replace receives all objects: first, and at each relist. What is gone belongs to the changes, too.
func (s *store) Replace(all []any, version string) error {
	before := s.List()
	if err := s.Store.Replace(all, version); err != nil {
		return err
	}
	select {
	case <-s.filled:
		if s.forget {
			return nil
		}
	default:
	}
	for _, o := range append(before, all...) {
		s.queue.Add(keyOf(o))
	}
	s.fill.Do(func() { close(s.filled) })
	return nil
}
