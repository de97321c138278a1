package fault

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"

	"github.com/fxamacker/cbor/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cbordirect "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
)

// encoding is the encoding of a watch's frames.
type encoding struct{ wire.Media }

// encodingOf reads a Content-Type or an Accept header; JSON if there is no known type.
func encodingOf(header string) encoding {
	form, _ := wire.Negotiate([]string{header}, wire.Offer{Stream: true})
	return encoding{form.Media()}
}

// next returns the length of the first frame of b, or of b if it has no whole frame.
func (e encoding) next(b []byte) int {
	switch e.Media {
	case wire.Protobuf:
		if len(b) >= 4 {
			if n := 4 + int64(binary.BigEndian.Uint32(b)); n <= int64(len(b)) {
				return int(n)
			}
		}
	case wire.CBOR:
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
	for n := e.next(b); n < len(b); n = e.next(b) {
		b = b[n:]
	}
	return b
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
	if e.Media == wire.JSON {
		n--
	}
	if n < 2 {
		return start
	}
	return start + 1 + rng.IntN(n-1)
}

// frame encodes an event of an object with its kind.
func (e encoding) frame(t watch.EventType, o runtime.Object) ([]byte, error) {
	object, err := wire.AppendAny(nil, e.Media, o)
	return wire.AppendEvent(nil, e.Media, t, object), err
}

// garbage holds frames that do not parse.
var garbage = map[wire.Media][]string{
	wire.JSON: {
		`{"type":"MODIFIED","object":{"kind":"Pod",}}` + "\n",
		`{"type":"ADDED","object":{"metadata":{"name":"x"` + "\n}}}}\n",
		"<html><body>502 Bad Gateway</body></html>\n",
	},
	wire.Protobuf: {
		"\x00\x00\x00\x06\x0a\x7fADDE", // a string beyond the end of the frame
		"\x00\x00\x00\x03\x07\x07\x07", // an undefined wire type
		"\x00\x00\x00\x02\xff\xff",     // a tag without end
	},
	wire.CBOR: {
		"\x1c",                 // a reserved argument
		"\xa1\x64type\xfe",     // a reserved value
		"\xa1\x01\x82\xff\xff", // a break outside an item of indefinite length
	},
}

// garbage returns one of them.
func (e encoding) garbage(rng *rand.Rand) []byte {
	return []byte(garbage[e.Media][rng.IntN(len(garbage[e.Media]))])
}

// position is the type of an event and the metadata of its object.
type position struct {
	typ  watch.EventType
	meta metav1.PartialObjectMetadata
}

var errFrame = errors.New("no object of Kubernetes")

// read decodes the position of a frame.
func (e encoding) read(frame []byte) (p position, err error) {
	var event metav1.WatchEvent
	switch e.Media {
	case wire.Protobuf:
		if len(frame) < 4 {
			return p, errFrame
		}
		if err := event.Unmarshal(frame[4:]); err != nil {
			return p, err
		}
		raw, ok := bytes.CutPrefix(event.Object.Raw, []byte("k8s\x00"))
		if !ok {
			return p, errFrame
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(raw); err != nil {
			return p, err
		}
		// The metadata is field 1 of every kind.
		err = p.meta.Unmarshal(unknown.Raw)
		p.meta.APIVersion, p.meta.Kind = unknown.APIVersion, unknown.Kind
	case wire.CBOR:
		if err := cbordirect.Unmarshal(frame, &event); err != nil {
			return p, err
		}
		// Decoding is strict, and the object has more fields.
		var fields map[string]any
		if err := cbordirect.Unmarshal(event.Object.Raw, &fields); err != nil {
			return p, err
		}
		only := map[string]any{"apiVersion": fields["apiVersion"], "kind": fields["kind"], "metadata": fields["metadata"]}
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(only, &p.meta)
	default:
		if err := json.Unmarshal(frame, &event); err != nil {
			return p, err
		}
		err = json.Unmarshal(event.Object.Raw, &p.meta)
	}
	p.typ = watch.EventType(event.Type)
	return p, err
}

// isBookmark reports whether a frame is a bookmark. Each encoding starts with the type.
func isBookmark(frame []byte) bool {
	return bytes.Contains(frame[:min(len(frame), 48)], []byte(watch.Bookmark))
}
