package wire

import (
	"errors"
	"strings"

	"github.com/munnerz/goautoneg"
)

// ErrNotAcceptable is the error for a client that takes nothing that there is.
var ErrNotAcceptable = errors.New("not acceptable")

// Offer is what can be had of a resource.
type Offer struct {
	Untyped bool
	Whole   bool
	Stream  bool
}

// Negotiate returns the form that a client's Accept headers ask for, the first
// by preference that can be had; JSON where there are none. A table carries
// metadata; see [Shape.Carry]. The error is [ErrNotAcceptable]. What a real
// server knows and this one doesn't: YAML answers, pretty printing, and version
// v1beta1 of tables and metadata.
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

// has tells whether there is that form.
func (o Offer) has(m Media, s Shape) bool {
	// A table has no protobuf with a real server either.
	return m != Protobuf || s == Metadata || (s == Object && !o.Untyped)
}

// shapeOf reads what the parameters of a media type say of the shape.
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

// Carry returns the shape of a table whose rows carry what the parameter
// includeObject says: None, Metadata or Object, "" for Metadata. It returns
// false for what is none of these. Other shapes stay as they are.
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
