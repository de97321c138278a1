package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

// listBuffer is the size of one write of a list.
const listBuffer = 256 << 10

// WriteList writes a list of objects that [Kind.AppendObject] has encoded in that form,
// which is not a table. The error is that of w, or wraps [ErrEncoding].
func (k *Kind) WriteList(w io.Writer, f Form, m metav1.ListMeta, objects [][]byte) error {
	head, items := newEncoder(k.list, false), &k.objects
	if f.Shape() == Metadata {
		head, items = metadataLists, &k.metadata
	}
	// A failed write sticks to the buffer.
	out := bufio.NewWriterSize(w, listBuffer)
	switch f.Media() {
	case Protobuf:
		size := 0
		for _, o := range objects {
			_, item := items.item(Protobuf, o)
			size += 1 + uvarintLen(len(item)) + len(item)
		}
		own, err := appendMessage(nil, tagListMeta, &m)
		if err != nil {
			return cannot(&m, err)
		}
		_, _ = out.Write(head.proto)
		_ = out.WriteByte(tagRaw)
		_, _ = out.Write(binary.AppendUvarint(nil, uint64(len(own)+size)))
		_, _ = out.Write(own)
	case CBOR:
		own, err := direct.Marshal(m)
		if err != nil {
			return cannot(&m, err)
		}
		_, _ = out.WriteString(cborSelf)
		_ = out.WriteByte(cborMap | 4)
		_, _ = out.Write(head.cbor)
		_, _ = out.Write(cborText(nil, "metadata"))
		_, _ = out.Write(own)
		_, _ = out.Write(cborLength(cborText(nil, "items"), 0x80, len(objects)))
	default:
		own, err := k.jsonListMeta(m)
		if err != nil {
			return cannot(&m, err)
		}
		_, _ = out.Write(head.json)
		_, _ = out.WriteString(`,"metadata":`)
		_, _ = out.Write(own)
		_, _ = out.WriteString(`,"items":[`)
	}
	for i, o := range objects {
		first, rest := items.item(f.Media(), o)
		switch {
		case f.Media() == Protobuf:
			_ = out.WriteByte(tagItem)
			_, _ = out.Write(binary.AppendUvarint(out.AvailableBuffer(), uint64(len(rest))))
		case f.Media() == JSON && i > 0:
			_ = out.WriteByte(',')
		}
		if first != 0 {
			_ = out.WriteByte(first)
		}
		if _, err := out.Write(rest); err != nil {
			return err
		}
	}
	switch f.Media() {
	case Protobuf:
		_, _ = out.WriteString(protoTail)
	case JSON:
		_, _ = out.WriteString("]}\n")
	}
	return out.Flush()
}

// jsonListMeta encodes the metadata of a list. A real server's lists of custom
// resources always have the field continue.
func (k *Kind) jsonListMeta(m metav1.ListMeta) ([]byte, error) {
	own, err := json.Marshal(m)
	if err != nil || m.Continue != "" || !k.untyped {
		return own, err
	}
	return append([]byte(`{"continue":"",`), own[1:]...), nil
}

var metadataLists = newEncoder(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"), false)
