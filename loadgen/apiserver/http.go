package apiserver

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		writeError(w, r, apierrors.NewServiceUnavailable("the server is closed"))
		return
	}
	defer s.handlers.Done()
	if err := s.route(w, r); err != nil {
		writeError(w, r, err)
	}
}

// route finds what the path stands for and serves it. An error means that
// nothing was written yet.
func (s *Server) route(w http.ResponseWriter, r *http.Request) error {
	path := r.URL.Path
	if resources.Handles(path) {
		s.discovery.ServeHTTP(w, r)
		return nil
	}
	switch strings.TrimSuffix(path, "/") {
	case "/healthz", "/livez", "/readyz":
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return notAllowed()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return nil
	}
	t, ok := s.target(path)
	switch {
	case ok:
		return s.serve(w, r, t)
	case s.ownGroup(path):
		return notFound()
	default:
		// What a real server has no group for, its mux answers, and so do groups
		// of custom resources.
		http.Error(w, "404 page not found", http.StatusNotFound)
		return nil
	}
}

// ownGroup tells whether a path is in a group of the server's own kinds.
func (s *Server) ownGroup(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api":
		return true
	case parts[0] != "apis" || len(parts) < 2:
		return false
	}
	for _, res := range s.registry.All() {
		if res.GVR.Group == parts[1] && res.Custom == nil {
			return true
		}
	}
	return false
}

// writeObject answers with an object in the form that was negotiated.
func writeObject(w http.ResponseWriter, code int, v *view, form wire.Form, o runtime.Object) error {
	body, err := v.kind.AppendObject(nil, form, o)
	if err != nil {
		return err
	}
	writeBody(w, code, form, body)
	return nil
}

// writeAny answers with an object that brings its kind along.
func writeAny(w http.ResponseWriter, code int, form wire.Form, o runtime.Object) error {
	body, err := wire.AppendAny(nil, form.Media(), o)
	if err != nil {
		return err
	}
	writeBody(w, code, form, body)
	return nil
}

func writeBody(w http.ResponseWriter, code int, form wire.Form, body []byte) {
	body = append(body, wire.EndsObject(form.Media())...)
	w.Header().Set("Content-Type", form.ContentType())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	// Where this fails, the client is gone, and there is nobody to tell.
	_, _ = w.Write(body)
}

// warn adds what the client's user should see.
func warn(w http.ResponseWriter, warnings []string) {
	for _, text := range warnings {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
}

func notFound() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotFound,
		Reason:  metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource",
		Details: &metav1.StatusDetails{},
	}}
}

// notAllowed refuses a method. Which there are, a real server doesn't say either.
func notAllowed() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusMethodNotAllowed,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: "the server does not allow this method on the requested resource",
		Details: &metav1.StatusDetails{},
	}}
}

func notAcceptable() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusNotAcceptable,
		Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " +
			strings.Join([]string{wire.ContentJSON, wire.ContentProtobuf, wire.ContentCBOR}, ", "),
	}}
}

// writeError answers with the error's status.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	// An error is told to those, too, who wouldn't take it.
	form, nerr := wire.Negotiate(r.Header.Values("Accept"), wire.Offer{Whole: true})
	if nerr != nil {
		form = wire.FormOf(wire.JSON, wire.Object)
	}
	body, err := wire.AppendStatus(nil, form.Media(), status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeBody(w, int(status.Code), form, body)
}

// statusOf returns the status that tells of an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
	case errors.Is(err, wire.ErrEncoding):
		// As for an object that has no protobuf.
		errors.As(notAcceptable(), &known)
	default:
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}
