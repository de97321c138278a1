package anonymise

import (
	"maps"
	"reflect"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// model describes a value by the Go type of its field. The zero value describes any value.
type model struct {
	typ     reflect.Type // nil if the type is unknown
	rule    *leaf        // strings to keep in the whole value; nil: the types below decide
	keys    words        // map keys to keep
	data    bool         // all keys of the map are replaced
	managed bool         // the value lists the managed fields of a value of this model
}

// is reports whether JSON has the fields or elements of a type of this kind. A struct with a rule
// is a string.
func (s model) is(kind reflect.Kind) bool {
	return s.typ != nil && s.typ.Kind() == kind && !s.managed && (kind != reflect.Struct || s.rule == nil)
}

func (s model) elem() model {
	e := modelOf(s.typ.Elem())
	if s.rule != nil {
		e.rule = s.rule
	}
	return e
}

// element returns the model of a JSON array's elements.
func (s model) element() model {
	if s.is(reflect.Slice) || s.is(reflect.Array) {
		return s.elem()
	}
	return model{managed: s.managed}
}

func (s model) leaf(key string) leaf {
	switch {
	case s.rule != nil:
		return *s.rule
	case s.typ == nil && !s.managed:
		return untypedLeaf(key)
	default:
		return leaf{}
	}
}

// rootOf returns the model of a kind. An unknown type only has the model of its metadata.
func rootOf(kind schema.GroupVersionKind) model {
	if o, err := scheme.Scheme.New(kind); err == nil {
		return modelOf(reflect.TypeOf(o))
	}
	return modelOf(reflect.TypeFor[metav1.PartialObjectMetadata]())
}

// leafTypes are the types that JSON encodes as a string, with their rules, or as any value,
// with nil.
var leafTypes = map[reflect.Type]*leaf{
	reflect.TypeFor[metav1.Time]():          {},
	reflect.TypeFor[metav1.MicroTime]():     {},
	reflect.TypeFor[metav1.Duration]():      {kind: durationLeaf},
	reflect.TypeFor[resource.Quantity]():    {kind: quantityLeaf},
	reflect.TypeFor[intstr.IntOrString]():   {kind: percentLeaf},
	reflect.TypeFor[[]byte]():               {kind: bytesLeaf},
	reflect.TypeFor[metav1.FieldsV1]():      nil,
	reflect.TypeFor[runtime.RawExtension](): nil,
	reflect.TypeFor[runtime.Unknown]():      nil,
}

func modelOf(t reflect.Type) model {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	rule, known := leafTypes[t]
	s := model{typ: t, rule: rule}
	switch {
	case known && rule == nil:
		return model{}
	case known:
	case t.Kind() == reflect.Map:
		s.keys = enumeration(t.Key())
	case t.Kind() == reflect.String:
		s.rule = &leaf{values: enumeration(t)}
	}
	return s
}

type types map[reflect.Type]map[string]model // caches the fields of struct types by their names in JSON

func (in types) fields(t reflect.Type) map[string]model {
	if known, ok := in[t]; ok {
		return known
	}
	fields := map[string]model{}
	for i := range t.NumField() {
		f := t.Field(i)
		s := modelOf(f.Type)
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
		// For some string fields, the name is more specific than the type.
		if l := untypedLeaf(name); s.typ == reflect.TypeFor[string]() && (l.kind != valueLeaf && l.kind != quantityLeaf || l.values != nil) {
			s.rule = &l
		}
		if special, ok := specialFields()[fieldOf{t, name}]; ok {
			special.typ = s.typ
			s = special
		}
		fields[name] = s
	}
	in[t] = fields
	return fields
}

type fieldOf struct {
	typ  reflect.Type
	name string
}

// specialFields returns the schemas of fields whose type is not specific enough.
var specialFields = sync.OnceValue(func() map[fieldOf]model {
	keep := func(values words) model { return model{rule: &leaf{values: values}} }
	opaque, bytes := model{rule: &leaf{kind: opaqueLeaf}}, model{rule: &leaf{kind: bytesLeaf}}
	data, binary := model{rule: opaque.rule, data: true}, model{rule: bytes.rule, data: true}
	component := keep(vocabulary()["component"])
	return map[fieldOf]model{
		{reflect.TypeFor[v1.Secret](), "data"}:                        binary,
		{reflect.TypeFor[v1.Secret](), "stringData"}:                  data,
		{reflect.TypeFor[v1.ConfigMap](), "data"}:                     data,
		{reflect.TypeFor[v1.ConfigMap](), "binaryData"}:               binary,
		{reflect.TypeFor[metav1.ObjectMeta](), "annotations"}:         {rule: &leaf{kind: valueLeaf}},
		{reflect.TypeFor[v1.HTTPHeader](), "value"}:                   opaque,
		{reflect.TypeFor[v1.EnvVar](), "value"}:                       opaque,
		{reflect.TypeFor[v1.Container](), "command"}:                  opaque,
		{reflect.TypeFor[v1.Container](), "args"}:                     opaque,
		{reflect.TypeFor[v1.EphemeralContainerCommon](), "command"}:   opaque,
		{reflect.TypeFor[v1.EphemeralContainerCommon](), "args"}:      opaque,
		{reflect.TypeFor[v1.ExecAction](), "command"}:                 opaque,
		{reflect.TypeFor[v1.EventSource](), "component"}:              component,
		{reflect.TypeFor[v1.Event](), "reportingComponent"}:           component,
		{reflect.TypeFor[eventsv1.Event](), "reportingController"}:    component,
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "manager"}:     component,
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "subresource"}: keep(set("status", "scale")),
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "fieldsType"}:  keep(set("FieldsV1")),
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "fieldsV1"}:    {managed: true},
		{reflect.TypeFor[v1.ObjectFieldSelector](), "fieldPath"}:      keep(vocabulary()["fieldPath"]),
		{reflect.TypeFor[v1.ServiceSpec](), "clusterIP"}:              keep(set("None")),
		{reflect.TypeFor[v1.ServiceSpec](), "clusterIPs"}:             keep(set("None")),
		{reflect.TypeFor[v1.ResourceFieldSelector](), "resource"}:     keep(set("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage")),
		{reflect.TypeFor[v1.NodeSystemInfo](), "architecture"}:        keep(set("amd64", "arm64")),
		{reflect.TypeFor[v1.NodeSystemInfo](), "operatingSystem"}:     keep(set("linux", "windows")),
		{reflect.TypeFor[metav1.ObjectMeta](), "finalizers"}:          keep(vocabulary()["key"]),
		{reflect.TypeFor[v1.NamespaceSpec](), "finalizers"}:           keep(set("kubernetes")),
	}
})
