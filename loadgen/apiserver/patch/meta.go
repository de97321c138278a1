package patch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"watchlab/loadgen/apiserver/resources"
)

// errModified is what a client that lost a race is told.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// wipeSystemFields drops what only the system sets on a new object.
func wipeSystemFields(m metav1.Object) {
	m.SetCreationTimestamp(metav1.Time{})
	m.SetUID("")
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
}

// keepSystemFields puts back what an update can't change.
func keepSystemFields(m, old metav1.Object) {
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

// matchNamespace sets the namespace of the URL where the object has none, and
// refuses another one. Resources without namespaces lose what they have.
func matchNamespace(res *resources.Resource, m metav1.Object, namespace string) error {
	switch {
	case !res.Namespaced:
		m.SetNamespace("")
	case m.GetNamespace() == "":
		m.SetNamespace(namespace)
	case m.GetNamespace() != namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// matchName refuses an object whose name isn't the URL's.
func matchName(m metav1.Object, req Request) error {
	switch m.GetName() {
	case req.Name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", req.Name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), req.Name))
}

// matchVersion is optimistic concurrency: a write that names a version is of
// that version or nothing. One that names none gets the current one, except
// for the resources that insist.
func matchVersion(res *resources.Resource, m, old metav1.Object, req Request) error {
	switch m.GetResourceVersion() {
	case old.GetResourceVersion():
		return nil
	case "", "0":
		if rulesOf(res).insistOnVersion {
			kind := schema.GroupKind{Group: res.GVR.Group, Kind: res.GVR.Resource}
			err := field.Invalid(field.NewPath("metadata", "resourceVersion"), uint64(0), "must be specified for an update")
			return apierrors.NewInvalid(kind, req.Name, field.ErrorList{err})
		}
		m.SetResourceVersion(old.GetResourceVersion())
		return nil
	}
	return conflict(res, req.Name, errModified)
}

// dedupOwners drops owner references that are there twice, with a warning that
// says when a real server would have seen it.
func dedupOwners(m metav1.Object, when string, result *Result) {
	refs := m.GetOwnerReferences()
	var kept []metav1.OwnerReference
	var dropped []string
	for _, ref := range refs {
		if slices.ContainsFunc(kept, func(k metav1.OwnerReference) bool { return apiequality.Semantic.DeepEqual(k, ref) }) {
			dropped = append(dropped, string(ref.UID))
			continue
		}
		kept = append(kept, ref)
	}
	if len(dropped) > 0 {
		m.SetOwnerReferences(kept)
		result.Warnings = append(result.Warnings, ".metadata.ownerReferences contains duplicate entries"+when+"; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "+strings.Join(dropped, ", "))
	}
}

// Names are at most 63 bytes; a generated one has five at its end.
const (
	longestName   = 63
	longestSuffix = 5
)

// generatedName puts a suffix on what fits of a base.
func generatedName(base, suffix string) string {
	return base[:min(len(base), longestName-longestSuffix)] + suffix
}

// emptied tells whether an update took the last finalizer of an object that
// waits to be deleted.
func emptied(m, old metav1.Object) bool {
	if len(m.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// same tells whether two objects are equal, the times of managed fields apart.
func same(obj, live runtime.Object) bool {
	m, err := accessor(obj)
	if err != nil {
		return false
	}
	old, err := accessor(live)
	if err != nil {
		return false
	}
	entries := m.GetManagedFields()
	if !slices.EqualFunc(entries, old.GetManagedFields(), sameButTime) {
		return false
	}
	m.SetManagedFields(old.GetManagedFields())
	equal := apiequality.Semantic.DeepEqual(obj, live)
	m.SetManagedFields(entries)
	return equal
}

func sameButTime(a, b metav1.ManagedFieldsEntry) bool {
	a.Time, b.Time = nil, nil
	return apiequality.Semantic.DeepEqual(a, b)
}

// stampManagers sets the editor's time where apimachinery, which has no clock
// to be set, put its own: on the entries of the manager that writes. Those of
// the others have the time that they had.
func (e *Editor) stampManagers(m, old metav1.Object) {
	entries := m.GetManagedFields()
	if len(entries) == 0 {
		return
	}
	var before []metav1.ManagedFieldsEntry
	if old != nil {
		before = old.GetManagedFields()
	}
	now := metav1.NewTime(e.opts.Now()).Rfc3339Copy()
	stamped := slices.Clone(entries)
	for i := range stamped {
		s := &stamped[i]
		kept := slices.ContainsFunc(before, func(b metav1.ManagedFieldsEntry) bool {
			return b.Manager == s.Manager && b.Operation == s.Operation && b.APIVersion == s.APIVersion &&
				b.Subresource == s.Subresource && b.Time.Equal(s.Time)
		})
		// apimachinery gives none to a manager that applied what was there.
		if !kept && s.Time != nil {
			s.Time = &now
		}
	}
	m.SetManagedFields(stamped)
}
