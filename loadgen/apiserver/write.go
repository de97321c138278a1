package apiserver

import (
	"mime"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
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

// parameters reads the query parameters of a write.
func (req *request) parameters(into runtime.Object) error {
	values, err := url.ParseQuery(req.http.URL.RawQuery)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

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
	if err := req.parameters(&opts); err != nil {
		return err
	}
	if err := invalidOptions("CreateOptions", metav1validation.ValidateCreateOptions(&opts)); err != nil {
		return err
	}
	if req.asked.Namespaced && req.namespace == "" {
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
		r, err := s.editor.Create(req.asked, body, edit)
		if err != nil {
			return err
		}
		m, err := meta.Accessor(r.Object)
		if err != nil {
			return err
		}
		if err := s.admitNew(req, r.Object); err != nil {
			return err
		}
		key := storm.ObjectKey(req.namespace, m.GetName())
		ok, err := s.store(req, watch.Added, key, &r, 0, opts.DryRun)
		if err != nil {
			return err
		}
		if ok {
			return s.answer(req, http.StatusCreated, &r)
		}
		if m.GetGenerateName() == "" {
			return apierrors.NewAlreadyExists(req.asked.GVR.GroupResource(), m.GetName())
		}
		taken = m.GetName()
	}
	return apierrors.NewGenerateNameConflict(req.asked.GVR.GroupResource(), taken, 1)
}

// store replaces the object at position was by the result of an edit. It returns false
// after a concurrent write.
func (s *Server) store(req *request, t watch.EventType, key string, r *patch.Result, was uint64, dryRun []string) (bool, error) {
	if len(dryRun) > 0 {
		_, at := req.log.Get(key)
		return at == was, nil
	}
	kept := req.keep(r.Object)
	if req.converts {
		patch.Defaults(req.collection.resource, kept)
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

// answer writes the result of an edit.
func (s *Server) answer(req *request, code int, r *patch.Result) error {
	warn(req.w, r.Warnings)
	if r.Answer != nil {
		return writeAny(req.w, code, req.whole(), r.Answer)
	}
	return writeObject(req.w, code, &req.view, req.form, req.show(r.Object))
}

// change edits the object of the request and repeats the edit after a concurrent write.
// edit gets nil if there is no object.
func (s *Server) change(req *request, dryRun []string, edit func(current runtime.Object) (patch.Result, error)) error {
	key := req.key()
	for {
		current, was := req.log.Get(key)
		if current != nil {
			current = req.show(current)
		}
		r, err := edit(current)
		if err != nil {
			return err
		}
		code := http.StatusOK
		if r.Unchanged {
			return s.answer(req, code, &r)
		}
		t := watch.Modified
		switch {
		case r.Gone:
			t = watch.Deleted
		case was == 0:
			if err := s.checkNamespace(req, nil); err != nil {
				return err
			}
			if err := s.admitNew(req, r.Object); err != nil {
				return err
			}
			t, code = watch.Added, http.StatusCreated
		default:
			if err := s.admitChange(req, r.Object); err != nil {
				return err
			}
		}
		stored := &r
		if r.Gone {
			// The event has the last stored state; the answer has the edited one.
			stored = &patch.Result{Object: current.DeepCopyObject()}
		}
		ok, err := s.store(req, t, key, stored, was, dryRun)
		if err != nil {
			return err
		}
		if ok {
			return s.answer(req, code, &r)
		}
		if err := req.http.Context().Err(); err != nil {
			return err
		}
	}
}

// update serves a PUT.
func (s *Server) update(req *request) error {
	var opts metav1.UpdateOptions
	if err := req.parameters(&opts); err != nil {
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
		return s.editor.Update(req.asked, current, body, edit)
	})
}

// patch serves a PATCH.
func (s *Server) patch(req *request) error {
	var opts metav1.PatchOptions
	if err := req.parameters(&opts); err != nil {
		return err
	}
	edit := req.edit(opts.FieldManager, opts.FieldValidation)
	edit.Force = opts.Force
	if err := invalidOptions("PatchOptions", metav1validation.ValidatePatchOptions(&opts, patchType(edit.ContentType))); err != nil {
		return err
	}
	body, err := req.body()
	if err != nil {
		return err
	}
	return s.change(req, opts.DryRun, func(current runtime.Object) (patch.Result, error) {
		return s.editor.Patch(req.asked, current, body, edit)
	})
}

// patchType returns a content type without its parameters.
func patchType(content string) types.PatchType {
	if media, _, err := mime.ParseMediaType(content); err == nil {
		return types.PatchType(media)
	}
	return types.PatchType(content)
}
