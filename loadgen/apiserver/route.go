package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// target is the meaning of a path.
type target struct {
	resource *resources.Resource
	// namespace is empty for all namespaces and for cluster-scoped resources.
	namespace string
	// name is empty for the collection.
	name string
	// subresource is empty for the object itself.
	subresource string
}

// key is the key of the object in its collection.
func (t *target) key() string { return storm.ObjectKey(t.namespace, t.name) }

// target parses a path: /api/VERSION/ or /apis/GROUP/VERSION/, an optional
// namespaces/NAMESPACE/, and RESOURCE[/NAME[/SUBRESOURCE]]. It returns false for unknown
// resources.
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
	if parts[0] == "namespaces" && len(parts) > 2 && (len(parts) != 3 || !isOwnSubresource(group, parts[2])) {
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
		if _, has := res.Subresource(parts[2]); !has {
			return target{}, false
		}
		t.subresource = parts[2]
	}
	return t, true
}

func isOwnSubresource(group, name string) bool {
	return group == "" && (name == resources.Status || name == resources.Finalize)
}

// request is a request in progress.
type request struct {
	target
	view
	w    http.ResponseWriter
	http *http.Request
	form wire.Form
}

// serve answers a request for a resource.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, t target) error {
	verb := verbOf(r.Method, &t)
	if verb == "" {
		return notAllowed()
	}
	query := r.URL.Query()
	watching := verb == resources.List && isTrue(query["watch"])
	form, err := wire.Negotiate(r.Header.Values("Accept"), wire.Offer{Untyped: !t.resource.Typed, Stream: watching})
	if err != nil {
		return notAcceptable()
	}
	shape, ok := form.Shape().Carry(query.Get("includeObject"))
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: includeObject: Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", query.Get("includeObject")))
	}
	req := &request{target: t, w: w, http: r, form: wire.FormOf(form.Media(), shape)}
	if !t.resource.Storable() {
		if verb != resources.Create {
			return notAllowed()
		}
		return s.review(req)
	}
	req.view = s.view(t.resource)
	if t.subresource != "" {
		return s.serveSubresource(req, verb)
	}
	switch verb {
	case resources.Get:
		return s.get(req)
	case resources.List:
		q, err := parseQuery(r.URL.RawQuery, &t)
		switch {
		case err != nil:
			return err
		case q.opts.Watch:
			return s.watch(req, q)
		default:
			return s.list(req, q)
		}
	case resources.Create:
		return s.create(req)
	case resources.Update:
		return s.update(req)
	case resources.Patch:
		return s.patch(req)
	case resources.Delete:
		return s.delete(req)
	default:
		return s.deleteCollection(req)
	}
}

// verbOf returns the verb of a method on a target, or "".
func verbOf(method string, t *target) string {
	verbs := map[string]string{http.MethodGet: resources.List, http.MethodPost: resources.Create, http.MethodDelete: resources.DeleteCollection}
	can := t.resource.Can
	switch {
	case t.subresource != "":
		sub, _ := t.resource.Subresource(t.subresource)
		can = func(verb string) bool { return slices.Contains(sub.Verbs, verb) }
		fallthrough
	case t.name != "":
		verbs = map[string]string{http.MethodGet: resources.Get, http.MethodPut: resources.Update, http.MethodPatch: resources.Patch, http.MethodDelete: resources.Delete}
		if t.subresource != "" {
			verbs[http.MethodPost] = resources.Create
		}
	}
	if v := verbs[method]; v != "" && can(v) {
		return v
	}
	return ""
}
