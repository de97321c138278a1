package apiserver

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody is the limit of a real server.
const maxBody = 3 << 20

// body reads the body of the request.
func (req *request) body() ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(req.w, req.http.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	case err != nil:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return b, nil
}

// codecs decode bodies that are not objects of the resource: options, bindings,
// evictions, reviews. Package patch decodes the objects.
var codecs = serializer.NewCodecFactory(scheme.Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

// decode reads a body by its content type. kind is the default kind.
func (req *request) decode(body []byte, kind schema.GroupVersionKind, into runtime.Object) error {
	media := req.http.Header.Get("Content-Type")
	if m, _, err := mime.ParseMediaType(media); err == nil {
		media = m
	}
	if media == "" {
		media = runtime.ContentTypeJSON
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		return refused(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, nil,
			fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s, %s, %s", runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR))
	}
	o, got, err := info.Serializer.Decode(body, &kind, into)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if o != into {
		return apierrors.NewBadRequest(fmt.Sprintf("the body is a %s, not a %s", got, kind))
	}
	return nil
}

// readInto reads the request's body into a typed object.
func (req *request) readInto(into runtime.Object, kind schema.GroupVersionKind) error {
	body, err := req.body()
	if err != nil {
		return err
	}
	return req.decode(body, kind, into)
}
