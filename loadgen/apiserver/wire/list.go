package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

const listBuffer = 256 << 10 // the size of one write of a list

// WriteList writes a list of objects that [Kind.AppendObject] has encoded in that form,
// which is not a table. The error is that of w, or wraps [ErrEncoding].
func (k *Kind) WriteList(w io.Writer, f Form, m metav1.ListMeta, objects [][]byte) error {
	head, items := newEncoder(k.list, false), &k.objects
	if f.Shape() == Metadata {
		head, items = metadataLists, &k.metadata
	}
	var start []byte
	switch f.Media() {
	case Protobuf:
		size := 0
		for _, o := range objects {
			_, item := items.item(Protobuf, o)
			size += fieldSize(len(item))
		}
		own, err := appendMessage(nil, tagListMeta, &m)
		if err != nil {
			return cannot(&m, err)
		}
		start = slices.Concat(head.proto, []byte{tagRaw}, binary.AppendUvarint(nil, uint64(len(own)+size)), own)
	case CBOR:
		own, err := direct.Marshal(m)
		if err != nil {
			return cannot(&m, err)
		}
		items := cborLength(cborText(nil, "items"), 0x80, len(objects))
		start = slices.Concat([]byte(cborSelf), []byte{cborMap | 4}, head.cbor, cborText(nil, "metadata"), own, items)
	default:
		own, err := json.Marshal(m)
		if err != nil {
			return cannot(&m, err)
		}
		if m.Continue == "" && k.objects.keeps { // A real server's lists of custom resources always have the field.
			own = append([]byte(`{"continue":"",`), own[1:]...)
		}
		start = slices.Concat(head.json, []byte(`,"metadata":`), own, []byte(`,"items":[`))
	}
	out := bufio.NewWriterSize(w, listBuffer) // a failed write sticks to it
	_, _ = out.Write(start)
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

var metadataLists = newEncoder(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"), false)
