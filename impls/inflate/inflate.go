// Package inflate is the stage that decompresses the body of a watch or list.
//
// Since Kubernetes 1.37 a watch that begins with the state is gzip, in which each flush of the API server is
// a member of its own: on a calm watch, a member an event, without a history of the events before it
// (perFlushGzipWriter in k8s.io/apiserver v0.37.2). Lists above 128 kB are one member. net/http asks for
// gzip, and decompresses it, unless rest.Config.DisableCompression is set.
//
// The variants:
//
//   - clientgo is what net/http does, with compress/gzip.
//   - klauspost is github.com/klauspost/compress/gzip in its place.
//   - members is a decoder for many small members.
//   - none asks the server not to compress.
//
// All variants return the same bytes and, for a damaged body, the same error as net/http.
package inflate

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// The names of the variants.
const (
	ClientGo  = "clientgo"
	Klauspost = "klauspost"
	Members   = "members"
	None      = "none"
)

// Transport returns base with bodies that the variant decompresses.
func Transport(variant string, base http.RoundTripper) (http.RoundTripper, error) {
	switch variant {
	case ClientGo:
		return base, nil
	case Klauspost:
		return &transport{base: base, encoding: "gzip", reader: klauspost}, nil
	case Members:
		return &transport{base: base, encoding: "gzip", reader: func(r io.Reader) io.Reader { return newMembers(r) }}, nil
	case None:
		return &transport{base: base, encoding: "identity"}, nil
	}
	return nil, fmt.Errorf("inflate: unknown variant %q", variant)
}

// transport does what http.Transport does with gzip, with another reader.
type transport struct {
	base     http.RoundTripper
	encoding string
	reader   func(io.Reader) io.Reader
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Accept-Encoding") != "" || req.Header.Get("Range") != "" || req.Method == http.MethodHead {
		return t.base.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", t.encoding)
	resp, err := t.base.RoundTrip(req)
	if err != nil || t.reader == nil || !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return resp, err
	}
	resp.Body = &body{Closer: resp.Body, Reader: t.reader(resp.Body)}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	return resp, nil
}

type body struct {
	io.Reader
	io.Closer
}

// klauspost returns a reader that takes the first header when it is read, as net/http does.
func klauspost(r io.Reader) io.Reader { return &lazy{r: r} }

type lazy struct {
	r  io.Reader
	gz *gzip.Reader
}

// Read implements [io.Reader].
func (l *lazy) Read(p []byte) (n int, err error) {
	if l.gz == nil {
		if l.gz, err = gzip.NewReader(l.r); err != nil {
			return 0, err
		}
	}
	return l.gz.Read(p)
}
