package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/manifest"
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
		s.registry.ServeHTTP(w, r)
		return nil
	}
	switch strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(path, "/"), "/ping"), "/etcd") {
	case "/healthz", "/livez", "/readyz":
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return refused(http.StatusMethodNotAllowed)
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
		return refused(http.StatusNotFound)
	default:
		// In a real server, the mux answers for unknown groups and those of custom resources.
		http.Error(w, "404 page not found", http.StatusNotFound)
		return nil
	}
}

// ownGroup reports whether a path is in a group of built-in resources.
func (s *Server) ownGroup(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] != "apis" || len(parts) < 2 {
		return parts[0] == "api"
	}
	return slices.ContainsFunc(s.registry.All(), func(r *resources.Resource) bool {
		return r.GVR.Group == parts[1] && r.Custom == nil
	})
}

const (
	maxBody     = 3 << 20 // as in a real server
	maxWarnings = 4 << 10 // as in a real server
)

func (req *request) body() ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(req.w, req.http.Body, maxBody))
	if err == nil && strings.Contains(req.http.Header.Get("Content-Type"), "yaml") {
		err = manifest.CheckAliases(b)
	}
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return b, nil
}

// decode reads a body that is no object of the resource (options, a binding, an eviction,
// a review) by its content type. kind is the default kind. Package patch decodes objects.
func (req *request) decode(body []byte, kind schema.GroupVersionKind, into runtime.Object) error {
	media, _, _ := strings.Cut(req.http.Header.Get("Content-Type"), ";")
	media = cmp.Or(strings.TrimSpace(media), runtime.ContentTypeJSON)
	info, ok := runtime.SerializerInfoForMediaType(resources.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return patch.Unsupported(runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR)
	}
	o, got, err := info.Serializer.Decode(body, &kind, into)
	other := err == nil && o != into && got != nil && got.Group == kind.Group
	if (other || runtime.IsNotRegisteredError(err)) && got != nil && got.Kind == kind.Kind && media == runtime.ContentTypeJSON {
		// Generated clients of custom resources send options in the version of their own group; old ones evict in v1beta1.
		o, err = into, json.Unmarshal(body, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if o != into {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is a %s, not a %s", got, kind))
	}
	return nil
}

// decodeQuery reads the parameters of a query as a real server does.
func decodeQuery(raw string, into runtime.Object) error {
	values, err := url.ParseQuery(raw)
	if err == nil {
		err = internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// answer answers with an object of the resource in the negotiated form.
func (req *request) answer(code int, o runtime.Object) error {
	body, err := req.kind.AppendObject(nil, req.form, o)
	if err == nil {
		wire.WriteBody(req.w, code, req.form, body)
	}
	return err
}

// answerWhole answers with an object of any kind, which is set.
func (req *request) answerWhole(code int, o runtime.Object) error {
	form := wire.FormOf(req.form.Media(), wire.Object)
	body, err := wire.AppendAny(nil, form.Media(), o)
	if err == nil {
		wire.WriteBody(req.w, code, form, body)
	}
	return err
}

// succeed answers with a Status, which has the code if the request created something.
func (req *request) succeed(code int, details *metav1.StatusDetails) error {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Details: details,
	}
	if code != http.StatusOK {
		status.Code = int32(code)
	}
	return req.answerWhole(code, status)
}

func warn(w http.ResponseWriter, warnings []string) {
	left := maxWarnings
	for _, text := range warnings {
		if left -= len(text); left < 0 {
			break
		}
		if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
			w.Header().Add("Warning", header)
		}
	}
}

// refused is the error for a path that is not found, or a method that it does not support. Like a real
// server's, it lists no other methods.
func refused(code int) error {
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "", 0, false)
}

func notAcceptable() error {
	return patch.Refused(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join([]string{wire.ContentJSON, wire.ContentProtobuf, wire.ContentCBOR}, ", "))
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	form, _ := wire.Negotiate(r.Header.Values("Accept"), wire.Offer{Whole: true})
	wire.WriteStatus(w, form.Media(), statusOf(err))
}

func statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
	case errors.Is(err, wire.ErrEncoding):
		errors.As(notAcceptable(), &known) // for example an object without protobuf
	default:
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// call serves a request of the server itself, without connection and wrapper.
func (s *Server) call(method, path string, body []byte) error {
	r := &http.Request{
		Method: method, URL: &url.URL{Path: path}, Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{"Content-Type": {wire.ContentJSON}, "User-Agent": {"watchlab"}},
	}
	return s.route(httptest.NewRecorder(), r.WithContext(WithClient(context.Background(), byManifest)))
}
