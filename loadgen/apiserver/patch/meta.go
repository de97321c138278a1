package patch

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"watchlab/loadgen/apiserver/resources"
)

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

// matchNamespace sets the URL's namespace on an object without one and returns an
// error for another one. It clears the namespace of cluster-scoped objects.
func matchNamespace(res *resources.Resource, m object, namespace string) error {
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

// matchName returns an error if an object's name is not the URL's.
func matchName(m object, req Request) error {
	switch m.GetName() {
	case req.Name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", req.Name))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), req.Name))
}

// matchVersion implements optimistic concurrency: a write of another version is a
// conflict. A write without a version gets the current one, except for resources that
// require one.
func matchVersion(res *resources.Resource, m, old object, req Request) error {
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

// dedupOwners drops duplicate owner references with a warning. when is the phase that
// a real server names.
func dedupOwners(m object, when string, result *Result) {
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

// A generated name has at most 63 bytes, with a suffix of five.
const (
	longestName   = 63
	longestSuffix = 5
)

// generatedName appends a suffix to the base, which it cuts to fit.
func generatedName(base, suffix string) string {
	return base[:min(len(base), longestName-longestSuffix)] + suffix
}

// emptied reports whether an update removed the last finalizer of an object that is
// being deleted.
func emptied(m, old object) bool {
	if len(m.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}

// same reports whether two objects are equal, except for the times of managed fields.
func same(obj, live object) bool {
	entries := obj.GetManagedFields()
	if !slices.EqualFunc(entries, live.GetManagedFields(), sameButTime) {
		return false
	}
	obj.SetManagedFields(live.GetManagedFields())
	equal := apiequality.Semantic.DeepEqual(obj, live)
	obj.SetManagedFields(entries)
	return equal
}

func sameButTime(a, b metav1.ManagedFieldsEntry) bool {
	a.Time, b.Time = nil, nil
	return apiequality.Semantic.DeepEqual(a, b)
}

// stampManagers replaces apimachinery's wall-clock times by the editor's clock. Entries
// that did not change keep their time.
func (e *Editor) stampManagers(m, old object) {
	entries := m.GetManagedFields()
	if len(entries) == 0 {
		return
	}
	var before []metav1.ManagedFieldsEntry
	if old != nil {
		before = old.GetManagedFields()
	}
	now := metav1.NewTime(e.Now()).Rfc3339Copy()
	stamped := slices.Clone(entries)
	for i := range stamped {
		s := &stamped[i]
		kept := slices.ContainsFunc(before, func(b metav1.ManagedFieldsEntry) bool {
			return b.Manager == s.Manager && b.Operation == s.Operation && b.APIVersion == s.APIVersion &&
				b.Subresource == s.Subresource && b.Time.Equal(s.Time)
		})
		// apimachinery sets no time if an apply changes nothing.
		if !kept && s.Time != nil {
			s.Time = &now
		}
	}
	m.SetManagedFields(stamped)
}
