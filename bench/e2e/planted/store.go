package main

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// store is the cache of a resource. It queues the key of each changed object, which is that of its Widget.
// Only its Reflector writes to it.
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
	key, err := cache.MetaNamespaceKeyFunc(o)
	s.queue.Add(key)
	return err
}

// Add implements [cache.ReflectorStore].
func (s *store) Add(o any) error { return s.changed(o, s.Store.Add(o)) }

// Update implements [cache.ReflectorStore].
func (s *store) Update(o any) error { return s.changed(o, s.Store.Update(o)) }

// Delete implements [cache.ReflectorStore].
func (s *store) Delete(o any) error { return s.changed(o, s.Store.Delete(o)) }

// Replace receives all objects: first, and at each relist. What is gone belongs to the changes, too.
func (s *store) Replace(all []any, version string) error {
	before := s.ListKeys()
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
	for _, key := range append(before, s.ListKeys()...) {
		s.queue.Add(key)
	}
	s.fill.Do(func() { close(s.filled) })
	return nil
}
