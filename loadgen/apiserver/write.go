package apiserver

import (
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/storm"
)

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// edit returns the request without its body.
func (req *request) edit(manager, validation string) patch.Request {
	return patch.Request{
		Namespace: req.namespace, Name: req.name, Subresource: req.subresource,
		ContentType:  req.http.Header.Get("Content-Type"),
		FieldManager: manager, UserAgent: req.http.UserAgent(), FieldValidation: validation,
	}
}

// create serves a POST to a collection.
func (s *Server) create(req *request) error {
	var opts metav1.CreateOptions
	if err := decodeQuery(req.http.URL.RawQuery, &opts); err != nil {
		return err
	}
	if err := invalidOptions("CreateOptions", metav1validation.ValidateCreateOptions(&opts)); err != nil {
		return err
	}
	if req.resource.Namespaced && req.namespace == "" {
		return notAllowed()
	}
	body, err := req.body()
	if err != nil {
		return err
	}
	if err := s.checkNamespace(req, body); err != nil {
		return err
	}
	edit := req.edit(opts.FieldManager, opts.FieldValidation)
	// A generated name may be taken. A real server, too, tries eight times
	// (k8s.io/apiserver v0.37, pkg/registry/generic/registry).
	taken := ""
	for range 8 {
		r, err := s.editor.Create(req.resource, body, edit)
		if err != nil {
			return err
		}
		m, err := meta.Accessor(r.Object)
		if err != nil {
			return err
		}
		if err := s.admit(req, r.Object, true); err != nil {
			return err
		}
		ok, err := s.put(req, watch.Added, storm.ObjectKey(req.namespace, m.GetName()), &r, 0, opts.DryRun)
		if err != nil {
			return err
		}
		if ok {
			return req.answerResult(http.StatusCreated, &r)
		}
		if m.GetGenerateName() == "" {
			return apierrors.NewAlreadyExists(req.resource.GVR.GroupResource(), m.GetName())
		}
		taken = m.GetName()
	}
	return apierrors.NewGenerateNameConflict(req.resource.GVR.GroupResource(), taken, 1)
}

// put replaces the object at position was by the result of an edit. It returns false
// after a concurrent write.
func (s *Server) put(req *request, t watch.EventType, key string, r *patch.Result, was uint64, dryRun []string) (bool, error) {
	if len(dryRun) > 0 {
		_, at := req.log.Get(key)
		return at == was, nil
	}
	kept := req.keep(r.Object)
	if req.converts {
		patch.Defaults(req.stored, kept)
	}
	ok, err := req.log.Put(t, key, kept, was)
	if err != nil || !ok {
		return ok, err
	}
	// The log sets the version.
	r.Object = kept
	if r.Answer != nil {
		stored, err := meta.Accessor(kept)
		if err != nil {
			return false, err
		}
		answer, err := meta.Accessor(r.Answer)
		if err != nil {
			return false, err
		}
		answer.SetResourceVersion(stored.GetResourceVersion())
	}
	s.after(req, t, key, kept)
	return true, nil
}

// write edits the object of the request and repeats the edit after a concurrent write.
// edit gets the object, nil if there is none, and its position. It returns the event and
// the result to store; nil to store nothing.
func (s *Server) write(req *request, dryRun []string, edit func(current runtime.Object, at uint64) (watch.EventType, *patch.Result, error)) error {
	key := req.key()
	for {
		current, was := req.log.Get(key)
		if current != nil {
			current = req.show(current)
		}
		t, r, err := edit(current, was)
		if err != nil || r == nil {
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

// answerResult answers with the result of an edit.
func (req *request) answerResult(code int, r *patch.Result) error {
	warn(req.w, r.Warnings)
	if r.Answer != nil {
		return req.answerWhole(code, r.Answer)
	}
	return req.answer(code, req.show(r.Object))
}

// change writes the object of the request and answers with it. edit gets nil if there is
// no object.
func (s *Server) change(req *request, dryRun []string, edit func(current runtime.Object) (patch.Result, error)) error {
	var r patch.Result
	var code int
	err := s.write(req, dryRun, func(current runtime.Object, was uint64) (t watch.EventType, stored *patch.Result, err error) {
		if r, err = edit(current); err != nil {
			return "", nil, err
		}
		code = http.StatusOK
		switch {
		case r.Unchanged:
			return "", nil, nil
		case r.Gone:
			// The event has the last stored state; the answer has the edited one.
			return watch.Deleted, &patch.Result{Object: current.DeepCopyObject()}, nil
		case was == 0:
			if err := s.checkNamespace(req, nil); err != nil {
				return "", nil, err
			}
			code = http.StatusCreated
			return watch.Added, &r, s.admit(req, r.Object, true)
		}
		return watch.Modified, &r, s.admit(req, r.Object, false)
	})
	if err != nil {
		return err
	}
	return req.answerResult(code, &r)
}

// update serves a PUT.
func (s *Server) update(req *request) error {
	var opts metav1.UpdateOptions
	if err := decodeQuery(req.http.URL.RawQuery, &opts); err != nil {
		return err
	}
	if err := invalidOptions("UpdateOptions", metav1validation.ValidateUpdateOptions(&opts)); err != nil {
		return err
	}
	body, err := req.body()
	if err != nil {
		return err
	}
	edit := req.edit(opts.FieldManager, opts.FieldValidation)
	return s.change(req, opts.DryRun, func(current runtime.Object) (patch.Result, error) {
		return s.editor.Update(req.resource, current, body, edit)
	})
}

// patch serves a PATCH.
func (s *Server) patch(req *request) error {
	var opts metav1.PatchOptions
	if err := decodeQuery(req.http.URL.RawQuery, &opts); err != nil {
		return err
	}
	edit := req.edit(opts.FieldManager, opts.FieldValidation)
	edit.Force = opts.Force
	kind := edit.ContentType
	if media, _, err := mime.ParseMediaType(kind); err == nil {
		kind = media
	}
	if err := invalidOptions("PatchOptions", metav1validation.ValidatePatchOptions(&opts, types.PatchType(kind))); err != nil {
		return err
	}
	body, err := req.body()
	if err != nil {
		return err
	}
	return s.change(req, opts.DryRun, func(current runtime.Object) (patch.Result, error) {
		return s.editor.Patch(req.resource, current, body, edit)
	})
}
