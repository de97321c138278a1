package patch

import (
	_ "embed" // the rules
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"watchlab/loadgen/apiserver/resources"
)

// rulesText lists the write rules of resources; it explains the words.
//
//go:embed rules.txt
var rulesText string

// rules are the rules of a resource, as words of rulesText.
type rules []string

func (r rules) has(word string) bool { return slices.Contains(r, word) }

func (r rules) name() apivalidation.ValidateNameFunc {
	switch {
	case r.has("name:label"):
		return apivalidation.NameIsDNSLabel
	case r.has("name:path-segment"): // such as "system:node"
		return isPathSegment
	case r.has("name:ip"):
		return func(name string, _ bool) (why []string) {
			for _, err := range validation.IsValidIP(nil, name) {
				why = append(why, err.Detail)
			}
			return why
		}
	case r.has("name:short"): // Jobs have 11 characters more.
		return func(name string, prefix bool) []string {
			why := apivalidation.NameIsDNSSubdomain(name, prefix)
			if len(name) > 52 {
				why = append(why, "must be no more than 52 characters")
			}
			return why
		}
	}
	return apivalidation.NameIsDNSSubdomain
}

func isPathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

var allRules = sync.OnceValue(func() map[string]rules {
	all := map[string]rules{}
	for line := range strings.Lines(rulesText) {
		if words := strings.Fields(line); words[0] != "#" {
			all[words[0]] = words[1:]
		}
	}
	return all
})

func rulesOf(res *resources.Resource) rules {
	if res.Custom != nil {
		return allRules()["custom-resources"]
	}
	return allRules()[res.GVR.GroupResource().String()]
}

// resetFields returns the fields that a write to a resource or subresource cannot
// set and whose managers it therefore does not record.
func resetFields(res *resources.Resource, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	set := fieldpath.NewSet()
	switch {
	case subresource == resources.Status:
		set.Insert(pathOf("spec"))
		for _, word := range rulesOf(res) {
			if kept, ok := strings.CutPrefix(word, "keeps:"); ok {
				set.Insert(pathOf(kept))
			}
		}
	case subresource == "" && res.HasStatus():
		set.Insert(pathOf("status"))
	case subresource == resources.Approval:
		set.Insert(pathOf("spec"))
		set.Insert(pathOf("status.certificate"))
	default:
		return nil
	}
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(res.GroupVersion().String()): set,
	})
}

// prepareForCreate clears the status of a new object and sets its initial fields.
func (x *edit) prepareForCreate(obj object, now metav1.Time) {
	res := x.res
	if res.HasStatus() && !rulesOf(res).has("status-on-create") {
		setPart(obj, "status", nil)
	}
	if rulesOf(res).has("generation") {
		obj.SetGeneration(1)
	}
	x.createBuiltin(obj, now)
}

// qosClass returns Guaranteed if all containers have limits of CPU and memory equal to
// their requests, BestEffort if none has limits or requests, else Burstable.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	best, guaranteed := true, true
	for _, c := range slices.Concat(spec.Containers, spec.InitContainers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
			if !limit.IsZero() || !request.IsZero() {
				best = false
			}
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case best:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// prepareForUpdate restores fields that the request must not write. It raises the
// generation if anything but metadata and status changed.
func prepareForUpdate(res *resources.Resource, subresource string, obj, old object) {
	switch {
	case subresource == resources.Status:
		keepAllButStatus(obj, old, rulesOf(res))
		updateBuiltin(subresource, obj, old)
		return
	case res.HasStatus() && subresource != resources.Approval:
		setPart(obj, "status", old)
	}
	updateBuiltin(subresource, obj, old)
	r := rulesOf(res)
	if !r.has("generation") {
		return
	}
	if !sameSpec(obj, old, res.HasStatus()) ||
		r.has("generation:labels") && !apiequality.Semantic.DeepEqual(obj.GetLabels(), old.GetLabels()) ||
		r.has("generation:annotations") && !apiequality.Semantic.DeepEqual(obj.GetAnnotations(), old.GetAnnotations()) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// part returns a field of an object by its name in JSON, shared, or nil.
func part(obj object, name string) any {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object[name]
	}
	return valueAt(obj, name)
}

// setPart sets a field of an object to that of another one of its type, shared; it clears it without another one.
func setPart(obj object, name string, from object) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		var value any
		if from != nil {
			value = part(from, name)
		}
		if delete(u.Object, name); value != nil {
			u.Object[name] = value
		}
		return
	}
	index := fieldAt(reflect.TypeOf(obj), name)
	switch f := follow(reflect.ValueOf(obj), index); {
	case index == nil:
	case from == nil:
		f.SetZero()
	default:
		f.Set(follow(reflect.ValueOf(from), index))
	}
}

// keepAllButStatus restores everything from the old object except the status, the
// managed fields, and the metadata that a status write may change.
func keepAllButStatus(obj, old object, r rules) {
	kept := old.DeepCopyObject().(object) // of the same type
	managed := obj.GetManagedFields()
	if r.has("keeps:metadata.labels") {
		obj.SetLabels(kept.GetLabels())
	}
	if r.has("keeps:metadata.ownerReferences") {
		obj.SetOwnerReferences(kept.GetOwnerReferences())
		obj.SetDeletionTimestamp(kept.GetDeletionTimestamp())
	}
	setPart(kept, "status", obj)
	if !r.has("keeps:metadata") {
		setPart(kept, "metadata", obj)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(kept).Elem())
	obj.SetManagedFields(managed)
}

// sameSpec compares two objects without metadata and, with butStatus, without status.
func sameSpec(a, b object, butStatus bool) bool {
	a, b = a.DeepCopyObject().(object), b.DeepCopyObject().(object)
	for _, o := range []object{a, b} {
		setPart(o, "metadata", nil)
		if butStatus {
			setPart(o, "status", nil)
		}
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

// standardFinalizers are the finalizers without a domain that built-in kinds accept.
var standardFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

// validateMeta returns the errors in the metadata of an object, which may replace old.
func (x *edit) validateMeta(m, old object) field.ErrorList {
	at := field.NewPath("metadata")
	name := rulesOf(x.res).name()
	if old != nil {
		name = isPathSegment
	}
	errs := apivalidation.ValidateObjectMetaAccessor(m, x.res.Namespaced, name, at)
	for i, f := range m.GetFinalizers() {
		switch {
		case strings.Contains(f, "/") || slices.Contains(standardFinalizers, f):
		case x.res.Typed():
			errs = append(errs, field.Invalid(at.Child("finalizers").Index(i), f, "name is neither a standard finalizer name nor is it fully qualified"))
		default:
			x.Warnings = append(x.Warnings, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers", f))
		}
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(m, old, at)...)
	}
	return errs
}

// errModified is the reason of a conflict with another write.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// wipeSystemFields clears the fields of a new object that only the system sets.
func wipeSystemFields(m object) {
	m.SetCreationTimestamp(metav1.Time{})
	m.SetUID("")
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
}

// keepExported restores what only the system sets, where an exported object has it.
func keepExported(m, given object) {
	if uid := given.GetUID(); uid != "" {
		m.SetUID(uid)
	}
	if born := given.GetCreationTimestamp(); !born.IsZero() {
		m.SetCreationTimestamp(born)
	}
	if n := given.GetGeneration(); n > 0 && m.GetGeneration() > 0 {
		m.SetGeneration(n)
	}
	if status := part(given, "status"); status != nil && !reflect.ValueOf(status).IsZero() {
		setPart(m, "status", given)
	}
}

// keepSystemFields restores the fields that an update must not change.
func keepSystemFields(m, old object) {
	if m.GetUID() == "" {
		m.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		m.SetCreationTimestamp(created)
	}
	if deleted := old.GetDeletionTimestamp(); !deleted.IsZero() {
		m.SetDeletionTimestamp(deleted)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && m.GetDeletionGracePeriodSeconds() == nil {
		m.SetDeletionGracePeriodSeconds(grace)
	}
	m.SetSelfLink("")
}

// match sets the URL's namespace on an object without one and clears that of a
// cluster-scoped object. It returns an error for another namespace or name than the URL's.
func (x *edit) match(m object) error {
	switch {
	case !x.res.Namespaced:
		m.SetNamespace("")
	case m.GetNamespace() == "":
		m.SetNamespace(x.Namespace)
	case m.GetNamespace() != x.Namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	switch {
	case x.Name == "" || m.GetName() == x.Name:
		return nil
	case m.GetName() == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", x.Name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), x.Name))
}

// matchVersion implements optimistic concurrency: a write of another version is a conflict. A write
// without a version gets the current one, except for resources that require one.
func (x *edit) matchVersion(m, old object) error {
	v := m.GetResourceVersion()
	if _, err := strconv.ParseUint(v, 10, 64); v != "" && err != nil {
		return plain(err.Error())
	}
	switch {
	case v == old.GetResourceVersion():
		return nil
	case v != "" && v != "0":
		return x.conflict(errModified)
	case rulesOf(x.res).has("put-needs-version"):
		kind := schema.GroupKind{Group: x.res.GVR.Group, Kind: x.res.GVR.Resource}
		err := field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")
		return apierrors.NewInvalid(kind, x.Name, field.ErrorList{err})
	}
	m.SetResourceVersion(old.GetResourceVersion())
	return nil
}

// dedupOwners drops duplicate owner references with a warning. when is the phase that
// a real server names.
func (x *edit) dedupOwners(m object, when string) {
	var kept []metav1.OwnerReference
	var dropped []string
	for _, ref := range m.GetOwnerReferences() {
		if slices.ContainsFunc(kept, func(k metav1.OwnerReference) bool { return apiequality.Semantic.DeepEqual(k, ref) }) {
			dropped = append(dropped, string(ref.UID))
			continue
		}
		kept = append(kept, ref)
	}
	if len(dropped) > 0 {
		m.SetOwnerReferences(kept)
		x.Warnings = append(x.Warnings, ".metadata.ownerReferences contains duplicate entries"+when+"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "+strings.Join(dropped, ", "))
	}
}

// A generated name has at most 63 bytes, with a suffix of five.
const (
	longestName   = 63
	longestSuffix = 5
)

// emptied reports whether an update removed the last finalizer of an object being deleted. Those in the spec of a
// namespace count if a client removes them.
func (e *Editor) emptied(m, old object) bool {
	if len(m.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	if ns, ok := m.(*corev1.Namespace); ok && e.ForeignNamespaces && len(ns.Spec.Finalizers) > 0 {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// same reports whether two objects are equal, except for the times of managed fields.
func same(obj, live object) bool {
	entries := obj.GetManagedFields()
	sameButTime := func(a, b metav1.ManagedFieldsEntry) bool {
		a.Time, b.Time = nil, nil
		return apiequality.Semantic.DeepEqual(a, b)
	}
	if !slices.EqualFunc(entries, live.GetManagedFields(), sameButTime) {
		return false
	}
	obj.SetManagedFields(live.GetManagedFields())
	defer obj.SetManagedFields(entries)
	return apiequality.Semantic.DeepEqual(obj, live)
}

// asStatus converts an error to an API status, by default 500, as a real server does.
func asStatus(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return plain(err.Error())
}

func plain(message string) error { return Refused(http.StatusInternalServerError, "", message) }

// Refused is an error with a text of its own.
func Refused(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// Unsupported is the error for a body of another media type.
func Unsupported(accepted ...string) *apierrors.StatusError {
	return Refused(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

// unprocessable is the error for a patch that does not fit its object. Like a real server's,
// it hides the message.
func unprocessable(message string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", message, 0, false)
}

func (x *edit) notFound() error {
	return apierrors.NewNotFound(x.res.GVR.GroupResource(), x.Name)
}

func (x *edit) conflict(err error) error {
	return apierrors.NewConflict(x.res.GVR.GroupResource(), x.Name, err)
}

// otherUID is the error for a write to another object of the same name, with the text
// of a real server's store.
func (x *edit) otherUID(want, have types.UID) error {
	key := "/registry/" + x.res.GVR.Resource
	if x.res.Custom != nil {
		key = "/registry/" + x.res.GVR.Group + "/" + x.res.GVR.Resource
	}
	if x.res.Namespaced {
		key += "/" + x.Namespace
	}
	return x.conflict(fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s/%s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s", key, x.Name, want, have))
}
