package patch

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/loadgen/apiserver/resources"
)

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

func notFound(res *resources.Resource, req Request) error {
	return apierrors.NewNotFound(res.GVR.GroupResource(), req.Name)
}

// otherUID is the error for a write to another object of the same name, with the text
// of a real server's store.
func otherUID(res *resources.Resource, req Request, want, have types.UID) error {
	key := "/registry/" + res.GVR.Resource
	if res.Custom != nil {
		key = "/registry/" + res.GVR.Group + "/" + res.GVR.Resource
	}
	if res.Namespaced {
		key += "/" + req.Namespace
	}
	return conflict(res, req.Name, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s/%s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s", key, req.Name, want, have))
}

func conflict(res *resources.Resource, name string, err error) error {
	return apierrors.NewConflict(res.GVR.GroupResource(), name, err)
}
