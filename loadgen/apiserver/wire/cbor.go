package wire

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"
)

// A CBOR object is the tag of self-described CBOR and a map. An event is the tag and a
// map of type and object (KEP 4222).
const (
	cborSelf = "\xd9\xd9\xf7"
	cborMap  = 0xa0
	// cborShort is the maximum number of entries of a map with a head of one byte.
	cborShort = 23
)

// cborText appends a string.
func cborText(dst []byte, s string) []byte {
	return append(cborLength(dst, 0x60, len(s)), s...)
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

func cborTypeMeta(tm metav1.TypeMeta) []byte {
	b := cborText(cborText(nil, "kind"), tm.Kind)
	return cborText(cborText(b, "apiVersion"), tm.APIVersion)
}

func cborHead(t watch.EventType) []byte {
	b := append([]byte(cborSelf), cborMap|2)
	b = cborText(cborText(b, "type"), string(t))
	return cborText(b, "object")
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

// cborItem appends the object without the tag and, unless items keep it, the kind.
func (e *encoder) cborItem(dst, object []byte) []byte {
	object = object[len(cborSelf):]
	if e.keeps {
		return append(dst, object...)
	}
	dst = append(dst, object[0]-2)
	return append(dst, object[1+len(e.cbor):]...)
}
