package apiserver

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// collection holds the objects of one resource.
type collection struct {
	// stored is the resource in the stored version.
	stored *resources.Resource
	// kind encodes objects in the stored version.
	kind *wire.Kind
	log  *store.Log
}

// collection returns the collection of a resource and creates it at its first use.
func (s *Server) collection(res *resources.Resource) *collection {
	s.colMu.RLock()
	c := s.collections[res.Stored]
	s.colMu.RUnlock()
	if c != nil {
		return c
	}
	s.colMu.Lock()
	defer s.colMu.Unlock()
	if c := s.collections[res.Stored]; c != nil {
		return c
	}
	stored, ok := s.registry.Lookup(res.Stored.Group, res.Stored.Version, res.Stored.Resource)
	if !ok || res.Stored == res.GVR {
		stored = res
	}
	kind := kindOf(stored)
	c = &collection{stored: stored, kind: kind, log: store.New(kind, s.budget, store.Options{Retain: s.opts.Retain})}
	if res.GVR == namespaceResource {
		s.seedNamespaces(c)
	}
	s.collections[res.Stored] = c
	return c
}

func kindOf(res *resources.Resource) *wire.Kind {
	columns := wire.ColumnsOf(res.GVK)
	if res.Custom != nil {
		// On an invalid path the columns are name and age.
		columns, _ = wire.PathColumns(res.Custom.Version.AdditionalPrinterColumns)
	}
	kind := wire.NewKind(res.GVK, res.ListKind, !res.Typed, columns)
	if res.Custom != nil {
		kind.Custom()
	}
	return kind
}

// edit replaces the newest object of a key by the result of f, until no other write
// interferes. It stops if there is no object, or f returns nil.
func (c *collection) edit(key string, f func(current runtime.Object) (watch.EventType, runtime.Object)) error {
	for {
		current, was := c.log.Get(key)
		if current == nil {
			return nil
		}
		t, o := f(current)
		if o == nil {
			return nil
		}
		if ok, err := c.log.Put(t, key, o, was); ok || err != nil {
			return err
		}
	}
}

// show returns an object in the requested version. Only the apiVersion differs.
func (req *request) show(o runtime.Object) runtime.Object {
	if !req.converts {
		return o
	}
	return withVersion(o, req.resource.GVK)
}

// keep returns an object in the stored version.
func (req *request) keep(o runtime.Object) runtime.Object {
	if req.converts {
		return withVersion(o, req.stored.GVK)
	}
	return withoutKind(o)
}

// withoutKind clears the kind of a typed object.
func withoutKind(o runtime.Object) runtime.Object {
	if _, ok := o.(runtime.Unstructured); !ok {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return o
}

// withVersion returns a custom resource in another version. The values stay shared.
func withVersion(o runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(kind)
	return out
}

// object returns the encoded object of an item.
func (req *request) object(e *storm.Event) ([]byte, error) {
	if req.converts {
		return req.kind.AppendObject(nil, req.form, req.show(e.Object))
	}
	return req.log.Object(req.form, e)
}
