package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// contentJSON is all that the server speaks.
const contentJSON = "application/json"

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		writeError(w, apierrors.NewServiceUnavailable("the server is closed"))
		return
	}
	defer s.handlers.Done()
	if err := s.route(w, r); err != nil {
		writeError(w, err)
	}
}

// route finds what the path stands for and serves it. An error means that
// nothing was written yet.
func (s *Server) route(w http.ResponseWriter, r *http.Request) error {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if health := path == "/healthz" || path == "/livez" || path == "/readyz"; health {
		if err := onlyGet(w, r); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
		return nil
	}
	doc := s.discover(path)
	target, isResource := s.target(path)
	switch {
	case doc == nil && !isResource:
		return notFound()
	case !acceptsJSON(r.Header.Values("Accept")):
		return notAcceptable()
	}
	if err := onlyGet(w, r); err != nil {
		return err
	}
	if doc != nil {
		return writeJSON(w, http.StatusOK, doc)
	}
	q, err := s.parseQuery(r.URL.RawQuery, target)
	switch {
	case err != nil:
		return err
	case target.name != "":
		return s.get(w, target, q)
	case q.opts.Watch:
		return s.watch(w, r, q)
	default:
		return s.list(w, q)
	}
}

// target is what a path below the storm's resource names.
type target struct {
	// namespace is empty for all namespaces, or a resource without.
	namespace string
	// name is empty for the collection.
	name string
}

// prefix returns the path of the storm's group and version.
func (s *Server) prefix() string {
	gv := s.storm.Resource.GroupVersion()
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// target reads a path; it returns false where that isn't of the storm's
// resource.
func (s *Server) target(path string) (target, bool) {
	rest, ok := strings.CutPrefix(path, s.prefix()+"/")
	if !ok {
		return target{}, false
	}
	parts := strings.Split(rest, "/")
	for _, p := range parts {
		if p == "" {
			return target{}, false
		}
	}
	var t target
	if s.namespaced && len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace = parts[1]
		parts = parts[2:]
	}
	if parts[0] != s.storm.Resource.Resource {
		return target{}, false
	}
	switch {
	case len(parts) == 1:
		return t, true
	case len(parts) == 2 && s.namespaced == (t.namespace != ""):
		t.name = parts[1]
		return t, true
	default:
		return target{}, false
	}
}

// get serves one object.
func (s *Server) get(w http.ResponseWriter, t target, q *query) error {
	at, err := s.stream.ListAt(q.opts.ResourceVersion, "")
	if err != nil {
		return err
	}
	key := storm.ObjectKey(t.namespace, t.name)
	events := s.stream.Events(0, at)
	for i := len(events) - 1; i >= 0; i-- {
		if e := &events[i]; e.Key == key {
			if e.Type == watch.Deleted {
				break
			}
			w.Header().Set("Content-Type", contentJSON)
			_, _ = w.Write(s.frames.object(int32(i), e.Type))
			return nil
		}
	}
	return apierrors.NewNotFound(s.storm.Resource.GroupResource(), t.name)
}

// onlyGet refuses what isn't a read.
func onlyGet(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodGet {
		return nil
	}
	w.Header().Set("Allow", http.MethodGet)
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusMethodNotAllowed,
		Reason:  metav1.StatusReasonMethodNotAllowed,
		Message: fmt.Sprintf("%s is not supported: the simulated API server is read-only", r.Method),
	}}
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

func notAcceptable() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + contentJSON,
	}}
}

// acceptsJSON reports whether the Accept headers allow for plain JSON: not for
// JSON as something else, such as a table.
func acceptsJSON(headers []string) bool {
	if len(headers) == 0 {
		return true
	}
	for _, clause := range strings.Split(strings.Join(headers, ","), ",") {
		if strings.TrimSpace(clause) == "" {
			continue
		}
		media, params, err := mime.ParseMediaType(clause)
		if err != nil || (media != contentJSON && media != "application/*" && media != "*/*") {
			continue
		}
		if q, ok := params["q"]; ok {
			if v, err := strconv.ParseFloat(q, 64); err != nil || v <= 0 {
				continue
			}
		}
		if params["as"] == "" {
			return true
		}
	}
	return false
}

// writeError answers with the error's status.
func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	// Where this fails, the client is gone.
	_ = writeJSON(w, int(status.Code), status)
}

// statusOf returns the status that tells of an error.
func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// writeJSON answers with an object.
func writeJSON(w http.ResponseWriter, code int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
	return nil
}
