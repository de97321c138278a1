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

// asStatus makes every error an API status: those that have none are answered
// as a real server answers them, with 500 and their text.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return err
	}
	return plain(err.Error())
}

// plain is an error without a reason, which real servers answer now and then.
func plain(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: message,
	}}
}

// unsupported is the error of a content type that isn't among those accepted.
func unsupported(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(accepted, ", "),
	}}
}

// unprocessable is the error of a patch that doesn't fit its object. A real
// server keeps the message to itself.
func unprocessable(message string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", message, 0, false)
}

func notFound(res *resources.Resource, req Request) error {
	return apierrors.NewNotFound(res.GVR.GroupResource(), req.Name)
}

// otherUID is the error of a write to an object of the same name that is
// another one, in the words of a real server's store.
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
