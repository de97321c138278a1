package fault

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"mime"
	"strings"

	"github.com/fxamacker/cbor/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cbordirect "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
)

// encoding is the media type of a watch's frames.
type encoding string

const (
	encodingJSON     encoding = "application/json"
	encodingProtobuf encoding = "application/vnd.kubernetes.protobuf"
	encodingCBOR     encoding = "application/cbor"
)

// encodingOf reads a Content-Type, or the first known type of an Accept.
func encodingOf(mediaTypes string) encoding {
	for _, clause := range strings.Split(mediaTypes, ",") {
		media, _, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		switch media {
		case "application/json":
			return encodingJSON
		case "application/vnd.kubernetes.protobuf":
			return encodingProtobuf
		case "application/cbor", "application/cbor-seq":
			return encodingCBOR
		}
	}
	return encodingJSON
}

func (e encoding) media() wire.Media {
	return map[encoding]wire.Media{encodingProtobuf: wire.Protobuf, encodingCBOR: wire.CBOR}[e] // else JSON
}

// stream is the Content-Type of a watch.
func (e encoding) stream() string { return wire.FormOf(e.media(), wire.Object).StreamType() }

// next returns the length of the first frame of b, or of b if it has no whole frame.
func (e encoding) next(b []byte) int {
	switch e {
	case encodingProtobuf:
		if len(b) >= 4 {
			if n := 4 + int64(binary.BigEndian.Uint32(b)); n <= int64(len(b)) {
				return int(n)
			}
		}
	case encodingCBOR:
		d := cbor.NewDecoder(bytes.NewReader(b))
		if err := d.Skip(); err == nil && d.NumBytesRead() > 0 {
			return d.NumBytesRead()
		}
	default:
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return i + 1
		}
	}
	return len(b)
}

// last returns the last frame of b.
func (e encoding) last(b []byte) []byte {
	if e == encodingJSON {
		return b[bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n')+1:]
	}
	for {
		n := e.next(b)
		if n >= len(b) {
			return b
		}
		b = b[n:]
	}
}

// cut returns a random position inside a frame of b. A JSON frame without its newline
// would still parse.
func (e encoding) cut(b []byte, rng *rand.Rand) int {
	var starts []int
	for at := 0; at < len(b); at += e.next(b[at:]) {
		starts = append(starts, at)
	}
	start := starts[rng.IntN(len(starts))]
	n := e.next(b[start:])
	if e == encodingJSON {
		n--
	}
	if n < 2 {
		return start
	}
	return start + 1 + rng.IntN(n-1)
}

// frame encodes an event of an object with its kind.
func (e encoding) frame(t watch.EventType, o runtime.Object) ([]byte, error) {
	object, err := wire.AppendAny(nil, e.media(), o)
	return wire.AppendEvent(nil, e.media(), t, object), err
}

// garbage returns a frame that does not parse.
func (e encoding) garbage(rng *rand.Rand) []byte {
	var all []string
	switch e {
	case encodingProtobuf:
		all = []string{
			"\x00\x00\x00\x06\x0a\x7fADDE", // a string beyond the end of the frame
			"\x00\x00\x00\x03\x07\x07\x07", // an undefined wire type
			"\x00\x00\x00\x02\xff\xff",     // a tag without end
		}
	case encodingCBOR:
		all = []string{
			"\x1c",                 // a reserved argument
			"\xa1\x64type\xfe",     // a reserved value
			"\xa1\x01\x82\xff\xff", // a break outside an item of indefinite length
		}
	default:
		all = []string{
			`{"type":"MODIFIED","object":{"kind":"Pod",}}` + "\n",
			`{"type":"ADDED","object":{"metadata":{"name":"x"` + "\n}}}}\n",
			"<html><body>502 Bad Gateway</body></html>\n",
		}
	}
	return []byte(all[rng.IntN(len(all))])
}

// position is the type of an event and the metadata of its object.
type position struct {
	typ  watch.EventType
	meta metav1.PartialObjectMetadata
}

// read decodes the position of a frame.
func (e encoding) read(frame []byte) (position, error) {
	var p position
	var event metav1.WatchEvent
	switch e {
	case encodingProtobuf:
		if len(frame) < 4 {
			return p, fmt.Errorf("a frame of %d bytes", len(frame))
		}
		if err := event.Unmarshal(frame[4:]); err != nil {
			return p, err
		}
		raw, ok := bytes.CutPrefix(event.Object.Raw, []byte("k8s\x00"))
		if !ok {
			return p, fmt.Errorf("an object without its prefix")
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(raw); err != nil {
			return p, err
		}
		// The metadata is field 1 of every kind.
		if err := p.meta.Unmarshal(unknown.Raw); err != nil {
			return p, err
		}
		p.meta.APIVersion, p.meta.Kind = unknown.APIVersion, unknown.Kind
	case encodingCBOR:
		if err := cbordirect.Unmarshal(frame, &event); err != nil {
			return p, err
		}
		// Decoding is strict, and the object has more fields.
		var fields map[string]any
		if err := cbordirect.Unmarshal(event.Object.Raw, &fields); err != nil {
			return p, err
		}
		only := map[string]any{"apiVersion": fields["apiVersion"], "kind": fields["kind"], "metadata": fields["metadata"]}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(only, &p.meta); err != nil {
			return p, err
		}
	default:
		if err := json.Unmarshal(frame, &event); err != nil {
			return p, err
		}
		if err := json.Unmarshal(event.Object.Raw, &p.meta); err != nil {
			return p, err
		}
	}
	p.typ = watch.EventType(event.Type)
	return p, nil
}

// bookmark returns a bookmark of the position.
func (e encoding) bookmark(p position) ([]byte, error) {
	o := &metav1.PartialObjectMetadata{TypeMeta: p.meta.TypeMeta}
	o.ResourceVersion = p.meta.ResourceVersion
	return e.frame(watch.Bookmark, o)
}

// isBookmark reports whether a frame is a bookmark. Each encoding starts with the type.
func isBookmark(frame []byte) bool {
	return bytes.Contains(frame[:min(len(frame), 48)], []byte(watch.Bookmark))
}
