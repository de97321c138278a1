package wire

import (
	"encoding/binary"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A protobuf object is "k8s", a zero and a message runtime.Unknown around the
// object's own message; an event is the length of, and the message
// meta.k8s.io/v1 WatchEvent, whose object is such bytes (k8s.io/apimachinery
// v0.37, pkg/runtime/generated.proto, pkg/apis/meta/v1/generated.proto).
const (
	protoPrefix = "k8s\x00"
	// protoTail is the empty contentEncoding and contentType.
	protoTail = "\x1a\x00\x22\x00"

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

func protoTypeMeta(tm metav1.TypeMeta) []byte {
	var inner []byte
	for i, s := range []string{tm.APIVersion, tm.Kind} {
		inner = append(inner, byte(i+1)<<3|2)
		inner = binary.AppendUvarint(inner, uint64(len(s)))
		inner = append(inner, s...)
	}
	head := append([]byte(protoPrefix), tagTypeMeta)
	head = binary.AppendUvarint(head, uint64(len(inner)))
	return append(head, inner...)
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

// protoBare returns the object's own message.
func (e *encoder) protoBare(object []byte) []byte {
	rest := object[len(e.proto)+1:]
	size, n := binary.Uvarint(rest)
	return rest[n : n+int(size)]
}

func appendProtoEvent(dst []byte, t watch.EventType, object []byte) []byte {
	raw := 1 + uvarintLen(len(object)) + len(object)
	size := 2 + len(t) + 1 + uvarintLen(raw) + raw
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

func uvarintLen(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}
