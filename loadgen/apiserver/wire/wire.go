// Package wire puts objects and watch events into the bytes that an API server
// sends, in each encoding (JSON, protobuf, CBOR) and each shape (the object, its
// metadata, a table).
//
// What is encoded once is used everywhere: an event is an object with a head
// around it ([AppendEvent]), and an item of a list is an object without its kind
// ([Kind.AppendItem]). So a server that keeps the bytes of an event makes lists,
// answers and events of other types from them by copying.
//
// Objects come out as k8s.io/apiserver v0.37 has them, but for these: a CBOR
// object begins with its kind, and the columns of tables are fewer.
package wire

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Media is an encoding.
type Media uint8

// The encodings.
const (
	JSON Media = iota
	Protobuf
	CBOR
	medias
)

// Content types of answers, by Media.
const (
	ContentJSON     = "application/json"
	ContentYAML     = "application/yaml"
	ContentProtobuf = "application/vnd.kubernetes.protobuf"
	ContentCBOR     = "application/cbor"
	contentCBORSeq  = "application/cbor-seq"
)

var contents = [medias]string{ContentJSON, ContentProtobuf, ContentCBOR}

// String returns "json", "protobuf" or "cbor".
func (m Media) String() string { return [medias]string{"json", "protobuf", "cbor"}[m] }

// Shape is what is made of an object before it is encoded.
type Shape uint8

// The shapes.
const (
	// Object as it is.
	Object Shape = iota
	// Metadata is a PartialObjectMetadata of meta.k8s.io/v1.
	Metadata
	// Table is a Table of meta.k8s.io/v1 with a row for each object, which
	// carries the object's metadata.
	Table
	// TableBare is a Table whose rows carry nothing.
	TableBare
	// TableObject is a Table whose rows carry the whole object.
	TableObject
	shapes
)

// IsTable tells whether the shape is a table.
func (s Shape) IsTable() bool { return s >= Table }

// Form is an encoding and a shape: everything that two clients have to have in
// common to be sent the same bytes.
type Form uint8

// Forms is how many there are; a Form is less.
const Forms = int(medias) * int(shapes)

// FormOf returns the form of an encoding and a shape.
func FormOf(m Media, s Shape) Form { return Form(uint8(s)*uint8(medias) + uint8(m)) }

// Media returns the encoding.
func (f Form) Media() Media { return Media(uint8(f) % uint8(medias)) }

// Shape returns the shape.
func (f Form) Shape() Shape { return Shape(uint8(f) / uint8(medias)) }

// ContentType returns what an answer in the form says it is.
func (f Form) ContentType() string { return contents[f.Media()] }

// StreamType returns what a watch in the form says it is.
func (f Form) StreamType() string {
	switch f.Media() {
	case Protobuf:
		return ContentProtobuf + ";stream=watch"
	case CBOR:
		return contentCBORSeq
	default:
		return ContentJSON
	}
}

var (
	// ErrEncoding is wrapped by the errors for objects that cannot be encoded.
	ErrEncoding = errors.New("cannot be encoded")

	metadataKind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	tableKind    = metav1.SchemeGroupVersion.WithKind("Table")
	// StatusKind is the kind of an error.
	statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}
)

// AppendEvent appends a watch event around an encoded object. O(bytes).
func AppendEvent(dst []byte, m Media, t watch.EventType, object []byte) []byte {
	switch m {
	case Protobuf:
		return appendProtoEvent(dst, t, object)
	case CBOR:
		return append(append(dst, cborHead(t)...), object...)
	default:
		dst = append(dst, jsonHead(t)...)
		dst = append(dst, object...)
		return append(dst, jsonTail...)
	}
}

// EventTail is how many bytes of an event follow its object.
func EventTail(m Media) int {
	if m == JSON {
		return len(jsonTail)
	}
	return 0
}

// EndsObject returns what an answer that consists of an object ends with.
func EndsObject(m Media) string {
	if m == JSON {
		return "\n"
	}
	return ""
}

func cannot(what any, err error) error {
	return fmt.Errorf("wire: %T %w: %w", what, ErrEncoding, err)
}
