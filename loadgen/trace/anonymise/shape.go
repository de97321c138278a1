package anonymise

import (
	"maps"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// shape describes a value by the Go type of its field.
type shape struct {
	typ     reflect.Type // nil if the type is unknown
	leaf    leaf         // strings of the value that stay
	managed bool         // the value lists the managed fields of a value of this shape
}

// is reports whether JSON has the fields or elements of a type of this kind.
func (s shape) is(kind reflect.Kind) bool {
	_, known := leafTypes[s.typ]
	return s.typ != nil && s.typ.Kind() == kind && !s.managed && !known
}

// element returns the shape of the elements of an array or the values of a map.
func (s shape) element() shape {
	if !s.is(reflect.Slice) && !s.is(reflect.Array) && !s.is(reflect.Map) {
		return shape{leaf: s.leaf, managed: s.managed}
	}
	e := shapeOf(s.typ.Elem())
	if e.leaf.form == name && e.leaf.values == nil {
		e.leaf = s.leaf
	}
	return e
}

// untyped returns the shape of a field of a custom resource.
func untyped(name string) shape { return shape{leaf: leafOf(name)} }

// rootOf returns the shape of a kind. Of an unknown type it knows the metadata.
func rootOf(kind schema.GroupVersionKind) shape {
	if o, err := scheme.Scheme.New(kind); err == nil {
		return shapeOf(reflect.TypeOf(o))
	}
	return shapeOf(reflect.TypeFor[metav1.PartialObjectMetadata]())
}

// leafTypes are the types that JSON encodes as a string, with the form that stays.
var leafTypes = map[reflect.Type]form{
	reflect.TypeFor[metav1.Time]():        name,
	reflect.TypeFor[metav1.MicroTime]():   name,
	reflect.TypeFor[metav1.Duration]():    duration,
	reflect.TypeFor[resource.Quantity]():  quantity,
	reflect.TypeFor[intstr.IntOrString](): percent,
	reflect.TypeFor[[]byte]():             encoded,
}

// rawTypes are the types that JSON encodes as any value.
var rawTypes = map[reflect.Type]bool{
	reflect.TypeFor[metav1.FieldsV1]():      true,
	reflect.TypeFor[runtime.RawExtension](): true,
	reflect.TypeFor[runtime.Unknown]():      true,
}

func shapeOf(t reflect.Type) shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	form, known := leafTypes[t]
	switch {
	case known:
		return shape{typ: t, leaf: leaf{form: form}}
	case rawTypes[t]:
		return shape{}
	case t.Kind() == reflect.String:
		return shape{typ: t, leaf: leaf{values: enumeration(t)}}
	}
	return shape{typ: t}
}

type structs map[reflect.Type]map[string]shape // caches the fields of struct types by their names in JSON

func (in structs) fields(t reflect.Type) map[string]shape {
	if known, ok := in[t]; ok {
		return known
	}
	fields := map[string]shape{}
	for i := range t.NumField() {
		f := t.Field(i)
		s := shapeOf(f.Type)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case strings.Contains(options, "inline") || name == "" && f.Anonymous:
			maps.Copy(fields, in.fields(s.typ))
			continue
		case name == "":
			name = f.Name
		}
		text := f.Type
		for text.Kind() == reflect.Pointer || text.Kind() == reflect.Slice || text.Kind() == reflect.Map {
			text = text.Elem()
		}
		if text == reflect.TypeFor[string]() {
			// The name is more specific than the type.
			s.leaf = leafOf(name)
		}
		s.managed = name == "fieldsV1"
		fields[name] = s
	}
	in[t] = fields
	return fields
}

// fieldNames returns the names of all fields of all types of the scheme.
var fieldNames = sync.OnceValue(func() words {
	names, in := words{}, structs{}
	var walk func(s shape)
	walk = func(s shape) {
		switch {
		case s.is(reflect.Map), s.is(reflect.Slice), s.is(reflect.Array):
			walk(s.element())
		case s.is(reflect.Struct) && in[s.typ] == nil:
			for name, field := range in.fields(s.typ) {
				names.Insert(name)
				walk(field)
			}
		}
	}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		walk(shapeOf(t))
	}
	return names
})
