package apiserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// edit reads the options of a POST, PUT or PATCH, and its body. PatchOptions have the
// fields of the others.
func (req *request) edit(kind string) (edit patch.Request, dryRun []string, body []byte, err error) {
	var opts metav1.PatchOptions
	if err := decodeQuery(req.http.URL.RawQuery, &opts); err != nil {
		return edit, nil, nil, err
	}
	edit = patch.Request{
		Namespace: req.namespace, Name: req.name, Subresource: req.subresource,
		ContentType:  req.http.Header.Get("Content-Type"),
		FieldManager: opts.FieldManager, UserAgent: req.http.UserAgent(), FieldValidation: opts.FieldValidation,
		Force: opts.Force, User: userOf(req.http),
	}
	var errs field.ErrorList
	if kind == "PatchOptions" {
		media, _, _ := strings.Cut(edit.ContentType, ";")
		errs = metav1validation.ValidatePatchOptions(&opts, types.PatchType(strings.TrimSpace(media)))
	} else {
		errs = metav1validation.ValidateUpdateOptions(&metav1.UpdateOptions{
			DryRun: opts.DryRun, FieldManager: opts.FieldManager, FieldValidation: opts.FieldValidation,
		})
	}
	if err := invalidOptions(kind, errs); err != nil {
		return edit, nil, nil, err
	}
	body, err = req.body()
	return edit, opts.DryRun, body, err
}

func (s *Server) create(req *request) error {
	if req.resource.Namespaced && req.namespace == "" {
		return refused(http.StatusMethodNotAllowed)
	}
	edit, dryRun, body, err := req.edit("CreateOptions")
	if err != nil {
		return err
	}
	edit.Exported = originOf(req.http.Context()).By == byManifest
	if err := s.checkNamespace(req, body); err != nil {
		return err
	}
	// A generated name may be taken. A real server, too, tries eight times
	// (k8s.io/apiserver v0.37, pkg/registry/generic/registry).
	taken := ""
	for range 8 {
		r, err := s.editor.Create(req.resource, body, edit)
		name, ok := "", false
		if err == nil {
			name = r.Object.GetName()
			ok, err = s.put(req, watch.Added, storm.ObjectKey(req.namespace, name), &r, 0, dryRun)
		}
		if ok {
			return req.answerResult(http.StatusCreated, &r)
		}
		if err == nil && r.Object.GetGenerateName() == "" {
			exists := apierrors.NewAlreadyExists(req.resource.GVR.GroupResource(), name)
			if o, _ := req.log.Get(storm.ObjectKey(req.namespace, name)); o != nil && o.GetDeletionTimestamp() != nil {
				exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
			}
			err = exists
		}
		if err != nil {
			warn(req.w, r.Warnings)
			return err
		}
		taken = name
	}
	return apierrors.NewGenerateNameConflict(req.resource.GVR.GroupResource(), taken, 1)
}

// put replaces the object at position was by the result of an edit. It returns false
// after a concurrent write.
func (s *Server) put(req *request, t watch.EventType, key string, r *patch.Result, was uint64, dryRun []string) (bool, error) {
	if t != watch.Deleted && req.resource.Namespaced {
		if err := s.charge(req, r.Object, key, was, len(dryRun) > 0); err != nil {
			return false, err
		}
	}
	if len(dryRun) > 0 {
		_, at := req.log.Get(key)
		return at == was, nil
	}
	if t != watch.Deleted {
		if ok, err := s.define(req, r.Object, key, was); !ok || err != nil {
			return false, err
		}
	}
	kept, err := req.keep(r.Object)
	if err != nil {
		return false, err
	}
	if !req.log.Put(originOf(req.http.Context()), t, key, kept, was) {
		return false, nil
	}
	// The log sets the version.
	r.Object = kept
	if r.Answer != nil {
		r.Answer.SetResourceVersion(kept.GetResourceVersion())
	}
	s.after(req, t, key)
	return true, nil
}

// write edits the object of the request and repeats the edit after a concurrent write.
// edit gets the object, nil if there is none, and its position. It returns the event and
// the result to store; nil to store nothing.
func (s *Server) write(req *request, dryRun []string, edit func(current resources.Object, at uint64) (watch.EventType, *patch.Result, error)) error {
	key := req.key()
	for {
		current, was := req.log.Get(key)
		if current != nil {
			shown, err := req.show(current)
			if err != nil {
				return err
			}
			req.outdated, current = req.stale(current), shown.(resources.Object)
		}
		t, r, err := edit(current, was)
		if err != nil || r == nil {
			if s.opts.Changed != nil {
				req.log.Settle() // the answer may have the object of the newest event
			}
			return err
		}
		ok, err := s.put(req, t, key, r, was, dryRun)
		if err != nil || ok {
			return err
		}
		if err := req.http.Context().Err(); err != nil {
			return err
		}
	}
}

func (req *request) answerResult(code int, r *patch.Result) error {
	warn(req.w, r.Warnings)
	if r.Answer != nil {
		return req.answerWhole(code, r.Answer)
	}
	return req.answerShown(code, r.Object)
}

// answerShown answers with a stored object in the requested version.
func (req *request) answerShown(code int, o runtime.Object) error {
	shown, err := req.show(o)
	if err != nil {
		return err
	}
	return req.answer(code, shown)
}

// change writes the object of the request. edit gets nil if there is no object. It
// returns the result and the code of the answer.
func (s *Server) change(req *request, dryRun []string, edit func(current resources.Object) (patch.Result, error)) (code int, r patch.Result, err error) {
	err = s.write(req, dryRun, func(current resources.Object, was uint64) (t watch.EventType, stored *patch.Result, err error) {
		if r, err = edit(current); err != nil {
			return "", nil, err
		}
		code = http.StatusOK
		switch {
		case r.Unchanged && !req.outdated:
			return "", nil, nil
		case r.Gone:
			// The event has the last stored state; the answer has the edited one.
			return watch.Deleted, &patch.Result{Object: current.DeepCopyObject().(resources.Object)}, nil
		case was == 0:
			code = http.StatusCreated
			return watch.Added, &r, s.checkNamespace(req, nil)
		}
		return watch.Modified, &r, nil
	})
	return code, r, err
}

func (s *Server) update(req *request, verb string) error {
	kind, apply := "UpdateOptions", s.editor.Update
	if verb == resources.Patch {
		kind, apply = "PatchOptions", s.editor.Patch
	}
	edit, dryRun, body, err := req.edit(kind)
	if err != nil {
		return err
	}
	code, r, err := s.change(req, dryRun, func(current resources.Object) (patch.Result, error) {
		return apply(req.resource, current, body, edit)
	})
	if err != nil {
		warn(req.w, r.Warnings)
		return err
	}
	return req.answerResult(code, &r)
}

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

// protectedNamespaces are those whose deletion a real server's admission refuses.
var protectedNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

// returnsDeleted are those whose strategy has ReturnDeletedObject (Kubernetes v1.36).
var returnsDeleted = []string{
	"pods", "services", "serviceaccounts", "podtemplates", "persistentvolumes", "persistentvolumeclaims", "resourcequotas",
}

func (s *Server) delete(req *request) error {
	opts, err := req.deleteOptions()
	if err != nil {
		return err
	}
	gvr := req.resource.GVR
	if gvr == namespaceResource && slices.Contains(protectedNamespaces, req.name) {
		return apierrors.NewForbidden(gvr.GroupResource(), req.name, errors.New("this namespace may not be deleted"))
	}
	r, err := s.remove(req, opts)
	if err != nil {
		return err
	}
	o := r.Object
	if r.Gone && gvr == podResource {
		// A real server marks a pod before it deletes it, and answers with the mark.
		o = o.DeepCopyObject().(resources.Object)
		patch.Mark(o)
	}
	// A real server answers with the object if it remains, and for a few kinds.
	if !r.Gone || slices.Contains(returnsDeleted, gvr.Resource) {
		return req.answerShown(http.StatusOK, o)
	}
	return req.succeed(http.StatusOK, &metav1.StatusDetails{Name: req.name, Group: gvr.Group, Kind: gvr.Resource, UID: o.GetUID()})
}

// remove deletes the object of the request or marks it as being deleted.
func (s *Server) remove(req *request, opts *metav1.DeleteOptions) (r patch.Result, err error) {
	err = s.write(req, opts.DryRun, func(current resources.Object, _ uint64) (watch.EventType, *patch.Result, error) {
		if current == nil {
			return "", nil, apierrors.NewNotFound(req.resource.GVR.GroupResource(), req.name)
		}
		if r, err = s.editor.Delete(req.resource, current, opts); err != nil {
			return "", nil, err
		}
		switch {
		case r.Gone && !r.Marked:
			return watch.Deleted, &r, nil
		case r.Unchanged:
			return "", nil, nil
		}
		return watch.Modified, &r, nil
	})
	if err == nil && r.Marked {
		err = s.write(req, opts.DryRun, func(current resources.Object, _ uint64) (watch.EventType, *patch.Result, error) {
			if current == nil || current.GetUID() != r.Object.GetUID() {
				return "", nil, nil // Another request deleted it.
			}
			return watch.Deleted, &patch.Result{Object: current.DeepCopyObject().(resources.Object)}, nil
		})
	}
	if err == nil && req.resource.GVR == namespaceResource && len(opts.DryRun) == 0 && !r.Unchanged {
		s.finish(originOf(req.http.Context()), req.name) // its objects go first
	}
	if err == nil && req.resource.GVR == definitionResource && len(opts.DryRun) == 0 && !r.Unchanged && !r.Gone {
		s.clean(originOf(req.http.Context()), req.name)
	}
	return r, err
}

// deleteCollection serves a DELETE of all selected objects and answers with them.
func (s *Server) deleteCollection(req *request) error {
	if req.resource.Namespaced && req.namespace == "" {
		return refused(http.StatusMethodNotAllowed)
	}
	// It selects like a list.
	q, err := req.query()
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

func (s *Server) scale(req *request) error {
	o, _ := req.log.Get(req.key())
	if o == nil {
		return apierrors.NewNotFound(req.resource.GVR.GroupResource(), req.name)
	}
	shown, err := req.show(o)
	if err != nil {
		return err
	}
	scale, err := s.editor.Scale(req.resource, shown)
	if err != nil {
		return err
	}
	kind := scale.GroupVersionKind()
	req.kind = wire.NewKind(kind, kind.Kind+"List", false, wire.ColumnsOf(kind))
	return req.answer(http.StatusOK, scale)
}
