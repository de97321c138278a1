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

// route serves a path. On an error nothing was written.
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
		// In a real server, the mux answers for unknown groups and for groups of
		// custom resources.
		http.Error(w, "404 page not found", http.StatusNotFound)
		return nil
	}
}

// ownGroup reports whether a path is in a group of built-in resources.
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

// writeObject answers with an object in the negotiated form.
func writeObject(w http.ResponseWriter, code int, v *view, form wire.Form, o runtime.Object) error {
	body, err := v.kind.AppendObject(nil, form, o)
	if err != nil {
		return err
	}
	writeBody(w, code, form, body)
	return nil
}

// writeAny answers with an object of any kind.
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
	_, _ = w.Write(body) // fails if the client is gone
}

// warn adds Warning headers.
func warn(w http.ResponseWriter, warnings []string) {
	for _, text := range warnings {
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
}

// refused returns an error with the given status.
func refused(code int32, reason metav1.StatusReason, details *metav1.StatusDetails, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: details,
	}}
}

func notFound() error {
	return refused(http.StatusNotFound, metav1.StatusReasonNotFound, &metav1.StatusDetails{}, "the server could not find the requested resource")
}

// notAllowed is the error for a method that a path does not support. Like a real
// server's, it lists no other methods.
func notAllowed() error {
	return refused(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, &metav1.StatusDetails{}, "the server does not allow this method on the requested resource")
}

func notAcceptable() error {
	return refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, nil,
		"only the following media types are accepted: "+strings.Join([]string{wire.ContentJSON, wire.ContentProtobuf, wire.ContentCBOR}, ", "))
}

// writeError answers with the error's status.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	// A client that accepts no known form gets JSON.
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

// statusOf returns the status of an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
	case errors.Is(err, wire.ErrEncoding):
		// For example an object without protobuf.
		errors.As(notAcceptable(), &known)
	default:
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}
