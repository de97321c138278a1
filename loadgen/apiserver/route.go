package apiserver

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/patch"
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

func (t *target) hasSubresource() bool {
	_, ok := t.resource.Subresource(t.subresource)
	return ok || t.subresource == ""
}

// target parses a path. It returns false for unknown resources.
func (s *Server) target(path string) (target, bool) {
	p, ok := wire.ParsePath(path)
	if !ok || strings.Contains(path, "//") || strings.Contains(p.Subresource, "/") {
		return target{}, false
	}
	res, ok := s.registry.Lookup(p.Resource.Group, p.Resource.Version, p.Resource.Resource)
	if !ok || res.Namespaced && p.Namespace == "" && p.Name != "" || !res.Namespaced && p.Namespace != "" {
		return target{}, false
	}
	t := target{resource: res, namespace: p.Namespace, name: p.Name, subresource: p.Subresource}
	return t, res.Custom != nil || t.hasSubresource()
}

// request is a request in progress.
type request struct {
	target
	*collection            // nil for resources that are not stored
	kind        *wire.Kind // in the requested version
	converts    bool       // the log does not encode objects as requested
	outdated    bool       // the object of a write is stale
	server      *Server

	w    http.ResponseWriter
	http *http.Request
	form wire.Form
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, t target) error {
	if !t.hasSubresource() { // of a custom resource
		return apierrors.NewNotFound(t.resource.GVR.GroupResource(), t.name)
	}
	verb := verbOf(r.Method, &t)
	if verb == "" {
		return refused(http.StatusMethodNotAllowed)
	}
	query := r.URL.Query()
	watching := verb == resources.List && wire.IsTrue(query["watch"])
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
	if text := t.resource.Deprecation(); text != "" {
		warn(w, []string{text})
	}
	req := &request{target: t, server: s, w: w, http: r, form: wire.FormOf(form.Media(), shape)}
	if !t.resource.Can(resources.List) {
		return s.post(req)
	}
	req.collection = s.collection(t.resource)
	req.kind = req.collection.kind
	if t.resource != req.stored { // The log has the encodings of its own version and definition.
		req.converts, req.kind = true, kindOf(t.resource)
	}
	switch {
	case verb == resources.Get && t.subresource == resources.Scale:
		return s.scale(req)
	case verb == resources.Get:
		return s.get(req)
	case verb == resources.List:
		q, err := req.query()
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

// verbOf returns the verb of a method on a target, or "".
func verbOf(method string, t *target) string {
	verb, allowed := wire.Verbs[method].Collection, t.resource.Verbs
	if t.name != "" {
		verb = wire.Verbs[method].Object
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
	stored  *resources.Resource // in the stored version
	kind    *wire.Kind          // in the same version
	since   uint64              // up to this version, objects may be stored as an earlier definition had them
	encoder store.Encoder       // kind, or the collection if since is not 0
	log     *store.Log
	storm   *storm.Storm // that the log plays; nil without one
}

func newCollection(stored *resources.Resource, log *store.Log, since uint64) *collection {
	c := &collection{stored: stored, kind: kindOf(stored), since: since, log: log}
	if c.encoder = c.kind; since > 0 {
		c.encoder = c
	}
	return c
}

// AppendObject implements [store.Encoder].
func (c *collection) AppendObject(dst []byte, f wire.Form, o runtime.Object) ([]byte, error) {
	o, err := c.read(o)
	if err != nil {
		return dst, err
	}
	return c.kind.AppendObject(dst, f, o)
}

// read returns an object in the stored version, as its definition has it now.
func (c *collection) read(o runtime.Object) (runtime.Object, error) {
	if c.since == 0 {
		return o, nil
	}
	if u, ok := o.(*unstructured.Unstructured); ok && u.GetAPIVersion() == c.stored.GroupVersion().String() {
		if version, err := store.ParseVersion(u.GetResourceVersion()); err == nil && version > c.since {
			return o, nil
		}
	}
	return patch.Convert(c.stored, o)
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
	c = newCollection(s.storedOf(res), store.New(s.budget, &s.revision, s.opts.Retain), 0)
	s.watching.follow(c.log)
	s.observe(c)
	if res.GVR == namespaceResource {
		s.seedNamespaces(c)
	}
	s.seed(c)
	s.collections[key] = c
	return c
}

// storedOf returns a resource in its stored version, which may not be served.
func (s *Server) storedOf(res *resources.Resource) *resources.Resource {
	if res.Custom != nil {
		return res.Custom.Storage
	}
	if stored, ok := s.registry.Lookup(res.Stored.Group, res.Stored.Version, res.Stored.Resource); ok {
		return stored
	}
	return res
}

// redefine shows the objects of a collection as a changed definition has them. Open watches end, as those of
// kube-apiserver do.
func (s *Server) redefine(stored *resources.Resource) {
	key := keyOf(stored)
	s.colMu.Lock()
	defer s.colMu.Unlock()
	if c := s.collections[key]; c != nil {
		since := s.revision.Now()
		if c.storm != nil {
			since = math.MaxUint64 // Events to come are as they were recorded.
		}
		s.collections[key] = newCollection(stored, c.log, since)
		s.collections[key].storm = c.storm
		s.watching.end(c.log)
	}
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
		if shown, err := c.read(current); err == nil {
			current = shown.(resources.Object)
		}
		if t, o := f(current); o == nil || c.log.Put(by, t, key, o, was) {
			return
		}
	}
}

// show returns an object in the requested version.
func (req *request) show(o runtime.Object) (runtime.Object, error) {
	read := req.read
	if req.converts {
		read = func(o runtime.Object) (runtime.Object, error) { return patch.Convert(req.resource, o) }
	}
	shown, err := read(o)
	if m, ok := o.(resources.Object); ok && err != nil {
		gr := req.resource.GVR.GroupResource()
		err = apierrors.NewInternalError(fmt.Errorf("StorageError: corrupt object, Code: 7, Key: /%s/%s/%s, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision=%s: %w",
			gr.Group, gr.Resource, storm.ObjectKey(m.GetNamespace(), m.GetName()), m.GetResourceVersion(), err))
	}
	return shown, err
}

// keep returns an object in the stored version.
func (req *request) keep(o resources.Object) (resources.Object, error) {
	if req.converts {
		kept, err := patch.Convert(req.stored, o)
		if err != nil {
			return nil, err
		}
		o = kept.(resources.Object)
		patch.Defaults(req.stored, o)
	}
	return withoutKind(o), nil
}

// stale reports whether an object is not stored as it would be now: a write that changes nothing stores it, too.
func (req *request) stale(o runtime.Object) bool {
	now, err := req.read(o)
	return err == nil && now != o && !apiequality.Semantic.DeepEqual(now, o)
}

// withoutKind clears the kind of a typed object.
func withoutKind(o resources.Object) resources.Object {
	if _, ok := o.(runtime.Unstructured); !ok {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return o
}

// object returns the encoded object of an item.
func (req *request) object(e *storm.Event) ([]byte, error) {
	if req.converts {
		o, err := req.show(e.Object)
		if err != nil {
			return nil, err
		}
		return req.kind.AppendObject(nil, req.form, o)
	}
	return req.log.Object(req.encoder, req.form, e)
}
