package apiserver

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
)

// collection holds the objects of one resource.
type collection struct {
	// resource is the resource in the stored version.
	resource *resources.Resource
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
	stored := res
	if res.Stored != res.GVR {
		if r, ok := s.registry.Lookup(res.Stored.Group, res.Stored.Version, res.Stored.Resource); ok {
			stored = r
		}
	}
	kind := kindOf(stored)
	c = &collection{
		resource: stored,
		kind:     kind,
		log:      store.New(kind, s.budget, store.Options{Retain: s.opts.Retain}),
	}
	if res.GVR == namespaceResource {
		s.seedNamespaces(c)
	}
	s.collections[res.Stored] = c
	return c
}

// all returns the existing collections, in no order.
func (s *Server) all() []*collection {
	s.colMu.RLock()
	defer s.colMu.RUnlock()
	all := make([]*collection, 0, len(s.collections))
	for _, c := range s.collections {
		all = append(all, c)
	}
	return all
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

// remove deletes an object.
func (c *collection) remove(key string) error {
	return c.edit(key, func(current runtime.Object) (watch.EventType, runtime.Object) {
		return watch.Deleted, current.DeepCopyObject()
	})
}

// view is a collection in the version of a request.
type view struct {
	*collection
	// asked is the resource in the requested version.
	asked *resources.Resource
	// kind encodes objects in the requested version.
	kind *wire.Kind
	// converts: the requested version is not the stored one.
	converts bool
}

func (s *Server) view(res *resources.Resource) view {
	c := s.collection(res)
	v := view{collection: c, asked: res, kind: c.kind, converts: res.GVR != c.resource.GVR}
	if v.converts {
		v.kind = kindOf(res)
	}
	return v
}

// show returns an object in the requested version. Only the apiVersion differs.
func (v *view) show(o runtime.Object) runtime.Object {
	if !v.converts {
		return o
	}
	return withVersion(o, v.asked.GVK)
}

// keep returns an object in the stored version; typed objects lose their kind.
func (v *view) keep(o runtime.Object) runtime.Object {
	if v.converts {
		return withVersion(o, v.resource.GVK)
	}
	if _, ok := o.(runtime.Unstructured); !ok {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return o
}

func withVersion(o runtime.Object, kind schema.GroupVersionKind) runtime.Object {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o
	}
	// The values stay shared.
	content := make(map[string]any, len(u.Object))
	for k, v := range u.Object {
		content[k] = v
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(kind)
	return out
}

// object returns the encoded object of an item.
func (v *view) object(form wire.Form, i store.Item) ([]byte, error) {
	if v.converts {
		return v.kind.AppendObject(nil, form, v.show(i.Event.Object))
	}
	return v.log.Object(form, i)
}
