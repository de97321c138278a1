package anonymise

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

// node is what is known of a value.
type node struct {
	kind nodeKind

	of     reflect.Type
	fields map[string]*node
	inside *node

	keys map[string]bool
	data bool
	leaf leaf

	managed *node

	asManaged *node

	in types
}

type nodeKind int

const (
	untypedNode nodeKind = iota
	structNode
	mapNode
	sliceNode
	leafNode
	managedNode
)

// untyped is what nothing is known of.
var untyped = &node{}

// managedUntyped are managed fields of what nothing is known of.
var managedUntyped = &node{kind: managedNode, managed: untyped}

// ownFields are managed fields of the object that they stand in.
var ownFields = &node{kind: managedNode}

// types are what an anonymiser knows of Go types.
type types map[reflect.Type]*node

func managedOf(n *node) *node {
	switch {
	case n == untyped:
		return managedUntyped
	case n.asManaged == nil && n.in == nil:
		return &node{kind: managedNode, managed: n} // Shared, and not to be changed.
	case n.asManaged == nil:
		n.asManaged = &node{kind: managedNode, managed: n}
	}
	return n.asManaged
}

// field returns what is known of a struct's field; nil where it has none of that
// name.
func (n *node) field(name string) *node {
	if n.fields == nil {
		n.fields = map[string]*node{}
		n.addFields(n.of)
	}
	return n.fields[name]
}

// elem returns what is known of a map's or a slice's elements.
func (n *node) elem() *node {
	if n.inside != nil {
		return n.inside
	}
	return n.in.nodeOf(n.of)
}

func (n *node) element() *node {
	switch n.kind {
	case sliceNode:
		return n.elem()
	case managedNode:
		return managedUntyped
	default:
		return untyped
	}
}

func (n *node) leafFor(key string) leaf {
	switch n.kind {
	case leafNode:
		return n.leaf
	case untypedNode:
		return untypedLeaf(key)
	default:
		return leaf{}
	}
}

// rootOf returns what is known of a kind: all, or at least the metadata.
func (in types) rootOf(kind schema.GroupVersionKind) *node {
	if o, err := scheme.Scheme.New(kind); err == nil {
		return in.nodeOf(reflect.TypeOf(o).Elem())
	}
	n := &node{kind: structNode, fields: map[string]*node{}, in: in}
	n.addFields(reflect.TypeFor[metav1.TypeMeta]())
	n.fields["metadata"] = in.nodeOf(reflect.TypeFor[metav1.ObjectMeta]())
	return n
}

// nodeOf returns what is known of a type.
func (in types) nodeOf(t reflect.Type) *node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n, ok := in[t]; ok {
		return n
	}
	n := &node{of: t, in: in}
	in[t] = n
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		n.kind = leafNode
		return n
	case reflect.TypeFor[metav1.Duration]():
		n.kind, n.leaf.kind = leafNode, durationLeaf
		return n
	case reflect.TypeFor[resource.Quantity]():
		n.kind, n.leaf.kind = leafNode, quantityLeaf
		return n
	case reflect.TypeFor[intstr.IntOrString]():
		n.kind, n.leaf.kind = leafNode, percentLeaf
		return n
	case reflect.TypeFor[[]byte]():
		n.kind, n.leaf.kind = leafNode, bytesLeaf
		return n
	case reflect.TypeFor[metav1.FieldsV1](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[runtime.Unknown]():
		return n
	}
	switch t.Kind() {
	case reflect.Struct:
		n.kind = structNode
	case reflect.Map:
		n.kind, n.of = mapNode, t.Elem()
		n.keys = enumeration(t.Key())
	case reflect.Slice, reflect.Array:
		n.kind, n.of = sliceNode, t.Elem()
	case reflect.String:
		n.kind, n.leaf = leafNode, leaf{kind: textLeaf, values: enumeration(t)}
	}
	return n
}

// addFields adds the fields of a type by their names in JSON.
func (n *node) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case strings.Contains(options, "inline") || name == "" && f.Anonymous:
			ft := f.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			n.addFields(ft)
			continue
		case name == "":
			name = f.Name
		}
		child := n.in.nodeOf(f.Type)
		child = stringField(name, f.Type, child)
		if special := specialFields[fieldOf{t, name}]; special != nil {
			child = special
		}
		n.fields[name] = child
	}
}

// stringField is about fields that are plain strings and hold something else.
func stringField(name string, t reflect.Type, child *node) *node {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t != reflect.TypeFor[string]() {
		return child
	}
	if l := untypedLeaf(name); l.kind != textLeaf || l.values != nil {
		if l.kind == quantityLeaf {
			return child
		}
		return &node{kind: leafNode, leaf: l}
	}
	return child
}

type fieldOf struct {
	t    reflect.Type
	name string
}

var (
	opaque      = &node{kind: leafNode, leaf: leaf{kind: opaqueLeaf}}
	opaqueSlice = &node{kind: sliceNode, inside: opaque}
	opaqueData  = &node{kind: mapNode, inside: opaque, data: true}
	bytesData   = &node{kind: mapNode, inside: &node{kind: leafNode, leaf: leaf{kind: bytesLeaf}}, data: true}
	component   = &node{kind: leafNode, leaf: leaf{kind: textLeaf, values: set(components...)}}
)

// specialFields are those that their type says nothing about.
var specialFields = map[fieldOf]*node{
	{reflect.TypeFor[v1.Secret](), "data"}:       bytesData,
	{reflect.TypeFor[v1.Secret](), "stringData"}: opaqueData,

	{reflect.TypeFor[v1.ConfigMap](), "data"}:       opaqueData,
	{reflect.TypeFor[v1.ConfigMap](), "binaryData"}: bytesData,

	{reflect.TypeFor[v1.EnvVar](), "value"}:                       opaque,
	{reflect.TypeFor[v1.Container](), "command"}:                  opaqueSlice,
	{reflect.TypeFor[v1.Container](), "args"}:                     opaqueSlice,
	{reflect.TypeFor[v1.EphemeralContainerCommon](), "command"}:   opaqueSlice,
	{reflect.TypeFor[v1.EphemeralContainerCommon](), "args"}:      opaqueSlice,
	{reflect.TypeFor[v1.ExecAction](), "command"}:                 opaqueSlice,
	{reflect.TypeFor[v1.EventSource](), "component"}:              component,
	{reflect.TypeFor[v1.Event](), "reportingComponent"}:           component,
	{reflect.TypeFor[eventsv1.Event](), "reportingController"}:    component,
	{reflect.TypeFor[metav1.ManagedFieldsEntry](), "manager"}:     component,
	{reflect.TypeFor[metav1.ManagedFieldsEntry](), "subresource"}: {kind: leafNode, leaf: leaf{values: set("status", "scale")}},
	{reflect.TypeFor[metav1.ManagedFieldsEntry](), "fieldsType"}:  {kind: leafNode, leaf: leaf{values: set("FieldsV1")}},
	{reflect.TypeFor[v1.ObjectFieldSelector](), "fieldPath"}:      {kind: leafNode, leaf: leaf{values: set(fieldPaths...)}},
	{reflect.TypeFor[v1.ServiceSpec](), "clusterIP"}:              {kind: leafNode, leaf: leaf{values: set("None")}},
	{reflect.TypeFor[v1.ServiceSpec](), "clusterIPs"}:             {kind: sliceNode, inside: &node{kind: leafNode, leaf: leaf{values: set("None")}}},
	{reflect.TypeFor[v1.ResourceFieldSelector](), "resource"}:     {kind: leafNode, leaf: leaf{values: set("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage")}},
	{reflect.TypeFor[v1.NodeSystemInfo](), "architecture"}:        {kind: leafNode, leaf: leaf{values: set("amd64", "arm64")}},
	{reflect.TypeFor[v1.NodeSystemInfo](), "operatingSystem"}:     {kind: leafNode, leaf: leaf{values: set("linux", "windows")}},
	{reflect.TypeFor[metav1.ObjectMeta](), "finalizers"}:          {kind: sliceNode, inside: &node{kind: leafNode, leaf: leaf{values: keptKeys}}},
	{reflect.TypeFor[v1.NamespaceSpec](), "finalizers"}:           {kind: sliceNode, inside: &node{kind: leafNode, leaf: leaf{values: set("kubernetes")}}},
	{reflect.TypeFor[metav1.ManagedFieldsEntry](), "fieldsV1"}:    ownFields,
}
