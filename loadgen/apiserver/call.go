package apiserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/wire"
)

// call serves a request of the server's own, without a connection, whatever is
// wrapped around the handler.
func (s *Server) call(method, path string, body []byte) error {
	r := &http.Request{
		Method: method, URL: &url.URL{Path: path}, Header: http.Header{
			"Content-Type": {wire.ContentJSON}, "User-Agent": {"watchlab"},
		},
		Body: closer{bytes.NewReader(body)},
	}
	w := &recorder{header: http.Header{}, code: http.StatusOK}
	s.ServeHTTP(w, r)
	if w.code < http.StatusBadRequest {
		return nil
	}
	status := &apierrors.StatusError{}
	if err := json.Unmarshal(w.body.Bytes(), &status.ErrStatus); err != nil {
		return err
	}
	if status.ErrStatus.Status != metav1.StatusFailure {
		return apierrors.NewInternalError(errAnswer)
	}
	return status
}

type answerError struct{}

func (answerError) Error() string { return "the answer is an error without a status" }

var errAnswer = answerError{}

type closer struct{ *bytes.Reader }

func (closer) Close() error { return nil }

// recorder keeps an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

func decodeManifest(manifest []byte, into any) error {
	return yaml.UnmarshalStrict(manifest, into)
}
