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
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		if err := req.parameters(opts); err != nil {
			return nil, err
		}
	} else {
		if err := req.decode(body, metav1.Unversioned.WithKind("DeleteOptions"), opts); err != nil {
			return nil, err
		}
	}
	return opts, invalidOptions("DeleteOptions", metav1validation.ValidateDeleteOptions(opts))
}

// delete serves a DELETE of one object.
func (s *Server) delete(req *request) error {
	opts, err := req.deleteOptions()
	if err != nil {
		return err
	}
	if req.asked.GVR == namespaceResource && slices.Contains(immortal, req.name) {
		return apierrors.NewForbidden(namespaceResource.GroupResource(), req.name, errImmortal)
	}
	r, err := s.remove(req, opts)
	if err != nil {
		return err
	}
	warn(req.w, r.Warnings)
	if r.Gone && req.asked.GVR == podResource {
		if r.Object, err = s.ended(r.Object); err != nil {
			return err
		}
	}
	// A real server answers with the object if it remains, and for a few kinds.
	if !r.Gone || returnsDeleted[req.asked.GVR.Resource] {
		return writeObject(req.w, http.StatusOK, &req.view, req.form, req.show(r.Object))
	}
	m, err := meta.Accessor(r.Object)
	if err != nil {
		return err
	}
	return writeAny(req.w, http.StatusOK, req.whole(), &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: req.name, Group: req.asked.GVR.Group, Kind: req.asked.GVR.Resource, UID: m.GetUID(),
		},
	})
}

// immortal are the namespaces that a real server's admission protects.
var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

var errImmortal = errors.New("this namespace may not be deleted")

// ended returns a deleted pod as a real server answers with it: marked for deletion.
func (s *Server) ended(pod runtime.Object) (runtime.Object, error) {
	pod = pod.DeepCopyObject()
	m, err := meta.Accessor(pod)
	if err != nil {
		return nil, err
	}
	now := metav1.NewTime(s.now()).Rfc3339Copy()
	m.SetDeletionTimestamp(&now)
	m.SetDeletionGracePeriodSeconds(new(int64))
	m.SetGeneration(m.GetGeneration() + 1)
	return pod, nil
}

// returnsDeleted are the resources whose strategy has ReturnDeletedObject in
// Kubernetes v1.36.
var returnsDeleted = map[string]bool{
	"pods": true, "services": true, "serviceaccounts": true, "podtemplates": true,
	"persistentvolumes": true, "persistentvolumeclaims": true, "resourcequotas": true,
}

// remove deletes the object of the request or marks it as being deleted.
func (s *Server) remove(req *request, opts *metav1.DeleteOptions) (patch.Result, error) {
	key := req.key()
	for {
		current, was := req.log.Get(key)
		if current == nil {
			return patch.Result{}, apierrors.NewNotFound(req.asked.GVR.GroupResource(), req.name)
		}
		r, err := s.editor.Delete(req.asked, req.show(current), opts)
		if err != nil {
			return r, err
		}
		whole := req.asked.GVR == namespaceResource && r.Gone && len(opts.DryRun) == 0
		if whole {
			// Its objects go first.
			r = s.terminating(r)
		}
		if r.Unchanged && !r.Gone {
			return r, nil
		}
		t := watch.Modified
		if r.Gone {
			t = watch.Deleted
		}
		ok, err := s.store(req, t, key, &r, was, opts.DryRun)
		if ok && whole {
			s.finish(req.name)
		}
		if err != nil || ok {
			return r, err
		}
		if err := req.http.Context().Err(); err != nil {
			return r, err
		}
	}
}

// deleteCollection serves a DELETE of all selected objects and answers with them.
func (s *Server) deleteCollection(req *request) error {
	if req.asked.Namespaced && req.namespace == "" {
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
	var deleted [][]byte
	for _, it := range p.items {
		one := *req
		if one.name = it.Key; req.asked.Namespaced {
			one.namespace, one.name, _ = strings.Cut(it.Key, "/")
		}
		_, err := s.remove(&one, opts)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return err
		}
		if req.form.Shape().IsTable() {
			continue
		}
		// The answer shows the object before the deletion.
		b, err := req.object(req.form, it)
		if err != nil {
			return err
		}
		deleted = append(deleted, b)
	}
	if req.form.Shape().IsTable() {
		return writeAny(req.w, http.StatusOK, req.whole(), &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		})
	}
	req.w.Header().Set("Content-Type", req.form.ContentType())
	_ = req.kind.WriteList(req.w, req.form, p.meta, deleted) // fails if the client is gone
	return nil
}
