package apiserver

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
)

// collection is the objects of one resource.
type collection struct {
	resource *resources.Resource
	kind     *wire.Kind
	log      *store.Log
}

// collection returns where the objects of a resource are. It is made when it is
// first asked for.
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

// all returns the collections that were asked for, in no order.
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

// view is a collection as a request's version of the resource shows it.
type view struct {
	*collection
	asked    *resources.Resource
	kind     *wire.Kind
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

// show returns an object in the version that was asked for. Versions of custom
// resources differ in nothing else.
func (v *view) show(o runtime.Object) runtime.Object {
	if !v.converts {
		return o
	}
	return withVersion(o, v.asked.GVK)
}

// keep returns an object in the version that is stored, without what the log
// knows anyway.
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
	// What is below stays shared.
	content := make(map[string]any, len(u.Object))
	for k, v := range u.Object {
		content[k] = v
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(kind)
	return out
}

// object returns the encoded object of an item of a list.
func (v *view) object(form wire.Form, i store.Item) ([]byte, error) {
	if v.converts {
		return v.kind.AppendObject(nil, form, v.show(i.Event.Object))
	}
	return v.log.Object(form, i)
}
