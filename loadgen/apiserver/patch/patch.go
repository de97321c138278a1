// Package patch is what an API server does to an object between a request's
// body and the store: decoding with field validation, defaulting and pruning
// by a custom resource's schema, all kinds of patches, field managers, the
// rules of metadata, status and generation, and errors as a real server words
// them. It keeps nothing: an object goes in and another comes out, and the
// store decides whether it is still in time.
//
// A write goes through these steps, whichever verb it is:
//
//  1. The body is decoded (decode.go) or applied to the current object
//     (mechanism.go). Unknown and duplicate fields are an error, a warning, or
//     nothing. Objects of custom resources are pruned and defaulted (custom.go).
//  2. Names, namespaces and preconditions must match (meta.go).
//  3. Field managers are told who wrote what (managers.go); server-side apply
//     is apimachinery's.
//  4. What the request may not write is put back: the status on the main path,
//     all else on the status path, what the system owns in metadata. The
//     generation rises if the rest has changed (rules.go).
//  5. Metadata and custom resources are validated.
//
// Not done are the things that live in kube-apiserver alone: defaults and
// validation of built-in kinds, admission, webhooks, validation rules in CEL.
package patch

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"watchlab/loadgen/apiserver/resources"
)

// Options are what an [Editor] takes from outside. The zero value uses the
// real clock and random names.
type Options struct {
	Now    func() time.Time
	NewUID func() types.UID
	Suffix func() string
}

// Editor makes the object that a request asks for. It is safe for concurrent
// use.
//
// Objects are typed where the resource is, and *unstructured.Unstructured
// elsewhere; their kind is always set, to the version of the request. Objects
// that are passed in are never changed, and those returned share nothing with
// them that is.
//
// All errors are API statuses ([apierrors.APIStatus]) that can be answered as
// they are.
type Editor struct {
	opts     Options
	managers sync.Map
	schemas  sync.Map
}

// New returns an editor.
func New(opts Options) *Editor {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.NewUID == nil {
		opts.NewUID = func() types.UID { return types.UID(uuid.NewString()) }
	}
	if opts.Suffix == nil {
		opts.Suffix = func() string { return utilrand.String(5) }
	}
	return &Editor{opts: opts}
}

// Request is what a request says beside its body.
type Request struct {
	Namespace, Name string
	Subresource     string
	ContentType     string
	FieldManager    string
	UserAgent       string
	FieldValidation string
	Force           *bool
}

// Result is what a request makes of an object.
type Result struct {
	Object    runtime.Object
	Answer    runtime.Object
	Created   bool
	Unchanged bool
	Gone      bool
	Warnings  []string
}

// Create makes a new object of a body. Whether there is one of that name is
// for the store to say, and for the caller to try another name if it was
// generated.
func (e *Editor) Create(res *resources.Resource, body []byte, req Request) (Result, error) {
	var result Result
	err := e.create(res, body, req, &result)
	return result, asStatus(err)
}

func (e *Editor) create(res *resources.Resource, body []byte, req Request, result *Result) error {
	if errs := metavalidation.ValidateCreateOptions(&metav1.CreateOptions{FieldManager: req.FieldManager, FieldValidation: req.FieldValidation}); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "CreateOptions"}, "", errs)
	}
	obj, err := e.decode(res, body, req, result)
	if err != nil {
		return err
	}
	m, err := accessor(obj)
	if err != nil {
		return err
	}
	wipeSystemFields(m)
	if err := matchNamespace(res, m, req.Namespace); err != nil {
		return err
	}
	if req.Name != "" {
		if err := matchName(m, req); err != nil {
			return err
		}
	}
	dedupOwners(m, "", result)
	if v := m.GetResourceVersion(); v != "" && v != "0" {
		return plain("resourceVersion should not be set on objects to be created")
	}
	live, err := e.empty(res)
	if err != nil {
		return err
	}
	obj, err = e.track(res, req, live, obj)
	if err != nil {
		return err
	}
	return e.finishCreate(res, obj, result)
}

// finishCreate completes a new object that a body or an apply made.
func (e *Editor) finishCreate(res *resources.Resource, obj runtime.Object, result *Result) error {
	m, err := accessor(obj)
	if err != nil {
		return err
	}
	m.SetResourceVersion("")
	now := metav1.NewTime(e.opts.Now()).Rfc3339Copy()
	m.SetCreationTimestamp(now)
	m.SetUID(e.opts.NewUID())
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(generatedName(m.GetGenerateName(), e.opts.Suffix()))
	}
	prepareForCreate(res, obj, m, now)
	e.stampManagers(m, nil)
	if err := e.validate(res, obj, nil); err != nil {
		return err
	}
	result.Object, result.Created = obj, true
	return nil
}

// Update replaces an object by what a body says. current is nil if there is no
// such object: most resources then answer that it isn't found, a few (leases,
// endpoints, events, …) are created.
func (e *Editor) Update(res *resources.Resource, current runtime.Object, body []byte, req Request) (Result, error) {
	var result Result
	err := e.update(res, current, body, req, &result)
	return result, asStatus(err)
}

func (e *Editor) update(res *resources.Resource, current runtime.Object, body []byte, req Request, result *Result) error {
	if errs := metavalidation.ValidateUpdateOptions(&metav1.UpdateOptions{FieldManager: req.FieldManager, FieldValidation: req.FieldValidation}); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "UpdateOptions"}, "", errs)
	}
	if req.Subresource == resources.Scale {
		return e.updateScale(res, current, body, req, result)
	}
	obj, err := e.decode(res, body, req, result)
	if err != nil {
		return err
	}
	m, err := accessor(obj)
	if err != nil {
		return err
	}
	if err := matchNamespace(res, m, req.Namespace); err != nil {
		return err
	}
	if err := matchName(m, req); err != nil {
		return err
	}
	dedupOwners(m, "", result)
	if current == nil {
		if req.Subresource != "" || !rulesOf(res).createOnUpdate {
			return notFound(res, req)
		}
		if m.GetUID() != "" {
			return otherUID(res, req, m.GetUID(), "")
		}
		live, err := e.empty(res)
		if err != nil {
			return err
		}
		if obj, err = e.track(res, req, live, obj); err != nil {
			return err
		}
		return e.finishCreate(res, obj, result)
	}
	live, err := e.inVersion(res, current)
	if err != nil {
		return err
	}
	liveMeta, err := accessor(live)
	if err != nil {
		return err
	}
	if uid := m.GetUID(); uid != "" && uid != liveMeta.GetUID() {
		return otherUID(res, req, uid, liveMeta.GetUID())
	}
	if obj, err = e.track(res, req, live, obj); err != nil {
		return err
	}
	return e.finishUpdate(res, live, obj, req, result)
}

// finishUpdate completes an object that is to take live's place.
func (e *Editor) finishUpdate(res *resources.Resource, live, obj runtime.Object, req Request, result *Result) error {
	m, err := accessor(obj)
	if err != nil {
		return err
	}
	old, err := accessor(live)
	if err != nil {
		return err
	}
	if err := matchVersion(res, m, old, req); err != nil {
		return err
	}
	m.SetGeneration(old.GetGeneration())
	prepareForUpdate(res, req.Subresource, obj, live)
	keepSystemFields(m, old)
	e.stampManagers(m, old)
	if err := e.validate(res, obj, live); err != nil {
		return err
	}
	result.Object = obj
	switch {
	case emptied(m, old):
		result.Gone = true
	case same(obj, live):
		result.Object, result.Unchanged = live, true
	}
	return nil
}

// Patch applies a patch to an object. The content type is one of apimachinery's
// patch types. current is nil if there is no such object: an apply then makes
// one, the others say that it isn't found.
func (e *Editor) Patch(res *resources.Resource, current runtime.Object, body []byte, req Request) (Result, error) {
	var result Result
	err := e.patch(res, current, body, req, &result)
	return result, asStatus(err)
}

func (e *Editor) patch(res *resources.Resource, current runtime.Object, body []byte, req Request, result *Result) error {
	kind, err := patchType(res, req.ContentType)
	if err != nil {
		return err
	}
	options := &metav1.PatchOptions{FieldManager: req.FieldManager, FieldValidation: req.FieldValidation, Force: req.Force}
	if errs := metavalidation.ValidatePatchOptions(options, kind); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	if req.Subresource == resources.Scale {
		return e.patchScale(res, current, kind, body, req, result)
	}
	var live runtime.Object
	if current == nil {
		if !isApply(kind) || req.Subresource != "" {
			return notFound(res, req)
		}
		live, err = e.empty(res)
	} else {
		live, err = e.inVersion(res, current)
	}
	if err != nil {
		return err
	}
	obj, err := e.apply(res, live, kind, body, req, result)
	if err != nil {
		return err
	}
	m, err := accessor(obj)
	if err != nil {
		return err
	}
	if current == nil && m.GetUID() != "" {
		return conflict(res, req.Name, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", m.GetUID()))
	}
	if err := matchNamespace(res, m, req.Namespace); err != nil {
		return err
	}
	if err := matchName(m, req); err != nil {
		return err
	}
	dedupOwners(m, " after mutating admission happens", result)
	if current != nil {
		return e.finishUpdate(res, live, obj, req, result)
	}
	return e.finishCreate(res, obj, result)
}

// Delete deletes an object: Gone if nothing holds it, else marked as being
// deleted, until an [Editor.Update] or [Editor.Patch] takes its last finalizer.
// Preconditions are checked. There is no kubelet and no garbage collector
// behind a simulated server, so a pod goes at once, whatever its grace period,
// and propagation policies do nothing.
func (e *Editor) Delete(res *resources.Resource, current runtime.Object, options *metav1.DeleteOptions) (Result, error) {
	result, err := e.delete(res, current, options)
	return result, asStatus(err)
}

func (e *Editor) delete(res *resources.Resource, current runtime.Object, options *metav1.DeleteOptions) (Result, error) {
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if errs := metavalidation.ValidateDeleteOptions(options); len(errs) > 0 {
		return Result{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	obj, err := e.inVersion(res, current)
	if err != nil {
		return Result{}, err
	}
	m, err := accessor(obj)
	if err != nil {
		return Result{}, err
	}
	if p := options.Preconditions; p != nil {
		byKind := schema.GroupResource{Group: res.GVK.Group, Resource: res.GVK.Kind} // as the real one says it
		if p.UID != nil && *p.UID != m.GetUID() {
			return Result{}, apierrors.NewConflict(byKind, m.GetName(), fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, m.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
			return Result{}, apierrors.NewConflict(byKind, m.GetName(), fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, m.GetResourceVersion()))
		}
	}
	if len(m.GetFinalizers()) == 0 {
		return Result{Object: obj, Gone: true}, nil
	}
	if m.GetDeletionTimestamp() != nil {
		return Result{Object: obj, Unchanged: true}, nil
	}
	now := metav1.NewTime(e.opts.Now()).Rfc3339Copy()
	m.SetDeletionTimestamp(&now)
	m.SetDeletionGracePeriodSeconds(new(int64))
	if m.GetGeneration() > 0 {
		m.SetGeneration(m.GetGeneration() + 1)
	}
	return Result{Object: obj}, nil
}

// managerKey says which field manager a request needs.
type managerKey struct {
	kind        schema.GroupVersionKind
	subresource string
}

// cachedManager is a field manager and what it is of: a definition that has
// changed is another resource and takes the old one's place.
type cachedManager struct {
	res     *resources.Resource
	manager *managedfields.FieldManager
}

// manager returns the field manager of a resource or of its subresource.
func (e *Editor) manager(res *resources.Resource, subresource string) (*managedfields.FieldManager, error) {
	key := managerKey{res.GVK, subresource}
	if c, ok := e.managers.Load(key); ok && c.(*cachedManager).res == res {
		return c.(*cachedManager).manager, nil
	}
	m, err := e.newManager(res, subresource)
	if err != nil {
		return nil, err
	}
	e.managers.Store(key, &cachedManager{res: res, manager: m})
	return m, nil
}

func accessor(obj runtime.Object) (metav1.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return m, nil
}
