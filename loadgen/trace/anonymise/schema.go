package anonymise

import (
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

// node is the schema of a value.
type node struct {
	kind nodeKind
	// typ and fields are those of a struct; for a map or slice, typ or inside describes the
	// elements. They are resolved on first use, because types are recursive.
	typ    reflect.Type
	fields map[string]*node
	inside *node
	// keys are the map keys to keep. data: all keys of the map are replaced.
	keys words
	data bool
	leaf leaf
	// managed is the schema that managed fields describe; nil for the object that has them.
	// asManaged caches the schema of managed fields of this node.
	managed   *node
	asManaged *node

	// types is nil for nodes that all anonymisers share.
	types types
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

var (
	untyped        = &node{}
	managedUntyped = &node{kind: managedNode, managed: untyped}
	managedRoot    = &node{kind: managedNode}
)

// types caches the schemas of Go types.
type types map[reflect.Type]*node

func managedOf(n *node) *node {
	switch {
	case n == untyped:
		return managedUntyped
	case n.asManaged == nil && n.types == nil:
		return &node{kind: managedNode, managed: n} // n is shared and must not be changed.
	case n.asManaged == nil:
		n.asManaged = &node{kind: managedNode, managed: n}
	}
	return n.asManaged
}

// field returns the schema of a struct's field; nil if there is no such field.
func (n *node) field(name string) *node {
	if n.fields == nil {
		n.fields = map[string]*node{}
		n.addFields(n.typ)
	}
	return n.fields[name]
}

// elem returns the schema of a map's or a slice's elements.
func (n *node) elem() *node {
	if n.inside != nil {
		return n.inside
	}
	return n.types.nodeOf(n.typ)
}

// element returns the schema of a JSON array's elements.
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

// rootOf returns the schema of a kind. An unknown type only has the schema of its metadata.
func (in types) rootOf(kind schema.GroupVersionKind) *node {
	if o, err := scheme.Scheme.New(kind); err == nil {
		return in.nodeOf(reflect.TypeOf(o).Elem())
	}
	n := &node{kind: structNode, fields: map[string]*node{}, types: in}
	n.addFields(reflect.TypeFor[metav1.TypeMeta]())
	n.fields["metadata"] = in.nodeOf(reflect.TypeFor[metav1.ObjectMeta]())
	return n
}

// leafTypes are the types that JSON encodes as a string or as any value.
var leafTypes = map[reflect.Type]node{
	reflect.TypeFor[metav1.Time]():          {kind: leafNode},
	reflect.TypeFor[metav1.MicroTime]():     {kind: leafNode},
	reflect.TypeFor[metav1.Duration]():      {kind: leafNode, leaf: leaf{kind: durationLeaf}},
	reflect.TypeFor[resource.Quantity]():    {kind: leafNode, leaf: leaf{kind: quantityLeaf}},
	reflect.TypeFor[intstr.IntOrString]():   {kind: leafNode, leaf: leaf{kind: percentLeaf}},
	reflect.TypeFor[[]byte]():               {kind: leafNode, leaf: leaf{kind: bytesLeaf}},
	reflect.TypeFor[metav1.FieldsV1]():      {},
	reflect.TypeFor[runtime.RawExtension](): {},
	reflect.TypeFor[runtime.Unknown]():      {},
}

// nodeOf returns the schema of a type.
func (in types) nodeOf(t reflect.Type) *node {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n, ok := in[t]; ok {
		return n
	}
	n := &node{}
	in[t] = n
	if known, ok := leafTypes[t]; ok {
		*n = known
		n.typ, n.types = t, in
		return n
	}
	n.typ, n.types = t, in
	switch t.Kind() {
	case reflect.Struct:
		n.kind = structNode
	case reflect.Map:
		n.kind, n.typ, n.keys = mapNode, t.Elem(), enumeration(t.Key())
	case reflect.Slice, reflect.Array:
		n.kind, n.typ = sliceNode, t.Elem()
	case reflect.String:
		n.kind, n.leaf = leafNode, leaf{values: enumeration(t)}
	}
	return n
}

// addFields adds the fields of a type by their names in JSON.
func (n *node) addFields(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case strings.Contains(options, "inline") || name == "" && f.Anonymous:
			n.addFields(ft)
			continue
		case name == "":
			name = f.Name
		}
		child := n.types.nodeOf(ft)
		// For some string fields, the name is more specific than the type.
		if l := untypedLeaf(name); ft == reflect.TypeFor[string]() && (l.kind != textLeaf && l.kind != quantityLeaf || l.values != nil) {
			child = &node{kind: leafNode, leaf: l}
		}
		if special := specialFields()[fieldOf{t, name}]; special != nil {
			child = special
		}
		n.fields[name] = child
	}
}

type fieldOf struct {
	typ  reflect.Type
	name string
}

// specialFields returns the schemas of fields whose type is not specific enough.
var specialFields = sync.OnceValue(func() map[fieldOf]*node {
	keep := func(values words) *node { return &node{kind: leafNode, leaf: leaf{values: values}} }
	list := func(n *node) *node { return &node{kind: sliceNode, inside: n} }
	data := func(n *node) *node { return &node{kind: mapNode, inside: n, data: true} }
	opaque := &node{kind: leafNode, leaf: leaf{kind: opaqueLeaf}}
	bytes := &node{kind: leafNode, leaf: leaf{kind: bytesLeaf}}
	component := keep(vocabulary()["component"])
	return map[fieldOf]*node{
		{reflect.TypeFor[v1.Secret](), "data"}:                        data(bytes),
		{reflect.TypeFor[v1.Secret](), "stringData"}:                  data(opaque),
		{reflect.TypeFor[v1.ConfigMap](), "data"}:                     data(opaque),
		{reflect.TypeFor[v1.ConfigMap](), "binaryData"}:               data(bytes),
		{reflect.TypeFor[v1.EnvVar](), "value"}:                       opaque,
		{reflect.TypeFor[v1.Container](), "command"}:                  list(opaque),
		{reflect.TypeFor[v1.Container](), "args"}:                     list(opaque),
		{reflect.TypeFor[v1.EphemeralContainerCommon](), "command"}:   list(opaque),
		{reflect.TypeFor[v1.EphemeralContainerCommon](), "args"}:      list(opaque),
		{reflect.TypeFor[v1.ExecAction](), "command"}:                 list(opaque),
		{reflect.TypeFor[v1.EventSource](), "component"}:              component,
		{reflect.TypeFor[v1.Event](), "reportingComponent"}:           component,
		{reflect.TypeFor[eventsv1.Event](), "reportingController"}:    component,
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "manager"}:     component,
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "subresource"}: keep(set("status", "scale")),
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "fieldsType"}:  keep(set("FieldsV1")),
		{reflect.TypeFor[metav1.ManagedFieldsEntry](), "fieldsV1"}:    managedRoot,
		{reflect.TypeFor[v1.ObjectFieldSelector](), "fieldPath"}:      keep(vocabulary()["fieldPath"]),
		{reflect.TypeFor[v1.ServiceSpec](), "clusterIP"}:              keep(set("None")),
		{reflect.TypeFor[v1.ServiceSpec](), "clusterIPs"}:             list(keep(set("None"))),
		{reflect.TypeFor[v1.ResourceFieldSelector](), "resource"}:     keep(set("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage")),
		{reflect.TypeFor[v1.NodeSystemInfo](), "architecture"}:        keep(set("amd64", "arm64")),
		{reflect.TypeFor[v1.NodeSystemInfo](), "operatingSystem"}:     keep(set("linux", "windows")),
		{reflect.TypeFor[metav1.ObjectMeta](), "finalizers"}:          list(keep(vocabulary()["key"])),
		{reflect.TypeFor[v1.NamespaceSpec](), "finalizers"}:           list(keep(set("kubernetes"))),
	}
})
