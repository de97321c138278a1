package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// target is the meaning of a path.
type target struct {
	resource    *resources.Resource // in the requested version
	namespace   string              // empty for all namespaces and for cluster-scoped resources
	name        string              // empty for the collection
	subresource string              // empty for the object itself
}

func (t *target) key() string { return storm.ObjectKey(t.namespace, t.name) }

// target parses a path: /api/VERSION/ or /apis/GROUP/VERSION/, an optional namespaces/NAMESPACE/,
// and RESOURCE[/NAME[/SUBRESOURCE]]. It returns false for unknown resources.
func (s *Server) target(path string) (target, bool) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimSuffix(path, "/"), "/"), "/")
	if slices.Contains(parts, "") {
		return target{}, false
	}
	var group, version string
	switch {
	case parts[0] == "api" && len(parts) > 2:
		version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		group, version, parts = parts[1], parts[2], parts[3:]
	default:
		return target{}, false
	}
	var t target
	// namespaces/NAME/status belongs to the namespace itself.
	own := group == "" && len(parts) == 3 && (parts[2] == resources.Status || parts[2] == resources.Finalize)
	if parts[0] == "namespaces" && len(parts) > 2 && !own {
		t.namespace, parts = parts[1], parts[2:]
	}
	res, ok := s.registry.Lookup(group, version, parts[0])
	if !ok || len(parts) > 3 || (!res.Namespaced && t.namespace != "") {
		return target{}, false
	}
	t.resource = res
	if len(parts) > 1 {
		t.name = parts[1]
		if res.Namespaced && t.namespace == "" {
			return target{}, false
		}
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
		_, ok = res.Subresource(t.subresource)
	}
	return t, ok
}

// request is a request in progress.
type request struct {
	target
	*collection            // nil for resources that are not stored
	kind        *wire.Kind // in the requested version
	converts    bool       // the log does not encode objects as requested

	w    http.ResponseWriter
	http *http.Request
	form wire.Form
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, t target) error {
	verb := verbOf(r.Method, &t)
	if verb == "" {
		return notAllowed()
	}
	query := r.URL.Query()
	watching := verb == resources.List && isTrue(query["watch"])
	if !watching {
		select {
		case s.seats <- struct{}{}:
			defer func() { <-s.seats }()
		case <-r.Context().Done():
			return nil // The client is gone.
		}
	}
	form, ok := wire.Negotiate(r.Header.Values("Accept"), wire.Offer{Untyped: !t.resource.Typed(), Stream: watching})
	if !ok {
		return notAcceptable()
	}
	shape, ok := form.Shape().Carry(query.Get("includeObject"))
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", query.Get("includeObject")))
	}
	req := &request{target: t, w: w, http: r, form: wire.FormOf(form.Media(), shape)}
	if !t.resource.Can(resources.List) {
		return s.post(req)
	}
	req.collection = s.collection(t.resource)
	req.kind = req.collection.kind
	// The log has the encodings of its own version, and tables with the columns of its own definition.
	if t.resource.GVR != req.stored.GVR || t.resource != req.stored && req.form.Shape().IsTable() {
		req.converts, req.kind = true, kindOf(t.resource)
	}
	switch {
	case verb == resources.Get && t.subresource == resources.Scale:
		return s.scale(req)
	case verb == resources.Get:
		return s.get(req)
	case verb == resources.List:
		q, err := s.parseQuery(r.URL.RawQuery, &t)
		switch {
		case err != nil:
			return err
		case q.opts.Watch && !t.resource.Can(resources.Watch):
			return apierrors.NewMethodNotSupported(t.resource.GVR.GroupResource(), resources.Watch)
		case q.opts.Watch:
			return s.watch(req, q)
		}
		return s.list(req, q)
	case verb == resources.Create && t.subresource != "":
		return s.post(req)
	case verb == resources.Create:
		return s.create(req)
	case verb == resources.Update, verb == resources.Patch:
		return s.update(req, verb)
	case verb == resources.Delete:
		return s.delete(req)
	}
	return s.deleteCollection(req)
}

// verbs are the verbs of a method on a collection and on an object.
var verbs = map[string]struct{ collection, object string }{
	http.MethodGet:    {resources.List, resources.Get},
	http.MethodPost:   {resources.Create, ""},
	http.MethodPut:    {"", resources.Update},
	http.MethodPatch:  {"", resources.Patch},
	http.MethodDelete: {resources.DeleteCollection, resources.Delete},
}

// verbOf returns the verb of a method on a target, or "".
func verbOf(method string, t *target) string {
	verb, allowed := verbs[method].collection, t.resource.Verbs
	if t.name != "" {
		verb = verbs[method].object
	}
	if t.subresource != "" {
		sub, _ := t.resource.Subresource(t.subresource)
		allowed = sub.Verbs
		if method == http.MethodPost {
			verb = resources.Create
		}
	}
	if !slices.Contains(allowed, verb) {
		return ""
	}
	return verb
}

// collection holds the objects of one resource.
type collection struct {
	stored *resources.Resource // in the version of the log, that of its first use
	kind   *wire.Kind          // in the same version
	log    *store.Log
}

// keyOf returns the key of a resource's collection. All versions of a custom resource have one, also after a
// definition has changed the stored version.
func keyOf(res *resources.Resource) schema.GroupVersionResource {
	key := res.Stored
	if res.Custom != nil {
		key.Version = ""
	}
	return key
}

// collection returns the collection of a resource, created at its first use.
func (s *Server) collection(res *resources.Resource) *collection {
	key := keyOf(res)
	s.colMu.RLock()
	c := s.collections[key]
	s.colMu.RUnlock()
	if c != nil {
		return c
	}
	s.colMu.Lock()
	defer s.colMu.Unlock()
	if c := s.collections[key]; c != nil {
		return c
	}
	stored, ok := s.registry.Lookup(res.Stored.Group, res.Stored.Version, res.Stored.Resource)
	if !ok || res.Stored == res.GVR {
		stored = res
	}
	kind := kindOf(stored)
	c = &collection{stored: stored, kind: kind, log: store.New(kind, s.budget, s.opts.Retain)}
	s.watching.follow(c.log)
	s.observe(c)
	if res.GVR == namespaceResource {
		s.seedNamespaces(c)
	}
	s.collections[key] = c
	return c
}

func kindOf(res *resources.Resource) *wire.Kind {
	columns := wire.ColumnsOf(res.GVK)
	if res.Custom != nil {
		// On an invalid path the columns are name and age.
		columns, _ = wire.PathColumns(res.Custom.Version.AdditionalPrinterColumns)
	}
	return wire.NewKind(res.GVK, res.ListKind, !res.Typed(), columns)
}

// edit replaces the newest object of a key by the result of f, until no other write
// interferes. It stops if there is no object, or f returns nil.
func (c *collection) edit(by store.Origin, key string, f func(current resources.Object) (watch.EventType, resources.Object)) {
	for {
		current, was := c.log.Get(key)
		if current == nil {
			return
		}
		if t, o := f(current); o == nil || c.log.Put(by, t, key, o, was) {
			return
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
func (req *request) keep(o resources.Object) resources.Object {
	if req.converts {
		return withVersion(o, req.stored.GVK)
	}
	return withoutKind(o)
}

// withoutKind clears the kind of a typed object.
func withoutKind(o resources.Object) resources.Object {
	if _, ok := o.(runtime.Unstructured); !ok {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return o
}

// withVersion returns a custom resource in another version. The values stay shared.
func withVersion[T runtime.Object](o T, kind schema.GroupVersionKind) T {
	u, ok := any(o).(*unstructured.Unstructured)
	if !ok {
		return o
	}
	out := &unstructured.Unstructured{Object: maps.Clone(u.Object)}
	out.SetGroupVersionKind(kind)
	return any(out).(T)
}

// object returns the encoded object of an item.
func (req *request) object(e *storm.Event) ([]byte, error) {
	if req.converts {
		return req.kind.AppendObject(nil, req.form, req.show(e.Object))
	}
	return req.log.Object(req.form, e)
}
