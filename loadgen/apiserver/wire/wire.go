// Package wire encodes objects and watch events as an API server sends them, in each
// encoding (JSON, protobuf, CBOR) and each shape (object, metadata, table).
//
// An object is encoded once. An event is the object between a head and a tail
// ([AppendEvent]); an item of a list is the object without its kind ([Kind.WriteList]).
// Lists, answers and events of other types are therefore copies.
//
// The bytes are those of k8s.io/apiserver v0.37 with two exceptions: a CBOR object
// begins with its kind, and tables have fewer columns.
package wire

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	ContentProtobuf = "application/vnd.kubernetes.protobuf"
	ContentCBOR     = "application/cbor"
)

var (
	contents = [medias]string{ContentJSON, ContentProtobuf, ContentCBOR}
	streams  = [medias]string{ContentJSON, ContentProtobuf + ";stream=watch", "application/cbor-seq"}
)

// String returns "json", "protobuf" or "cbor".
func (m Media) String() string { return [medias]string{"json", "protobuf", "cbor"}[m] }

// Shape is the part of an object that is encoded.
type Shape uint8

// The shapes.
const (
	Object      Shape = iota // the whole object
	Metadata                 // a PartialObjectMetadata of meta.k8s.io/v1
	Table                    // a Table of meta.k8s.io/v1; its rows include the object's metadata
	TableBare                // a Table whose rows include no object
	TableObject              // a Table whose rows include the whole object
	shapes
)

// IsTable reports whether the shape is a table.
func (s Shape) IsTable() bool { return s >= Table }

// Form is an encoding and a shape. Clients with the same form receive the same bytes.
type Form uint8

// Forms is the number of forms.
const Forms = int(medias) * int(shapes)

// FormOf returns the form of an encoding and a shape.
func FormOf(m Media, s Shape) Form { return Form(uint8(s)*uint8(medias) + uint8(m)) }

// Media returns the encoding.
func (f Form) Media() Media { return Media(uint8(f) % uint8(medias)) }

// Shape returns the shape.
func (f Form) Shape() Shape { return Shape(uint8(f) / uint8(medias)) }

// ContentType returns the Content-Type of an answer.
func (f Form) ContentType() string { return contents[f.Media()] }

// StreamType returns the Content-Type of a watch.
func (f Form) StreamType() string { return streams[f.Media()] }

var (
	ErrEncoding = errors.New("cannot be encoded") // of an object

	metadataKind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	tableKind    = metav1.SchemeGroupVersion.WithKind("Table")
)

// AppendEvent appends a watch event around an encoded object. O(bytes).
func AppendEvent(dst []byte, m Media, t watch.EventType, object []byte) []byte {
	switch m {
	case Protobuf:
		return appendProtoEvent(dst, t, object)
	case CBOR:
		return append(cborText(append(append(dst, cborSelf...), cborMap|2), "type", string(t), "object"), object...)
	default:
		return appendJSONEvent(dst, t, object)
	}
}

// EventTail returns the number of bytes after the object in an event.
func EventTail(m Media) int {
	if m == JSON {
		return len(jsonTail)
	}
	return 0
}

// WriteBody answers with an encoded object, list or table.
func WriteBody(w http.ResponseWriter, code int, f Form, body []byte) {
	if f.Media() == JSON {
		body = append(body, '\n')
	}
	w.Header().Set("Content-Type", f.ContentType())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails if the client is gone
}

// WriteStatus answers with an error, whose kind is set, and with the time to retry if it has one.
func WriteStatus(w http.ResponseWriter, m Media, s *metav1.Status) {
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	body, err := AppendAny(nil, m, s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	WriteBody(w, int(s.Code), FormOf(m, Object), body)
}

func cannot(what any, err error) error {
	return fmt.Errorf("wire: %T %w: %w", what, ErrEncoding, err)
}

// Offer says which forms of a resource are available.
type Offer struct {
	Untyped bool // objects have no protobuf; their metadata has
	Whole   bool // no metadata and tables, for answers that are no resources
	Stream  bool // a watch
}

// Negotiate returns the available form that a client's Accept headers prefer; without headers, or
// with false if none is available, JSON. A table includes metadata; see [Shape.Carry]. Not
// simulated: YAML answers, pretty printing, and version v1beta1 of tables and metadata.
func Negotiate(headers []string, o Offer) (Form, bool) {
	header := strings.Join(headers, ",")
	if strings.TrimSpace(header) == "" {
		return FormOf(JSON, Object), true
	}
	for _, clause := range goautoneg.ParseAccept(header) {
		if clause.Q == 0 || (clause.Type != "application" && clause.Type != "*") {
			continue
		}
		for m := range medias {
			sub := strings.TrimPrefix(contents[m], "application/")
			if o.Stream && m == CBOR && clause.SubType == "cbor-seq" {
				sub = clause.SubType
			}
			if clause.SubType != sub && clause.SubType != "*" {
				continue
			}
			if s, ok := shapeOf(clause.Params, o); ok && o.has(m, s) {
				return FormOf(m, s), true
			}
		}
	}
	return FormOf(JSON, Object), false
}

func (o Offer) has(m Media, s Shape) bool {
	// A real server has no tables in protobuf either.
	return m != Protobuf || s == Metadata || (s == Object && !o.Untyped)
}

// shapeOf reads the shape from the parameters of a media type.
func shapeOf(params map[string]string, o Offer) (Shape, bool) {
	if s := params["stream"]; s != "" && (s != "watch" || !o.Stream) {
		return 0, false
	}
	as, isAs := params["as"]
	if !isAs || as == "" {
		return Object, params["g"] == "" && params["v"] == ""
	}
	if o.Whole || params["g"] != "meta.k8s.io" || params["v"] != "v1" {
		return 0, false
	}
	s, ok := map[string]Shape{"Table": Table, "PartialObjectMetadata": Metadata, "PartialObjectMetadataList": Metadata}[as]
	return s, ok
}

// Carry applies the query parameter includeObject to a table: None, Metadata or Object; ""
// means Metadata. It returns false for other values and does not change other shapes.
func (s Shape) Carry(include string) (Shape, bool) {
	if !s.IsTable() {
		return s, true
	}
	carried, ok := map[string]Shape{"": Table, "Metadata": Table, "None": TableBare, "Object": TableObject}[include]
	return carried, ok
}
