package apiserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/patch"
)

// deleteOptions reads the options of a DELETE from the body or else the query.
func (req *request) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	body, err := req.body()
	switch {
	case err != nil:
	case len(body) == 0:
		err = decodeQuery(req.http.URL.RawQuery, opts)
	default:
		err = req.decode(body, metav1.Unversioned.WithKind("DeleteOptions"), opts)
	}
	if err != nil {
		return nil, err
	}
	return opts, invalidOptions("DeleteOptions", metav1validation.ValidateDeleteOptions(opts))
}

// immortal are the namespaces that a real server's admission protects.
var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

// returnsDeleted are the resources whose strategy has ReturnDeletedObject in
// Kubernetes v1.36.
var returnsDeleted = []string{
	"pods", "services", "serviceaccounts", "podtemplates", "persistentvolumes", "persistentvolumeclaims", "resourcequotas",
}

// delete serves a DELETE of one object.
func (s *Server) delete(req *request) error {
	opts, err := req.deleteOptions()
	if err != nil {
		return err
	}
	gvr := req.resource.GVR
	if gvr == namespaceResource && slices.Contains(immortal, req.name) {
		return apierrors.NewForbidden(gvr.GroupResource(), req.name, errors.New("this namespace may not be deleted"))
	}
	r, err := s.remove(req, opts)
	if err != nil {
		return err
	}
	warn(req.w, r.Warnings)
	o := r.Object
	if r.Gone && gvr == podResource {
		// A real server marks a pod before it deletes it, and answers with the mark.
		o = o.DeepCopyObject()
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	if r.Gone && gvr == podResource {
		now := metav1.NewTime(s.editor.Now()).Rfc3339Copy()
		m.SetDeletionTimestamp(&now)
		m.SetDeletionGracePeriodSeconds(new(int64))
		m.SetGeneration(m.GetGeneration() + 1)
	}
	// A real server answers with the object if it remains, and for a few kinds.
	if !r.Gone || slices.Contains(returnsDeleted, gvr.Resource) {
		return req.answer(http.StatusOK, req.show(o))
	}
	return req.succeed(http.StatusOK, &metav1.StatusDetails{Name: req.name, Group: gvr.Group, Kind: gvr.Resource, UID: m.GetUID()})
}

// remove deletes the object of the request or marks it as being deleted.
func (s *Server) remove(req *request, opts *metav1.DeleteOptions) (r patch.Result, err error) {
	ends := false
	err = s.write(req, opts.DryRun, func(current runtime.Object, _ uint64) (watch.EventType, *patch.Result, error) {
		if current == nil {
			return "", nil, apierrors.NewNotFound(req.resource.GVR.GroupResource(), req.name)
		}
		if r, err = s.editor.Delete(req.resource, current, opts); err != nil {
			return "", nil, err
		}
		if ends = req.resource.GVR == namespaceResource && r.Gone && len(opts.DryRun) == 0; ends {
			// Its objects go first.
			r = s.terminating(r)
		}
		switch {
		case r.Gone:
			return watch.Deleted, &r, nil
		case r.Unchanged:
			return "", nil, nil
		}
		return watch.Modified, &r, nil
	})
	if err == nil && ends && !r.Unchanged {
		s.finish(req.name)
	}
	return r, err
}

// deleteCollection serves a DELETE of all selected objects and answers with them.
func (s *Server) deleteCollection(req *request) error {
	if req.resource.Namespaced && req.namespace == "" {
		return notAllowed()
	}
	// It selects like a list.
	q, err := parseQuery(req.http.URL.RawQuery, &req.target)
	if err != nil {
		return err
	}
	opts, err := req.deleteOptions()
	if err != nil {
		return err
	}
	p, err := pageOf(req.log, q)
	if err != nil {
		return err
	}
	table := req.form.Shape().IsTable()
	var deleted [][]byte
	for _, it := range p.items {
		one := *req
		if one.name = it.Key; req.resource.Namespaced {
			one.namespace, one.name, _ = strings.Cut(it.Key, "/")
		}
		_, err := s.remove(&one, opts)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		case table:
			continue
		}
		// The answer shows the object before the deletion.
		b, err := req.object(it)
		if err != nil {
			return err
		}
		deleted = append(deleted, b)
	}
	if table {
		return req.succeed(http.StatusOK, nil)
	}
	req.w.Header().Set("Content-Type", req.form.ContentType())
	_ = req.kind.WriteList(req.w, req.form, p.meta, deleted) // fails if the client is gone
	return nil
}
