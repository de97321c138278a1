// Package inflate is the stage that decompresses the answers of an API server.
//
// Since Kubernetes 1.37 a watch that begins with the state is gzip: each flush of the API server is a gzip member
// of its own, on a calm watch one for each event, without a history of the events before it (perFlushGzipWriter
// in k8s.io/apiserver v0.37.2). A list above 128 kB is one member. net/http asks for gzip and decompresses it,
// unless rest.Config.DisableCompression is set.
//
// All variants return the bytes and the errors of net/http. They return an event before its member ends, since the
// API server flushes the compressor before it closes the member. net/http holds back the last bytes of a member
// without such a flush until the next one begins; members does not. The variants differ in CPU time, and none
// in bytes on the wire.
package inflate

import (
	stdgzip "compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"k8s.io/client-go/rest"

	"watchlab/impls"
)

// Variant is a way to read compressed answers.
type Variant struct {
	Name    string // argument of [Config], unique
	Summary string // the variant in one line

	encoding string                    // value of Accept-Encoding; empty: net/http does all
	reader   func(io.Reader) io.Reader // of a gzip body
}

// Default is the variant that net/http is.
const Default = "clientgo"

// Variants returns the variants, client-go's first.
func Variants() []Variant {
	return []Variant{
		{Name: Default, Summary: "net/http with compress/gzip"},
		{Name: "klauspost", Summary: "github.com/klauspost/compress/gzip in place of compress/gzip", encoding: "gzip", reader: klauspost},
		{Name: "members", Summary: "one decoder, its tables and buffers for all members of a stream", encoding: "gzip",
			reader: func(r io.Reader) io.Reader { return newMembers(r) }},
		{Name: "none", Summary: "asks the server not to compress", encoding: "identity"},
	}
}

// Lookup returns the named variant; an empty name means [Default]. The error wraps [impls.ErrUnknownVariant].
func Lookup(name string) (Variant, error) {
	all := Variants()
	if name == "" {
		return all[0], nil
	}
	if i := slices.IndexFunc(all, func(v Variant) bool { return v.Name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, v := range all {
		names = append(names, v.Name)
	}
	return Variant{}, fmt.Errorf("inflate: %w %q (have %s)", impls.ErrUnknownVariant, name, strings.Join(names, ", "))
}

// NewReader returns a reader of a gzip body, with all its members. Its memory is bounded, whatever the body
// expands to.
func (v Variant) NewReader(body io.Reader) io.Reader {
	if v.reader == nil {
		return lazily(body, func(r io.Reader) (io.Reader, error) { return stdgzip.NewReader(r) })
	}
	return v.reader(body)
}

// Config returns a config whose clients read answers with the variant. Where DisableCompression is set, it
// returns config: its user has asked for answers as they are. config is not changed.
func (v Variant) Config(config *rest.Config) *rest.Config {
	if v.encoding == "" || config.DisableCompression {
		return config
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &transport{base, v} })
	return config
}

// transport does what [http.Transport] does with gzip, with another reader.
type transport struct {
	base http.RoundTripper
	v    Variant
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Accept-Encoding") != "" || req.Header.Get("Range") != "" || req.Method == http.MethodHead {
		return t.base.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", t.v.encoding)
	resp, err := t.base.RoundTrip(req)
	if err != nil || t.v.reader == nil || !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return resp, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{t.v.reader(resp.Body), resp.Body}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	return resp, nil
}

// WrappedRoundTripper serves client-go, which looks for the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }

func klauspost(body io.Reader) io.Reader {
	return lazily(body, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) })
}

// lazily returns a reader that is made when it is first read: before, a watch has no bytes.
func lazily(body io.Reader, open func(io.Reader) (io.Reader, error)) io.Reader {
	return &lazy{body: body, open: open}
}

type lazy struct {
	body io.Reader
	open func(io.Reader) (io.Reader, error)
	r    io.Reader
	err  error
}

// Read implements [io.Reader].
func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil && l.err == nil {
		l.r, l.err = l.open(l.body)
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.r.Read(p)
}
