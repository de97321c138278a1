package discovery

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"watchlab/loadgen/apiserver/resources"
)

// Extensions of Kubernetes' schemas.
const (
	kindExtension     = "x-kubernetes-group-version-kind"
	listTypeExtension = "x-kubernetes-list-type"
	listKeysExtension = "x-kubernetes-list-map-keys"
	mapTypeExtension  = "x-kubernetes-map-type"
	strategyExtension = "x-kubernetes-patch-strategy"
	mergeKeyExtension = "x-kubernetes-patch-merge-key"
)

// models describes Go types in OpenAPI: those that it is asked for and all
// that they are made of. What a struct doesn't say (which lists are maps) is
// read off client-go's schema for server-side apply.
//
// The description is the API's own documentation. A field is required if its
// tag has no omitempty, but for the few in optional. Enumerations, unions and
// defaults are not described.
type models struct {
	v2          bool
	definitions map[string]*spec.Schema
}

func newModels(v2 bool) *models {
	return &models{v2: v2, definitions: make(map[string]*spec.Schema)}
}

// refTo returns a reference to a model.
func (m *models) refTo(name string) *spec.Schema {
	if m.v2 {
		return spec.RefSchema("#/definitions/" + name)
	}
	return spec.RefSchema("#/components/schemas/" + name)
}

// add describes a type and returns its model's name.
func (m *models) add(t reflect.Type) string {
	name := modelName(t)
	if _, ok := m.definitions[name]; ok {
		return name
	}
	s := new(spec.Schema)
	m.definitions[name] = s // before its fields, which may be of the same type
	s.Description = docOf(t)[""]
	if m.scalar(t, s) {
		return name
	}
	s.Type = spec.StringOrArray{"object"}
	merge := mergeFields(name)
	if merge != nil && merge.ElementRelationship == smdschema.Atomic {
		s.AddExtension(mapTypeExtension, "atomic")
	}
	m.addFields(t, s, merge)
	s.Required = slices.DeleteFunc(s.Required, func(field string) bool { return slices.Contains(optional[name], field) })
	slices.Sort(s.Required)
	return name
}

// described are the interfaces of types that describe themselves.
type (
	typed     interface{ OpenAPISchemaType() []string }
	formatted interface{ OpenAPISchemaFormat() string }
	oneOf     interface{ OpenAPIV3OneOfTypes() []string }
	named     interface{ OpenAPIModelName() string }
	commented interface{ SwaggerDoc() map[string]string }
)

// scalar describes a struct that is written as something else: a time, a
// quantity.
func (m *models) scalar(t reflect.Type, s *spec.Schema) bool {
	v := reflect.New(t).Interface()
	d, ok := v.(typed)
	if !ok {
		// Structs that are written as whatever they hold.
		if t == reflect.TypeFor[metav1.FieldsV1]() || t.Name() == "RawExtension" {
			s.Type = spec.StringOrArray{"object"}
			return true
		}
		return false
	}
	if f, ok := v.(formatted); ok {
		s.Format = f.OpenAPISchemaFormat()
	}
	if several, ok := v.(oneOf); ok && !m.v2 {
		for _, kind := range several.OpenAPIV3OneOfTypes() {
			s.OneOf = append(s.OneOf, *new(spec.Schema).Typed(kind, ""))
		}
		return true
	}
	s.Type = d.OpenAPISchemaType()
	return true
}

// addFields describes the fields of a struct, and those of the structs that it
// embeds inline.
func (m *models) addFields(t reflect.Type, s *spec.Schema, merge *smdschema.Map) {
	docs := docOf(t)
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" && f.Anonymous {
			m.addFields(f.Type, s, merge)
			continue
		}
		property := m.of(f.Type)
		if doc := docs[name]; doc != "" {
			property = m.withDescription(property, doc)
		}
		if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
			property.AddExtension(strategyExtension, strategy)
		}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			property.AddExtension(mergeKeyExtension, key)
		}
		if merge != nil {
			if field, ok := merge.FindField(name); ok {
				addMerge(property, field.Type)
			}
		}
		s.SetProperty(name, *property)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			s.Required = append(s.Required, name)
		}
	}
}

// of describes the type of a field.
func (m *models) of(t reflect.Type) *spec.Schema {
	switch t.Kind() {
	case reflect.Pointer:
		return m.of(t.Elem())
	case reflect.Struct:
		return m.refTo(m.add(t))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return spec.StrFmtProperty("byte")
		}
		return spec.ArrayProperty(m.of(t.Elem()))
	case reflect.Map:
		return spec.MapProperty(m.of(t.Elem()))
	case reflect.Bool:
		return spec.BoolProperty()
	case reflect.Int32, reflect.Uint8, reflect.Int8, reflect.Int16, reflect.Uint16:
		return spec.Int32Property()
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return spec.Int64Property()
	case reflect.Float32, reflect.Float64:
		return spec.Float64Property()
	case reflect.Interface:
		return new(spec.Schema).Typed("object", "")
	}
	return spec.StringProperty()
}

// withDescription says what a field is for. OpenAPI v3 takes nothing beside a
// reference, which is wrapped therefore.
func (m *models) withDescription(s *spec.Schema, doc string) *spec.Schema {
	if s.Ref.String() != "" && !m.v2 {
		s = &spec.Schema{SchemaProps: spec.SchemaProps{AllOf: []spec.Schema{*s}}}
	}
	return s.WithDescription(doc)
}

// addMerge says how several managers share a list or a map.
func addMerge(s *spec.Schema, ref smdschema.TypeRef) {
	if list := ref.Inlined.List; list != nil {
		switch {
		case list.ElementRelationship == smdschema.Atomic:
			s.AddExtension(listTypeExtension, "atomic")
		case len(list.Keys) == 0:
			s.AddExtension(listTypeExtension, "set")
		default:
			keys := make([]any, 0, len(list.Keys))
			for _, k := range list.Keys {
				keys = append(keys, k)
			}
			s.AddExtension(listTypeExtension, "map")
			s.AddExtension(listKeysExtension, keys)
		}
	}
	atomic := ref.Inlined.Map != nil && ref.Inlined.Map.ElementRelationship == smdschema.Atomic
	if ref.ElementRelationship != nil && *ref.ElementRelationship == smdschema.Atomic {
		atomic = true
	}
	if atomic {
		s.AddExtension(mapTypeExtension, "atomic")
	}
}

// mergeSchema is client-go's schema for server-side apply.
var mergeSchema = sync.OnceValue(func() *smdschema.Schema {

	kind := corev1.SchemeGroupVersion.WithKind("Namespace")
	obj, err := scheme.Scheme.New(kind)
	if err != nil {
		return &smdschema.Schema{}
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	value, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(obj)
	if err != nil {
		return &smdschema.Schema{}
	}
	return value.Schema()
})

// mergeFields returns what that schema says of a model, nil if nothing.
func mergeFields(name string) *smdschema.Map {
	def, ok := mergeSchema().FindNamedType(name)
	if !ok {
		return nil
	}
	return def.Map
}

// modelName returns what OpenAPI calls a type: its own word for it, or its
// package with the domain reversed.
func modelName(t reflect.Type) string {
	if n, ok := reflect.New(t).Interface().(named); ok {
		return n.OpenAPIModelName()
	}
	domain, rest, _ := strings.Cut(t.PkgPath(), "/")
	return reversed(domain) + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}

// reversed returns "io.k8s" for "k8s.io".
func reversed(domain string) string {
	parts := strings.Split(domain, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

func docOf(t reflect.Type) map[string]string {
	if c, ok := reflect.New(t).Interface().(commented); ok {
		return c.SwaggerDoc()
	}
	return nil
}

// addKind describes the objects of a resource and lists of them, and returns
// the names of both models.
func (m *models) addKind(res *resources.Resource) (object, list string) {
	if res.Typed {
		object = m.addTyped(res.GVK)
		list = m.addTyped(res.GroupVersion().WithKind(res.ListKind))
		return object, list
	}
	object = reversed(res.GVR.Group) + "." + res.GVR.Version + "." + res.GVK.Kind
	list = object + "List"
	m.addCustom(object, res)
	m.addList(list, object, res)
	return object, list
}

// addTyped describes a kind that client-go has a type for; "" if it has none.
func (m *models) addTyped(kind schema.GroupVersionKind) string {
	t, ok := scheme.Scheme.AllKnownTypes()[kind]
	if !ok {
		return ""
	}
	name := m.add(t)
	m.definitions[name].AddExtension(kindExtension, []any{kindMap(kind)})
	return name
}

func kindMap(kind schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}
}

// addCustom describes a kind by its definition's schema. One that has none,
// CustomResourceDefinition itself, may have any field.
func (m *models) addCustom(name string, res *resources.Resource) {
	s := new(spec.Schema).Typed("object", "")
	if res.Custom != nil {
		*s = *res.Custom.Schema
		properties := make(map[string]spec.Schema, len(s.Properties)+3)
		for k, v := range s.Properties {
			properties[k] = v
		}
		s.Properties = properties
		extensions := make(spec.Extensions, len(s.Extensions)+1)
		for k, v := range s.Extensions {
			extensions[k] = v
		}
		s.Extensions = extensions
	} else {
		s.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	}
	docs := docOf(reflect.TypeFor[metav1.TypeMeta]())
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(docs["apiVersion"]))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(docs["kind"]))
	metadata := m.refTo(m.add(reflect.TypeFor[metav1.ObjectMeta]()))
	s.SetProperty("metadata", *m.withDescription(metadata, "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"))
	s.AddExtension(kindExtension, []any{kindMap(res.GVK)})
	m.definitions[name] = s
}

func (m *models) addList(name, object string, res *resources.Resource) {
	docs := docOf(reflect.TypeFor[metav1.TypeMeta]())
	s := new(spec.Schema).Typed("object", "").WithDescription(res.ListKind + " is a list of " + res.GVK.Kind)
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(docs["apiVersion"]))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(docs["kind"]))
	s.SetProperty("metadata", *m.refTo(m.add(reflect.TypeFor[metav1.ListMeta]())))
	s.SetProperty("items", *spec.ArrayProperty(m.refTo(object)).WithDescription("List of " + res.GVR.Resource + "."))
	s.Required = []string{"items"}
	s.AddExtension(kindExtension, []any{kindMap(res.GroupVersion().WithKind(res.ListKind))})
	m.definitions[name] = s
}
