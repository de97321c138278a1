// Package inflate is the stage that decompresses the answers of an API server.
//
// Since Kubernetes 1.37 a watch that begins with the state is gzip: each flush of the API server is a gzip member
// of its own, on a calm watch one for each event, without a history of the events before it (perFlushGzipWriter
// in k8s.io/apiserver v0.37.2). A list above 128 kB is one member. net/http asks for gzip and decompresses it,
// unless rest.Config.DisableCompression is set.
//
// # What every variant guarantees
//
//   - The bytes of net/http for any valid body, and its bytes and its errors for any other body.
//   - An event before its member ends, since the API server flushes the compressor before it closes the member.
//     net/http holds back the last bytes of a member without such a flush until the next one begins; members
//     does not.
//   - Bounded memory, whatever the body expands to.
//   - A request that sets Accept-Encoding or Range gets its answer as it comes.
//
// The variants differ in CPU time, and none in bytes on the wire.
package inflate

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"watchlab/impls"
)

// Decompressor is how a client asks for compressed answers and reads them.
type Decompressor struct {
	Encoding string // of Accept-Encoding; empty: net/http asks for gzip and decompresses it
	// NewReader returns a reader of a gzip body, with all its members. It is nil if the client asks for none.
	NewReader func(body io.Reader) io.Reader
}

// Options are those of every variant: none.
type Options struct{}

// Variant is a registered decompressor.
type Variant = impls.Variant[Options, Decompressor]

// Default is the variant that net/http is.
const Default = "clientgo"

var registry = impls.NewRegistry[Options, Decompressor](impls.Inflate)

func init() {
	std := func(body io.Reader) io.Reader { return &lazy{body: body} }
	baseline := variant(Default, "net/http with compress/gzip", Decompressor{NewReader: std})
	baseline.Upstream = "net/http"
	Register(baseline)
	Register(variant("members", "one decoder, its tables and buffers for all members of a stream",
		Decompressor{"gzip", func(r io.Reader) io.Reader { return newMembers(r) }}))
	Register(variant("none", "asks the server not to compress", Decompressor{Encoding: "identity"}))
}

func variant(name, summary string, d Decompressor) Variant {
	return Variant{
		Name: name, Summary: summary, New: func(Options) (Decompressor, error) { return d, nil },
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderTotal, Coalesces: impls.CoalesceNone, Bounded: true, Consumers: impls.OneConsumer, Unlocked: true,
			DropIn: "http.RoundTripper",
		}},
	}
}

// Register adds a variant.
func Register(v Variant) { registry.Register(v) }

// Variants returns the registered variants, client-go's first.
func Variants() []Variant { return registry.Variants() }

// New returns the named variant's decompressor.
func New(name string, o Options) (Decompressor, error) { return registry.New(name, o) }

// Config returns a config whose clients read answers with the decompressor. Where DisableCompression is set, it
// returns config: its user has asked for answers as they are. config is not changed.
func (d Decompressor) Config(config *rest.Config) *rest.Config {
	if d.Encoding == "" || config.DisableCompression {
		return config
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &transport{base, d} })
	return config
}

// transport does what [http.Transport] does with gzip, with another reader.
type transport struct {
	base http.RoundTripper
	d    Decompressor
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Accept-Encoding") != "" || req.Header.Get("Range") != "" || req.Method == http.MethodHead {
		return t.base.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", t.d.Encoding)
	resp, err := t.base.RoundTrip(req)
	if err != nil || t.d.NewReader == nil || !strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		return resp, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{t.d.NewReader(resp.Body), resp.Body}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	resp.ContentLength, resp.Uncompressed = -1, true
	return resp, nil
}

// WrappedRoundTripper serves client-go, which looks for the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.base }

// lazy opens a gzip reader when it is first read: before, a watch has no bytes.
type lazy struct {
	body io.Reader
	r    *gzip.Reader
	err  error
}

// Read implements [io.Reader].
func (l *lazy) Read(p []byte) (int, error) {
	if l.r == nil && l.err == nil {
		l.r, l.err = gzip.NewReader(l.body)
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.r.Read(p)
}
