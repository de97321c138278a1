// Package patch turns requests into objects as an API server does: it decodes bodies with field
// validation, prunes and defaults custom resources, applies patches, tracks field managers, and
// enforces the rules of metadata, status and generation. Errors have the text of a real server. It
// stores nothing; the store decides whether a result is still current.
//
// A write takes these steps, whatever the verb:
//
//  1. The body is decoded (decode.go) or applied to the current object
//     (mechanism.go). Unknown and duplicate fields are errors, warnings or ignored.
//     Custom resources are pruned and defaulted (custom.go), built-in kinds defaulted (defaults.go).
//  2. Names, namespaces and preconditions must match (rules.go).
//  3. Field managers are updated (mechanism.go); server-side apply is apimachinery's.
//  4. Fields that the request may not write are restored: the status on the main
//     path, all else on the status path, system fields in metadata. The generation
//     rises if the rest changed (rules.go). Kinds have rules of their own (strategy.go).
//  5. Metadata, custom resources and immutable fields are validated.
//
// apiextensions-apiserver's defaulting and the patch handler of k8s.io/apiserver are not
// used, because they need CEL and its generated parser; see docs/dependencies.md.
//
// Not simulated: other validation of built-in kinds, webhooks, validation rules in CEL. Admission is the caller's.
package patch

import (
	"fmt"
	"sync"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"watchlab/loadgen/apiserver/resources"
)

type object = resources.Object

// Editor computes the object that a request results in. It is safe for concurrent use.
//
// Objects of typed resources have client-go's types, others are *unstructured.Unstructured. Their
// kind is set, in the version of the request. The editor never changes an object that is passed in.
//
// All errors are API statuses ([apierrors.APIStatus]).
type Editor struct {
	Suffix func() string // of a generated name, by default 5 random characters
	// Graceful is the deletion of a cluster with kubelets and a garbage collector; see Delete.
	Graceful bool
	// ForeignNamespaces keeps a namespace until the finalizers of its spec are gone, too.
	ForeignNamespaces bool
	// Admit completes a new object of a built-in kind, or one that replaces old, or refuses it. InUse reports
	// whether pods need a volume, which then outlives its deletion. Both may be nil.
	Admit    func(res *resources.Resource, obj, old resources.Object) error
	InUse    func(obj resources.Object) bool
	managers sync.Map // managerKey → *cachedManager
}

// New returns an editor.
func New() *Editor {
	limitCopies()
	return &Editor{Suffix: func() string { return utilrand.String(longestSuffix) }}
}

// Request is a request without its body. Its options are valid.
type Request struct {
	Namespace, Name string // of the URL; Name is empty for a POST to the collection
	// Subresource is empty for the object itself, else "status", "scale" or another
	// subresource that takes the whole object, such as "resize".
	Subresource     string
	ContentType     string // media type of the body; empty means JSON; a patch needs it
	FieldManager    string // query parameter; empty means the first part of UserAgent
	UserAgent       string // header of the request
	FieldValidation string // "Strict", "Warn" or "Ignore"; empty means "Warn"
	// Force lets server-side apply take fields from other managers. Other requests
	// must not have it; nil means that the query omits it.
	Force *bool
	// Exported makes a new object keep the uid, the creation time, the generation and the status that its body has.
	Exported bool
	User     *authenticationv1.UserInfo // who asks; nil if that does not matter
}

// Result is the outcome of a request.
type Result struct {
	// Object is the object to store. It has the resourceVersion of the object that it
	// replaces; a new object has none.
	Object resources.Object
	// Answer is the answer to the client if it is not Object: a Scale. The caller
	// sets its resourceVersion to that of the stored object. Nil means Object.
	Answer    *autoscalingv1.Scale
	Unchanged bool     // the request changes nothing: no write and no event
	Gone      bool     // the object has no finalizer left: the caller deletes it
	Marked    bool     // of a Gone object: the caller first stores it, as marked
	Warnings  []string // of the answer's Warning headers
}

// edit is a write in progress.
type edit struct {
	*Editor
	Request
	Result
	res *resources.Resource
}

func (x *edit) done(err error) (Result, error) { return x.Result, asStatus(err) }

// Create makes a new object of a body. The store decides whether the name is free; the
// caller may retry with another generated name.
func (e *Editor) Create(res *resources.Resource, body []byte, req Request) (Result, error) {
	x := &edit{Editor: e, Request: req, res: res}
	return x.done(x.create(body))
}

func (x *edit) create(body []byte) error {
	obj, err := x.decode(body)
	if err != nil {
		return err
	}
	given := obj.DeepCopyObject().(object)
	wipeSystemFields(obj)
	if err := x.match(obj); err != nil {
		return err
	}
	x.dedupOwners(obj, "")
	if v := obj.GetResourceVersion(); v != "" && v != "0" {
		return plain("resourceVersion should not be set on objects to be created")
	}
	if obj, err = x.track(x.res.NewObject(), obj); err != nil {
		return err
	}
	if err := x.finishCreate(obj); err != nil || !x.Exported {
		return err
	}
	keepExported(x.Object, given)
	return nil
}

// finishCreate completes a new object of a body or an apply.
func (x *edit) finishCreate(obj object) error {
	obj.SetResourceVersion("")
	now := metav1.Now().Rfc3339Copy()
	obj.SetCreationTimestamp(now)
	obj.SetUID(types.UID(uuid.NewString()))
	if base := obj.GetGenerateName(); base != "" && obj.GetName() == "" {
		obj.SetName(base[:min(len(base), longestName-longestSuffix)] + x.Suffix())
	}
	if x.Admit != nil && x.res.Typed() {
		if err := x.Admit(x.res, obj, nil); err != nil {
			return err
		}
	}
	x.prepareForCreate(obj, now)
	if x.res.Typed() {
		SetDefaults(obj) // as a real server's store does
	}
	if err := x.validate(obj, nil); err != nil {
		return err
	}
	x.Object = obj
	return nil
}

// Update replaces an object by a body. A nil current object is not found; an update
// creates objects of a few resources (leases, endpoints, events, …).
func (e *Editor) Update(res *resources.Resource, current runtime.Object, body []byte, req Request) (Result, error) {
	x := &edit{Editor: e, Request: req, res: res}
	return x.done(x.update(current, body))
}

func (x *edit) update(current runtime.Object, body []byte) error {
	if x.Subresource == resources.Scale {
		return x.editScale(current, "", body)
	}
	obj, err := x.decode(body)
	if err != nil {
		return err
	}
	if err := x.match(obj); err != nil {
		return err
	}
	x.dedupOwners(obj, "")
	live := x.res.NewObject()
	if current != nil {
		live, err = inVersion(x.res, current)
	} else if x.Subresource != "" || !rulesOf(x.res).has("put-creates") {
		err = x.notFound()
	}
	if err != nil {
		return err
	}
	if uid := obj.GetUID(); uid != "" && uid != live.GetUID() {
		return x.otherUID(uid, live.GetUID())
	}
	if obj, err = x.track(live, obj); err != nil {
		return err
	}
	if current == nil {
		return x.finishCreate(obj)
	}
	return x.finishUpdate(live, obj)
}

// finishUpdate completes an object that replaces live.
func (x *edit) finishUpdate(live, obj object) error {
	if err := x.matchVersion(obj, live); err != nil {
		return err
	}
	obj.SetGeneration(live.GetGeneration())
	prepareForUpdate(x.res, x.Subresource, obj, live)
	keepSystemFields(obj, live)
	if x.Admit != nil && x.res.Typed() && x.Subresource == "" {
		if err := x.Admit(x.res, obj, live); err != nil {
			return err
		}
	}
	if err := x.validate(obj, live); err != nil {
		return err
	}
	x.Object = obj
	switch {
	case x.emptied(obj, live):
		x.Gone = true
	case same(obj, live):
		x.Object, x.Unchanged = live, true
	}
	return nil
}

// Patch applies a patch to an object. The content type is one of apimachinery's patch
// types. An apply creates a nil current object; other patches do not find it.
func (e *Editor) Patch(res *resources.Resource, current runtime.Object, body []byte, req Request) (Result, error) {
	x := &edit{Editor: e, Request: req, res: res}
	return x.done(x.patch(current, body))
}

func (x *edit) patch(current runtime.Object, body []byte) error {
	kind, err := patchType(x.res, x.ContentType)
	if err != nil {
		return err
	}
	if x.Subresource == resources.Scale {
		return x.editScale(current, kind, body)
	}
	live := x.res.NewObject()
	if current != nil {
		live, err = inVersion(x.res, current)
	} else if !isApply(kind) || x.Subresource != "" {
		err = x.notFound()
	}
	if err != nil {
		return err
	}
	obj, err := x.apply(live, kind, body)
	if err != nil {
		return err
	}
	if current == nil && obj.GetUID() != "" {
		return x.conflict(fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", obj.GetUID()))
	}
	if err := x.match(obj); err != nil {
		return err
	}
	x.dedupOwners(obj, " after mutating admission happens")
	if current != nil {
		return x.finishUpdate(live, obj)
	}
	return x.finishCreate(obj)
}
