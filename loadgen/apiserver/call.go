package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/loadgen/apiserver/wire"
)

// call serves a request of the server itself, without a connection and without the
// wrapper of the handler.
func (s *Server) call(method, path string, body []byte) error {
	r := &http.Request{
		Method: method, URL: &url.URL{Path: path}, Header: http.Header{
			"Content-Type": {wire.ContentJSON}, "User-Agent": {"watchlab"},
		},
		Body: io.NopCloser(bytes.NewReader(body)),
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
		return apierrors.NewInternalError(errors.New("the answer is an error without a status"))
	}
	return status
}

// recorder records an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
