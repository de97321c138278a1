package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"
)

// A JSON event is one line:
//
//	{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":…}}⏎
const jsonTail = "}\n"

func appendJSONEvent(dst []byte, t watch.EventType, object []byte) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, t...)
	dst = append(dst, `","object":`...)
	dst = append(dst, object...)
	return append(dst, jsonTail...)
}

// jsonBuffers hold encoded objects before they get their kind.
var jsonBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (e *encoder) appendJSON(dst []byte, o runtime.Object) ([]byte, error) {
	buf := jsonBuffers.Get().(*bytes.Buffer)
	defer jsonBuffers.Put(buf)
	buf.Reset()
	// A real server uses an Encoder, too.
	if err := json.NewEncoder(buf).Encode(bare(o)); err != nil {
		return dst, cannot(o, err)
	}
	object := bytes.TrimRight(buf.Bytes(), "\n")
	if len(object) < 2 || object[0] != '{' {
		return dst, cannot(o, errNotAnObject)
	}
	dst = append(dst, e.json...)
	if !bytes.Equal(object, []byte("{}")) {
		dst = append(dst, ',')
	}
	return append(dst, object[1:]...), nil
}

// A CBOR object is the tag of self-described CBOR and a map. An event is the tag and a
// map of type and object (KEP 4222).
const (
	cborSelf  = "\xd9\xd9\xf7"
	cborMap   = 0xa0
	cborShort = 23 // maximum number of entries of a map with a head of one byte
)

// cborText appends strings.
func cborText(dst []byte, all ...string) []byte {
	for _, s := range all {
		dst = append(cborLength(dst, 0x60, len(s)), s...)
	}
	return dst
}

// cborLength appends the head of an item of that major type.
func cborLength(dst []byte, major byte, n int) []byte {
	switch {
	case n <= cborShort:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return append(dst, major|25, byte(n>>8), byte(n))
	default:
		return append(dst, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
}

func (e *encoder) appendCBOR(dst []byte, o runtime.Object) ([]byte, error) {
	b, err := direct.Marshal(bare(o))
	if err != nil {
		return dst, cannot(o, err)
	}
	// The head of the map stays one byte with two more fields.
	if len(b) == 0 || b[0] < cborMap || b[0] > cborMap+cborShort-2 {
		return dst, cannot(o, errNotAnObject)
	}
	dst = append(dst, cborSelf...)
	dst = append(dst, b[0]+2)
	dst = append(dst, e.cbor...)
	return append(dst, b[1:]...), nil
}

// A protobuf object is "k8s", a zero and a message runtime.Unknown around the object's own message;
// an event is the length of, and the message meta.k8s.io/v1 WatchEvent, whose object is such bytes
// (k8s.io/apimachinery v0.37, pkg/runtime/generated.proto, pkg/apis/meta/v1/generated.proto).
const (
	protoPrefix = "k8s\x00"
	protoTail   = "\x1a\x00\x22\x00" // empty contentEncoding and contentType

	tagTypeMeta = 1<<3 | 2
	tagRaw      = 2<<3 | 2

	tagEventType   = 1<<3 | 2
	tagEventObject = 2<<3 | 2
	tagExtension   = 1<<3 | 2

	tagListMeta = 1<<3 | 2
	tagItem     = 2<<3 | 2
)

var errNoProtobuf = errors.New("it has no protobuf")

// message is the interface of generated types.
type message interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}

func (e *encoder) appendProto(dst []byte, o runtime.Object) ([]byte, error) {
	m, ok := o.(message)
	if !ok {
		return dst, cannot(o, errNoProtobuf)
	}
	dst = append(dst, e.proto...)
	dst, err := appendMessage(dst, tagRaw, m)
	if err != nil {
		return dst, cannot(o, err)
	}
	return append(dst, protoTail...), nil
}

// appendMessage appends a message as a field of another.
func appendMessage(dst []byte, tag byte, m message) ([]byte, error) {
	size := m.Size()
	dst = append(dst, tag)
	dst = binary.AppendUvarint(dst, uint64(size))
	at := len(dst)
	dst = append(dst, make([]byte, size)...)
	_, err := m.MarshalToSizedBuffer(dst[at:])
	return dst, err
}

func appendProtoEvent(dst []byte, t watch.EventType, object []byte) []byte {
	raw := fieldSize(len(object))
	size := 2 + len(t) + fieldSize(raw)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	// All types of events are shorter than 128 bytes.
	dst = append(dst, tagEventType, byte(len(t)))
	dst = append(dst, t...)
	dst = append(dst, tagEventObject)
	dst = binary.AppendUvarint(dst, uint64(raw))
	dst = append(dst, tagExtension)
	dst = binary.AppendUvarint(dst, uint64(len(object)))
	return append(dst, object...)
}

// fieldSize returns the size of a field of n bytes, with its tag of one byte.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }
