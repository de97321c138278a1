package resources

import (
	_ "embed" // the optional fields
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// Content types of OpenAPI in protobuf.
const (
	protoV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// addOpenAPI adds the OpenAPI documents: v2 of everything, v3 of each version, and
// the index of v3, whose hashes let clients keep documents.
func (d *documents) addOpenAPI() {
	d.byPath["/openapi/v2"] = inProtobuf(protoV2, func() any { return swagger(true, d.versions...) },
		func(text []byte) (proto.Message, error) { return openapi_v2.ParseDocument(text) })
	for _, v := range d.versions {
		d.byPath["/openapi/v3"+pathOf(v.GroupVersion)] = inProtobuf(protoV3, func() any { return openAPIv3(v) },
			func(text []byte) (proto.Message, error) { return openapi_v3.ParseDocument(text) })
	}
	d.byPath["/openapi/v3"] = document{inJSON(plainJSON, func() any {
		type entry struct {
			URL string `json:"serverRelativeURL"`
		}
		paths := map[string]entry{}
		for _, v := range d.versions {
			path := pathOf(v.GroupVersion)
			_, etag := d.byPath["/openapi/v3"+path][0].encoded()
			paths[path[1:]] = entry{"/openapi/v3" + path + "?hash=" + etag}
		}
		return map[string]any{"paths": paths}
	})}
}

// inProtobuf returns a document in JSON and protobuf.
func inProtobuf(contentType string, value func() any, parse func([]byte) (proto.Message, error)) document {
	text := inJSON(plainJSON, value)
	return document{text, newEncoding(contentType, func() ([]byte, error) {
		body, _ := text.encoded()
		message, err := parse(body)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(message)
	})}
}

// openAPIv3 converts the OpenAPI v2 document of a version.
func openAPIv3(v *groupVersion) *spec3.OpenAPI {
	doc := swagger(false, v)
	v3 := openapiconv.ConvertV2ToV3(doc)
	v3.Version = "3.0.0"
	for t, kinds := range map[reflect.Type][]string{
		reflect.TypeFor[intstr.IntOrString](): intstr.IntOrString{}.OpenAPIV3OneOfTypes(),
		reflect.TypeFor[resource.Quantity]():  resource.Quantity{}.OpenAPIV3OneOfTypes(),
	} {
		if s, ok := v3.Components.Schemas[modelName(t)]; ok {
			s.Type, s.OneOf = nil, common.GenerateOpenAPIV3OneOfSchema(kinds)
		}
	}
	return v3
}

// swagger returns the OpenAPI v2 document of some versions. With simple, custom resources have only what v2 can express.
func swagger(simple bool, versions ...*groupVersion) *spec.Swagger {
	m := models{}
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Definitions: spec.Definitions{}, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}},
		Info: &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes (simulated by watchlab)", Version: Version}},
	}}
	for _, v := range versions {
		for _, res := range v.resources {
			m.addKind(res, simple)
			for _, r := range routes(res) {
				doc.Paths.Paths[r.path] = r.item()
			}
		}
	}
	for name, s := range m {
		doc.Definitions[name] = *s
	}
	return doc
}

// route is a path and its verbs.
type route struct {
	path  string
	verbs []string
	kind  schema.GroupVersionKind
}

// routes returns the paths of a resource and its subresources.
func routes(res *Resource) []route {
	collection := res.Path("")
	var all []route
	if res.Namespaced {
		if res.Can(List) {
			all = append(all, route{collection, []string{List}, res.GVK})
		}
		collection = res.Path("{namespace}")
	}
	pick := func(from []string, wanted ...string) []string {
		return slices.DeleteFunc(wanted, func(verb string) bool { return !slices.Contains(from, verb) })
	}
	all = append(all,
		route{collection, pick(res.Verbs, List, Create, DeleteCollection), res.GVK},
		route{collection + "/{name}", pick(res.Verbs, Get, Update, Patch, Delete), res.GVK},
	)
	for _, sub := range res.Subresources {
		all = append(all, route{collection + "/{name}/" + sub.Name, pick(sub.Verbs, Get, Create, Update, Patch), sub.Kind})
	}
	return all
}

// operations are, for each verb, the action, the parameters and the operation of a path.
var operations = map[string]struct {
	action, parameters string
	of                 func(*spec.PathItem) **spec.Operation
}{
	Get:              {"get", "", func(p *spec.PathItem) **spec.Operation { return &p.Get }},
	List:             {"list", "", func(p *spec.PathItem) **spec.Operation { return &p.Get }},
	Create:           {"post", "dryRun fieldManager fieldValidation", func(p *spec.PathItem) **spec.Operation { return &p.Post }},
	Update:           {"put", "dryRun fieldManager fieldValidation", func(p *spec.PathItem) **spec.Operation { return &p.Put }},
	Patch:            {"patch", "dryRun fieldManager fieldValidation force", func(p *spec.PathItem) **spec.Operation { return &p.Patch }},
	Delete:           {"delete", "dryRun", func(p *spec.PathItem) **spec.Operation { return &p.Delete }},
	DeleteCollection: {"deletecollection", "dryRun", func(p *spec.PathItem) **spec.Operation { return &p.Delete }},
}

// item describes the verbs of a route: the kind, by which clients find it, and the parameters of
// writes, by which they find out what a server can do. Bodies and answers are not described.
func (r route) item() (item spec.PathItem) {
	for _, verb := range r.verbs {
		o := operations[verb]
		op := &spec.Operation{}
		op.AddExtension("x-kubernetes-action", o.action)
		op.AddExtension(kindExtension, kindMap(r.kind))
		for name := range strings.FieldsSeq(o.parameters) {
			op.Parameters = append(op.Parameters, spec.Parameter{
				ParamProps: spec.ParamProps{Name: name, In: "query"}, SimpleSchema: spec.SimpleSchema{Type: "string"},
			})
		}
		op.Responses = &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			http.StatusOK: {ResponseProps: spec.ResponseProps{Description: "OK"}},
		}}}
		*o.of(&item) = op
	}
	return item
}

// Extensions of Kubernetes' schemas.
const (
	kindExtension     = "x-kubernetes-group-version-kind"
	listTypeExtension = "x-kubernetes-list-type"
	listKeysExtension = "x-kubernetes-list-map-keys"
	mapTypeExtension  = "x-kubernetes-map-type"
	strategyExtension = "x-kubernetes-patch-strategy"
	mergeKeyExtension = "x-kubernetes-patch-merge-key"
)

// models collects the OpenAPI v2 definitions of Go types and of the types of their fields. Merge
// rules (which lists are maps) come from client-go's schema for server-side apply.
//
// Descriptions are the API's own documentation. A field is required if its tag lacks
// omitempty, except for the few in required. Enumerations, unions and defaults are
// not described. The keys are model names, "io.k8s.api.core.v1.Pod".
type models map[string]*spec.Schema

func refTo(name string) *spec.Schema { return spec.RefSchema("#/definitions/" + name) }

// add adds the definition of a type and returns its name.
func (m models) add(t reflect.Type) string {
	name := modelName(t)
	if _, ok := m[name]; ok {
		return name
	}
	s := new(spec.Schema)
	m[name] = s // before its fields, which may be of the same type
	s.Description = docOf(t)[""]
	if scalar(t, s) {
		return name
	}
	s.Type = spec.StringOrArray{"object"}
	def, _ := MergeTypes().Schema.FindNamedType(name)
	merge := def.Map
	if merge != nil && merge.ElementRelationship == smdschema.Atomic {
		s.AddExtension(mapTypeExtension, "atomic")
	}
	m.addFields(t, s, merge)
	s.Required = slices.DeleteFunc(s.Required, func(field string) bool { return required().Has("-" + name + "." + field) })
	for field := range s.Properties {
		if required().Has("+"+name+"."+field) && !slices.Contains(s.Required, field) {
			s.Required = append(s.Required, field)
		}
	}
	slices.Sort(s.Required)
	return name
}

// scalar describes a struct that is encoded as a scalar: a time, a quantity.
func scalar(t reflect.Type, s *spec.Schema) bool {
	v := reflect.New(t).Interface()
	if f, ok := v.(interface{ OpenAPISchemaFormat() string }); ok {
		s.Format = f.OpenAPISchemaFormat()
	}
	if d, ok := v.(interface{ OpenAPISchemaType() []string }); ok {
		s.Type = d.OpenAPISchemaType()
	} else if t == reflect.TypeFor[metav1.FieldsV1]() || t.Name() == "RawExtension" {
		s.Type = spec.StringOrArray{"object"} // encoded as their content
	}
	return len(s.Type) > 0
}

// addFields describes the fields of a struct and of the structs that it embeds inline.
func (m models) addFields(t reflect.Type, s *spec.Schema, merge *smdschema.Map) {
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
			property.WithDescription(doc)
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
func (m models) of(t reflect.Type) *spec.Schema {
	switch t.Kind() {
	case reflect.Pointer:
		return m.of(t.Elem())
	case reflect.Struct:
		return refTo(m.add(t))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return spec.StrFmtProperty("byte")
		}
		return spec.ArrayProperty(m.of(t.Elem()))
	case reflect.Map:
		return spec.MapProperty(m.of(t.Elem()))
	case reflect.Interface:
		return new(spec.Schema).Typed("object", "")
	}
	return new(spec.Schema).Typed(common.OpenAPITypeFormat(t.Kind().String()))
}

// addMerge adds how field managers share a list or a map.
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

// modelName returns the type's own OpenAPI name, or its package with the domain reversed.
func modelName(t reflect.Type) string {
	if n, ok := reflect.New(t).Interface().(util.OpenAPIModelNamer); ok {
		return n.OpenAPIModelName()
	}
	return util.ToRESTFriendlyName(t.PkgPath() + "." + t.Name())
}

func docOf(t reflect.Type) map[string]string {
	if c, ok := reflect.New(t).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		return c.SwaggerDoc()
	}
	return nil
}

func (m models) addKind(res *Resource, simple bool) {
	if !res.Typed() {
		m.addCustom(res, simple)
		return
	}
	for _, kind := range []schema.GroupVersionKind{res.GVK, res.GroupVersion().WithKind(res.ListKind)} {
		if t, ok := Scheme.AllKnownTypes()[kind]; ok {
			m[m.add(t)].AddExtension(kindExtension, []any{kindMap(kind)})
		}
	}
}

// Models returns the OpenAPI definitions of all versions of a custom resource, for
// server-side apply.
func (c *Custom) Models() map[string]*spec.Schema {
	m := models{}
	for _, res := range c.Versions {
		m.addKind(res, false)
	}
	return m
}

func kindMap(kind schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": kind.Group, "version": kind.Version, "kind": kind.Kind}
}

// addCustom adds the definitions of a custom resource and of its lists. A simple one is as in v2 of kube-apiserver v1.37.2,
// without what misleads kubectl: all fields of an object that may have others, for example.
func (m models) addCustom(res *Resource, simple bool) {
	name := util.ToRESTFriendlyName(res.GroupVersion().String() + "." + res.GVK.Kind)
	s := *res.Custom.Schema
	s.Properties, s.Extensions = maps.Clone(s.Properties), maps.Clone(s.Extensions)
	metadata := refTo(m.add(reflect.TypeFor[metav1.ObjectMeta]()))
	metadata.WithDescription("Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata")
	switch {
	case simple && res.Custom.Structural.XPreserveUnknownFields:
		m[name] = new(spec.Schema).Typed("object", "")
		m[name].AddExtension(kindExtension, []any{kindMap(res.GVK)})
	case simple:
		m.addObject(name, openapiv2.ToStructuralOpenAPIV2(res.Custom.Structural).ToKubeOpenAPI(), res.GVK, metadata)
	default:
		m.addObject(name, &s, res.GVK, metadata)
	}

	list := new(spec.Schema).Typed("object", "").WithDescription(res.ListKind + " is a list of " + res.GVK.Kind)
	list.SetProperty("items", *spec.ArrayProperty(refTo(name)).WithDescription("List of " + res.GVR.Resource + "."))
	list.Required = []string{"items"}
	m.addObject(name+"List", list, res.GroupVersion().WithKind(res.ListKind), refTo(m.add(reflect.TypeFor[metav1.ListMeta]())))
}

// addObject adds the definition of an object with the fields of all objects.
func (m models) addObject(name string, s *spec.Schema, kind schema.GroupVersionKind, metadata *spec.Schema) {
	docs := docOf(reflect.TypeFor[metav1.TypeMeta]())
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(docs["apiVersion"]))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(docs["kind"]))
	s.SetProperty("metadata", *metadata)
	s.AddExtension(kindExtension, []any{kindMap(kind)})
	m[name] = s
}

// requiredText lists the fields whose Go tags do not tell whether they are required: +, they are; -, they are not. A
// comparison with kube-apiserver v1.37.2 found them.
//
//go:embed required.txt
var requiredText string

var required = sync.OnceValue(func() sets.Set[string] { return sets.New(strings.Fields(requiredText)...) })
