package patch

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

// matchVersion implements optimistic concurrency: a write of another version is a
// conflict. A write without a version gets the current one, except for resources that
// require one.
func (x *edit) matchVersion(m, old object) error {
	switch v := m.GetResourceVersion(); {
	case v == old.GetResourceVersion():
		return nil
	case v != "" && v != "0":
		return x.conflict(errModified)
	case rulesOf(x.res).insistOnVersion:
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

// asStatus converts an error to an API status. Other errors become 500 with their
// text, as in a real server.
func asStatus(err error) error {
	var status apierrors.APIStatus
	if err == nil || errors.As(err, &status) {
		return err
	}
	return plain(err.Error())
}

// plain is an error without a reason.
func plain(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: message,
	}}
}

// unsupported is the error for a content type that is not accepted.
func unsupported(accepted []string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// unprocessable is the error for a patch that does not fit its object. Like a real
// server's, it hides the message.
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
