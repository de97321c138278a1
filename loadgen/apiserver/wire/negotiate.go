package wire

import (
	"errors"
	"strings"

	"github.com/munnerz/goautoneg"
)

// ErrNotAcceptable means that the server offers no form that the client accepts.
var ErrNotAcceptable = errors.New("not acceptable")

// Offer says which forms of a resource are available.
type Offer struct {
	// Untyped objects have no protobuf; their metadata has.
	Untyped bool
	// Whole excludes metadata and tables, for answers that are no resources.
	Whole bool
	// Stream is set for watches.
	Stream bool
}

// Negotiate returns the available form that a client's Accept headers prefer, JSON
// without headers. A table includes metadata; see [Shape.Carry]. The error is
// [ErrNotAcceptable]. Not simulated: YAML answers, pretty printing, and version v1beta1
// of tables and metadata.
func Negotiate(headers []string, o Offer) (Form, error) {
	header := strings.Join(headers, ",")
	if strings.TrimSpace(header) == "" {
		return FormOf(JSON, Object), nil
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
				return FormOf(m, s), nil
			}
		}
	}
	return 0, ErrNotAcceptable
}

// has reports whether a form is available.
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
	switch as {
	case "Table":
		return Table, true
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return Metadata, true
	default:
		return 0, false
	}
}

// Carry applies the query parameter includeObject to a table: None, Metadata or
// Object; "" means Metadata. It returns false for other values. It does not change
// other shapes.
func (s Shape) Carry(include string) (Shape, bool) {
	if !s.IsTable() {
		return s, true
	}
	switch include {
	case "", "Metadata":
		return Table, true
	case "None":
		return TableBare, true
	case "Object":
		return TableObject, true
	default:
		return s, false
	}
}
