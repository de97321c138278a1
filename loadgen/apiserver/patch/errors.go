package patch

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func unprocessable(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: "the server rejected our request due to an error in our request", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: message}},
		},
	}}
}

func notFound(res *resources.Resource, req Request) error {
	return apierrors.NewNotFound(res.GVR.GroupResource(), req.Name)
}

func conflict(res *resources.Resource, name string, err error) error {
	return apierrors.NewConflict(res.GVR.GroupResource(), name, err)
}
