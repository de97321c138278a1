package decode

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"watchlab/impls"
)

// Decoder decodes the responses of one encoding.
type Decoder interface {
	runtime.Decoder // of objects, of lists, and of the object in a frame of a watch
	// Info has the media type, the serializer and the framing, for a REST client. See [Negotiated].
	Info() runtime.SerializerInfo
	// Watch returns the decoder of the body of a watch response.
	Watch(body io.ReadCloser) watch.Decoder
}

// Encoding names a wire format in the name of a variant.
type Encoding string

// The encodings of the API server.
const (
	JSON     Encoding = "json"
	Protobuf Encoding = "protobuf"
	CBOR     Encoding = "cbor"
)

// MediaType returns the content type of the encoding, or "" for an unknown one.
func (e Encoding) MediaType() string {
	switch e {
	case JSON:
		return runtime.ContentTypeJSON
	case Protobuf:
		return runtime.ContentTypeProtobuf
	case CBOR:
		return runtime.ContentTypeCBOR
	}
	return ""
}

// Options are those of every variant.
type Options struct {
	Encoding Encoding        // of the wire; default: that in the variant's name, or Protobuf
	Scheme   *runtime.Scheme // of the types; default: client-go's
	Table    *Table          // of shared; default: one of its own
}

var registry = impls.NewRegistry[Options, Decoder](impls.Decode)

// Variant is a registered decoder.
type Variant = impls.Variant[Options, Decoder]

// Register adds a variant.
func Register(v Variant) { registry.Register(v) }

// Variants returns the registered variants.
func Variants() []Variant { return registry.Variants() }

// New returns a decoder of the named variant.
func New(name string, o Options) (Decoder, error) { return registry.New(name, o) }

func init() {
	for _, e := range []Encoding{JSON, Protobuf, CBOR} {
		for _, transform := range []bool{false, true} {
			v := Variant{
				Name: "clientgo-" + string(e), Upstream: "k8s.io/client-go v0.37.2", Guarantees: guarantees(impls.Owned, transform),
				Summary: "client-go's serializer for " + string(e),
				New: func(o Options) (Decoder, error) {
					d, err := newCodec(o, e)
					if err == nil && transform {
						d.Decoder = transformed{d.Decoder}
					}
					return d, err
				},
			}
			if transform {
				v.Name += "-transform"
				v.Summary += ", then a transform that strips managed fields"
			}
			Register(v)
		}
	}
	Register(Variant{
		Name: "shared", Guarantees: guarantees(impls.Shared, true),
		Summary: "reuses decoded values of equal wire bytes, and skips managed fields",
		New: func(o Options) (Decoder, error) {
			if o.Encoding == "" {
				o.Encoding = Protobuf
			}
			if o.Encoding != Protobuf {
				return nil, fmt.Errorf("%w: encoding %s: protobuf only", impls.ErrOptions, o.Encoding)
			}
			d, err := newCodec(o, o.Encoding)
			if err != nil {
				return nil, err
			}
			if o.Table == nil {
				o.Table = NewTable(0)
			}
			d.Decoder = newShared(o.Table, d.scheme, transformed{d.Decoder}, true)
			d.info.StreamSerializer.Serializer = events{d.info.StreamSerializer.Serializer}
			return d, nil
		},
	})
}

func guarantees(o impls.Ownership, stripped bool) []impls.Guarantees {
	g := impls.Guarantees{
		Order: impls.OrderTotal, Coalesces: impls.CoalesceNone, Consumers: impls.ManyConsumers, Unlocked: true,
		HandsOver: o, DropIn: "runtime.Decoder",
	}
	if stripped {
		g.Strips = "managedFields"
	}
	return []impls.Guarantees{g}
}

// codec is a decoder for one media type.
type codec struct {
	runtime.Decoder
	scheme *runtime.Scheme
	info   runtime.SerializerInfo
}

// newCodec returns client-go's decoder of typed clients, which clears the kind of an object.
func newCodec(o Options, e Encoding) (*codec, error) {
	if o.Encoding != "" && o.Encoding != e {
		return nil, fmt.Errorf("%w: encoding %s: %s only", impls.ErrOptions, o.Encoding, e)
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	base := codecs(o.Scheme)
	info, ok := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), e.MediaType())
	if !ok || info.StreamSerializer == nil {
		return nil, fmt.Errorf("%w: unknown encoding %q", impls.ErrOptions, e)
	}
	stream := *info.StreamSerializer // shared by the codecs of a scheme
	info.StreamSerializer = &stream
	return &codec{Decoder: base.DecoderToVersion(info.Serializer, nil), scheme: o.Scheme, info: info}, nil
}

func (c *codec) Info() runtime.SerializerInfo {
	info := c.info
	info.Serializer = serving{c.info.Serializer, c}
	return info
}

func (c *codec) Watch(body io.ReadCloser) watch.Decoder {
	frames := c.info.StreamSerializer.Framer.NewFrameReader(body)
	return restwatch.NewDecoder(streaming.NewDecoder(frames, c.info.StreamSerializer.Serializer), c)
}

// serving encodes as client-go and decodes as the decoder.
type serving struct {
	runtime.Encoder
	runtime.Decoder
}

// negotiated offers a decoder to a REST client, beside client-go's for the other media types.
type negotiated struct {
	runtime.NegotiatedSerializer
	d Decoder
}

// Negotiated returns the serializers of client-go with the decoder in the place of that of its
// media type, for [rest.Config.NegotiatedSerializer].
func Negotiated(d Decoder) runtime.NegotiatedSerializer {
	s := scheme.Scheme
	if c, ok := d.(*codec); ok {
		s = c.scheme
	}
	return negotiated{codecs(s), d}
}

func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := n.NegotiatedSerializer.SupportedMediaTypes()
	own := n.d.Info()
	for i := range infos {
		if strings.EqualFold(infos[i].MediaType, own.MediaType) {
			infos[i] = own
		}
	}
	return infos
}

// DecoderToVersion returns the decoder itself: the wrapper of client-go would clear the kind of an
// object that caches share.
func (n negotiated) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	if s, ok := d.(serving); ok {
		return s.Decoder
	}
	return n.NegotiatedSerializer.DecoderToVersion(d, gv)
}

// EncoderForVersion encodes as client-go.
func (n negotiated) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	if s, ok := e.(serving); ok {
		e = s.Encoder
	}
	return n.NegotiatedSerializer.EncoderForVersion(e, gv)
}
