// Package decode defines the first stage of an informer, from the bytes of a response to objects:
// the contract, its options and the variants.
//
// The contract is client-go's (v0.37): a [Decoder] is a [runtime.Decoder] of objects and lists, and
// makes the [watch.Decoder] of a watch.
//
// # Where a decoder goes in
//
// client-go takes its decoders from [rest.Config.NegotiatedSerializer]. A REST client asks that for
// the serializers of the response's media type, and decodes a list with DecoderToVersion (Request.Do
// and Result.Into). A watch takes the framer and the serializer of frames (StreamSerializer) too,
// in Request.newStreamWatcher. These put a decoder there:
//
//  1. [NewListWatch] is a [cache.ListerWatcher] with the decoder, for cache.NewReflector,
//     cache.NewSharedIndexInformer and SharedInformerFactory.InformerFor.
//  2. [NewRESTClient] is the REST client of a group. A typed client is made of it, by New of its
//     package, such as k8s.io/client-go/kubernetes/typed/core/v1, and a dynamic client by dynamic.New,
//     with a decoder that has the option Unstructured.
//  3. [Decoder.Watch] reads frames from anything.
//
// A server may answer in another encoding than the client prefers. The content type of the answer
// chooses the decoder: the variant's in that encoding, or client-go's with the same transform. What is
// not a list is an error of a list, where client-go's clients read an empty one, which tells an
// informer to delete all that it has.
//
// kubernetes.NewForConfig, dynamic.NewForConfig and controller-runtime's cache (v0.25.2,
// apiutil.RESTClientForGVK) overwrite NegotiatedSerializer, so their clients take no decoder.
// [Intercept] lets a ListerWatcher of such a client decode.
//
// # What every variant guarantees
//
//   - The object, or the error, is that of client-go's decoder for generated clients, or with the
//     option Unstructured for dynamic clients, for any input. Objects of Go types have no TypeMeta, as
//     there. Variants whose guarantees say Strips lack metadata.managedFields of the object itself, as
//     after the usual transform of an informer. They still refuse what client-go refuses there.
//   - The objects of a watch come in order.
//   - The input is not kept: objects do not point into it.
//   - A decoder serves several goroutines and several responses at once.
//   - No input ends the process. A panic of shared would be a bug: it is recovered, logged
//     and counted in [Table.Panics], and client-go's decoder decodes the object.
//
// # Who may change an object
//
// With every decoder but shared-readonly, what somebody writes to an object shows in no other object,
// whatever it is: a map, a slice in place or its room, what a pointer leads to.
//
//	                  a transform   a handler or lister   a caller of Get, Create, Update, Patch
//	clientgo-…        may           must not              may
//	shared            may           must not              may
//	shared-readonly   refused       must not              refused
//
// A handler must not change an object with client-go either: the cache and the other handlers have
// the same object. A handler that does harms this object alone, but with shared-readonly other objects,
// of other kinds and informers too, and it can end the process ("concurrent map iteration and map
// write"). DeepCopy an object to change it.
//
// # shared
//
// A watch sends much that it has sent before. The decoder cuts the bytes of an object at the borders
// of its groups: a message, an element of a list, or all of a list or map. A group whose bytes a
// [Table] has is not decoded: in JSON the object gets a copy of the value that was decoded before. Private
// objects in protobuf are decoded all, without groups: a copy costs as much as to decode. Each has one
// string of its bytes after the managed fields, and its strings are parts of it: who keeps one of them keeps
// all. Strings of the metadata are separate. The cuts come from the protobuf or json tags of the Go types, so
// every built-in kind has them. Places where groups do not repeat are learned.
//
// The copy is made by a plan of the type (type copier). Objects have the bytes of strings in common,
// which Go cannot change. Maps, slices and the targets of pointers are the object's own, and a copied
// slice has no room, so that an append to it copies. The values in the table are never handed out: a
// group that the table keeps is decoded to memory of the table's own, and the object gets a copy, the
// first one too. A list again, unchanged, makes new objects, as with client-go.
//
// JSON is checked and indexed once: the index has the ends of all objects and arrays, so that a known
// group is found without reading it again. The framer of a watch does that too, and hands on the
// object alone, before or after its type in the frame. What is unusual is left to client-go's decoder,
// with all of the object: a field that occurs twice, an escape in the name of a field, a value of another
// type, more than 200 levels.
//
// With [Options.Unstructured] the decoder makes unstructured objects of JSON, as client-go's dynamic
// client does: maps, slices and numbers of int64 or float64, and the few kinds that the dynamic client
// knows, such as Status, as Go types. Every object and array below the metadata is a group.
//
// Bounds: the groups of a Table take at most [DefaultTableBytes] or what [NewTable] is given, counted
// in memory, and none takes more than an eighth; slots, strings and marks take about 1.5 MiB more. A
// decoder remembers at most 64 KiB of names of kinds. A table takes its memory at the first group.
//
// The worst case is objects of which nothing repeats: see the storms distinct-N of BenchmarkDecode. In
// protobuf shared-readonly then hashes only large groups and a sample of the objects, chosen by their UID, and leaves the parts of a large group to the generated code. What
// repeats later is found in the sample.
//
// Designs turned down: objects with maps, slices and pointers in common (that is shared-readonly); a
// 128-bit hash instead of the bytes of a group (a collision could show, and comparing costs less than
// a second hash); locked shards of Go maps (an event needs some 20 look-ups, and each is one atomic
// load); groups chosen by kind (they would serve pods alone).
//
// # shared-readonly
//
// It decodes as shared, but objects get the values of the table themselves, not copies. So their slices,
// maps and pointers may be those of other objects: they must not be changed, also not by appending
// within capacity or by Quantity.String, which caches its result in a pointer's target. [NewListWatch]
// and [Intercept] refuse the decoder unless it is marked [Untransformed], for an informer without a
// transform; [NewRESTClient] refuses it. client-go's detector (KUBE_CACHE_MUTATION_DETECTOR) finds a
// violation in each object that it harms, and [Table.CheckMutations] names the type.
// An object that is sent again with the same bytes is a new object.
package decode

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// Info has the media type, the serializer and the framing, for a REST client.
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

// Encodings returns all encodings.
func Encodings() []Encoding { return []Encoding{JSON, Protobuf, CBOR} }

var mediaTypes = map[Encoding]string{
	JSON: runtime.ContentTypeJSON, Protobuf: runtime.ContentTypeProtobuf, CBOR: runtime.ContentTypeCBOR,
}

// MediaType returns the content type of the encoding, or "" for an unknown one.
func (e Encoding) MediaType() string { return mediaTypes[e] }

// Options are those of every variant.
type Options struct {
	Encoding Encoding        // of the wire; default: that in the variant's name, or Protobuf
	Scheme   *runtime.Scheme // of the types; default: client-go's
	Table    *Table          // of shared and shared-readonly; default: one of its own
	Observe  func() Observer // returns the observer of a response; nil: none
	// Unstructured decodes JSON to the types of package unstructured, as client-go's dynamic client
	// does, and does not use the Scheme.
	Unstructured bool
}

// encoding returns the encoding of a variant for several.
func (o Options) encoding() Encoding {
	switch {
	case o.Encoding != "":
		return o.Encoding
	case o.Unstructured:
		return JSON
	}
	return Protobuf
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
	for _, e := range Encodings() {
		for _, transform := range []bool{false, true} {
			v := Variant{
				Name: "clientgo-" + string(e), Upstream: "k8s.io/client-go v0.37.2", Guarantees: guarantees(impls.Owned, transform),
				Summary: "client-go's serializer for " + string(e),
				New: func(o Options) (Decoder, error) {
					return newCodec(o, e, func(_ Encoding, _ *runtime.Scheme, clientgo runtime.Decoder) runtime.Decoder {
						if transform {
							return transformed{clientgo}
						}
						return clientgo
					})
				},
			}
			if transform {
				v.Name += "-transform"
				v.Summary += ", then a transform that strips managed fields"
			}
			Register(v)
		}
	}
	for _, readOnly := range []bool{false, true} {
		v := Variant{
			Name: "shared", Guarantees: guarantees(impls.Owned, true),
			Summary: "reads JSON that it has read before as a copy, and skips managed fields; a write to an object shows in no other",
			New:     func(o Options) (Decoder, error) { return newSharedCodec(o, readOnly) },
		}
		if readOnly {
			v.Name, v.Guarantees = "shared-readonly", guarantees(impls.Shared, true)
			v.Summary = "objects share the decoded values of equal wire bytes: a write to one object shows in others; skips managed fields"
		}
		Register(v)
	}
}

// newSharedCodec returns the variant shared, or shared-readonly.
func newSharedCodec(o Options, readOnly bool) (Decoder, error) {
	if o.Encoding = o.encoding(); o.Encoding == CBOR {
		return nil, fmt.Errorf("%w: encoding %s: protobuf or json only", impls.ErrOptions, o.Encoding)
	}
	o.Table = cmp.Or(o.Table, NewTable(0))
	d, err := newCodec(o, o.Encoding, func(e Encoding, types *runtime.Scheme, clientgo runtime.Decoder) runtime.Decoder {
		switch e {
		case JSON:
			return newSharedJSON(o.Table, types, transformed{clientgo}, o.Unstructured, readOnly)
		case Protobuf:
			return newShared(o.Table, types, transformed{clientgo}, readOnly)
		}
		return transformed{clientgo}
	})
	if err != nil {
		return nil, err
	}
	d.readOnly = readOnly
	d.cutFrames(o.Table)
	return d, nil
}

func guarantees(o impls.Ownership, stripped bool) []impls.Guarantees {
	g := impls.Guarantees{
		Order: impls.OrderTotal, Coalesces: impls.CoalesceNone, Bounded: true, Consumers: impls.ManyConsumers, Unlocked: true,
		HandsOver: o, DropIn: "runtime.Decoder", Transform: impls.MayChange, Handler: impls.MustNot, Client: impls.MayChange,
	}
	if o == impls.Shared {
		g.Transform, g.Client = impls.NotOffered, impls.NotOffered
	}
	if stripped {
		g.Strips = "managedFields"
	}
	return []impls.Guarantees{g}
}

// ReadOnly reports whether the objects of a decoder must not be changed, also not by a transform or a
// client, because they share memory with other objects: whether it is a shared-readonly.
func ReadOnly(d Decoder) bool {
	c, ok := d.(*codec)
	return ok && c.readOnly
}

// Untransformed returns the decoder for a ListerWatcher of an informer that has no transform.
// [NewListWatch] and [Intercept] refuse a decoder that is [ReadOnly] without this mark, since they
// cannot see a transform that the informer gets.
func Untransformed(d Decoder) Decoder {
	if ReadOnly(d) {
		c := *d.(*codec)
		c.untransformed = true
		return &c
	}
	return d
}

var errReadOnly = fmt.Errorf("decode: %w: the objects of shared-readonly must not be changed, by a transform or a client (use shared, or mark the decoder Untransformed for an informer without a transform)", impls.ErrOptions)

// changeable returns an error for a decoder of objects that must not be changed.
func changeable(d Decoder) error {
	if ReadOnly(d) && !d.(*codec).untransformed {
		return errReadOnly
	}
	return nil
}

// codec is a decoder for one media type. It has the decoders for the others too: a server need not
// answer in the encoding that a client prefers.
type codec struct {
	runtime.Decoder
	base    runtime.NegotiatedSerializer // of client-go
	infos   []runtime.SerializerInfo     // of all media types; each decodes as the variant
	own     int                          // in infos
	observe func() Observer

	readOnly      bool // the objects share memory
	untransformed bool // see [Untransformed]
}

// newCodec returns a codec whose decoders variant makes of client-go's. Those are of typed clients, and
// clear the kind of an object. An encoding that has no name here, YAML, is "".
func newCodec(o Options, e Encoding, variant func(e Encoding, types *runtime.Scheme, clientgo runtime.Decoder) runtime.Decoder) (*codec, error) {
	if o.Encoding != "" && o.Encoding != e {
		return nil, fmt.Errorf("%w: encoding %s: %s only", impls.ErrOptions, o.Encoding, e)
	}
	if o.Scheme == nil {
		o.Scheme = scheme.Scheme
	}
	c := &codec{base: codecs(o.Scheme), own: -1, observe: o.Observe}
	d := listing{}
	if o.Unstructured {
		o.Scheme, c.base = dynamicScheme(), dynamicCodecs()
		d.list = func() runtime.Object { return &unstructured.UnstructuredList{} }
	}
	for _, info := range c.base.SupportedMediaTypes() {
		d.encoding = encodingOf(info.MediaType)
		d.Decoder = c.base.DecoderToVersion(info.Serializer, nil)
		decoder := variant(d.encoding, o.Scheme, d)
		info.Serializer = serving{info.Serializer, decoder}
		if info.StreamSerializer != nil {
			stream := *info.StreamSerializer // shared by the codecs of a scheme
			info.StreamSerializer = &stream
		}
		if d.encoding == e && info.StreamSerializer != nil {
			c.own, c.Decoder = len(c.infos), decoder
		}
		c.infos = append(c.infos, info)
	}
	if e == "" || c.own < 0 {
		return nil, fmt.Errorf("%w: unknown encoding %q", impls.ErrOptions, e)
	}
	return c, nil
}

func encodingOf(mediaType string) Encoding {
	for _, e := range Encodings() {
		if e.MediaType() == mediaType {
			return e
		}
	}
	return ""
}

// cutFrames makes the frames of a watch give the bytes of their object without a copy.
func (c *codec) cutFrames(t *Table) {
	for _, info := range c.infos {
		switch stream := info.StreamSerializer; encodingOf(info.MediaType) {
		case JSON:
			stream.Serializer, stream.Framer = jsonEvents{stream.Serializer}, jsonFramer{stream.Framer, t}
		case Protobuf:
			stream.Serializer, stream.Framer = events{stream.Serializer}, buffered{stream.Framer}
		}
	}
}

func (c *codec) Info() runtime.SerializerInfo {
	info := c.infos[c.own]
	if c.observe != nil {
		return observed(info, c.observe())
	}
	return info
}

func (c *codec) Watch(body io.ReadCloser) watch.Decoder { return watchOf(c.Info(), body) }

// bodyBuffer is the size of a read of a body. net/http's buffer of 4 kB takes two for a pod.
const bodyBuffer = 64 << 10

// buffered makes a framer read several frames at once, if they are there.
type buffered struct{ runtime.Framer }

func (b buffered) NewFrameReader(body io.ReadCloser) io.ReadCloser {
	return b.Framer.NewFrameReader(struct {
		io.Reader
		io.Closer
	}{bufio.NewReaderSize(body, bodyBuffer), body})
}

// watchOf decodes the body as client-go's REST client does.
func watchOf(info runtime.SerializerInfo, body io.ReadCloser) watch.Decoder {
	frames := info.StreamSerializer.Framer.NewFrameReader(body)
	return restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), info.Serializer)
}

// serving encodes as client-go and decodes as the decoder.
type serving struct {
	runtime.Encoder
	runtime.Decoder
}

// negotiated offers a decoder to a REST client, beside those for the other media types.
type negotiated struct {
	*codec
	d Decoder
}

// serializers returns the serializers of a REST client, for [rest.Config.NegotiatedSerializer]. The
// decoder is that of its media type. A response of another media type is decoded as by the variant in
// that encoding, or as by client-go if the decoder is of another package.
func serializers(d Decoder) runtime.NegotiatedSerializer {
	c, ok := d.(*codec)
	if !ok {
		clientgo, _ := New("clientgo-json", Options{})
		c = clientgo.(*codec)
	}
	return negotiated{c, d}
}

func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	infos, own := slices.Clone(n.infos), n.d.Info()
	for i := range infos {
		if strings.EqualFold(infos[i].MediaType, own.MediaType) {
			infos[i] = own
		}
		if infos[i].MediaType == runtime.ContentTypeCBOR {
			// A watch sends a sequence. client-go knows that if its feature gate ClientsAllowCBOR is on.
			sequence := infos[i]
			sequence.MediaType = runtime.ContentTypeCBORSequence
			infos = append(infos, sequence)
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
	return n.base.DecoderToVersion(d, gv)
}

// EncoderForVersion encodes as client-go.
func (n negotiated) EncoderForVersion(e runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	if s, ok := e.(serving); ok {
		e = s.Encoder
	}
	return n.base.EncoderForVersion(e, gv)
}
