package resources

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"github.com/munnerz/goautoneg"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Content types of OpenAPI in protobuf.
const (
	protoV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// encodings holds a document in JSON and in protobuf.
type encodings struct {
	json, proto func() *document
	// protoType is the media type of proto.
	protoType string
}

// addOpenAPI adds the OpenAPI documents: v2 of everything, v3 of each version, and
// the index of v3, whose hashes let clients keep documents.
func (d *documents) addOpenAPI() {
	d.encoded["/openapi/v2"] = newEncodings(protoV2, func() any { return swagger(d.versions...) },
		func(text []byte) (proto.Message, error) { return openapi_v2.ParseDocument(text) })
	for _, v := range d.versions {
		d.encoded["/openapi/v3"+v.path()] = newEncodings(protoV3, func() any { return openAPIv3(v) },
			func(text []byte) (proto.Message, error) { return openapi_v3.ParseDocument(text) })
	}
	d.plain["/openapi/v3"] = lazily(func() any {
		type entry struct {
			URL string `json:"serverRelativeURL"`
		}
		paths := map[string]entry{}
		for _, v := range d.versions {
			url := "/openapi/v3" + v.path()
			paths[v.path()[1:]] = entry{url + "?hash=" + d.encoded[url].json().etag}
		}
		return map[string]any{"paths": paths}
	})
}

func newEncodings(protoType string, value func() any, parse func([]byte) (proto.Message, error)) encodings {
	e := encodings{protoType: protoType, json: lazily(value)}
	e.proto = sync.OnceValue(func() *document {
		message, err := parse(e.json().body)
		if err != nil {
			panic("discovery: OpenAPI: " + err.Error()) // the types are known
		}
		body, err := proto.Marshal(message)
		if err != nil {
			panic("discovery: OpenAPI: " + err.Error()) // the types are known
		}
		return newDocument(body)
	})
	return e
}

// serve answers in the encoding that the client prefers. Clients ask for protobuf
// with a dot or an at sign.
func (e encodings) serve(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Vary", "Accept")
	accept := req.Header.Get("Accept")
	if accept == "" {
		accept = plainJSON
	}
	for _, a := range goautoneg.ParseAccept(accept) {
		switch t := a.Type + "/" + strings.Replace(a.SubType, "@v1.0", ".v1.0", 1); t {
		case "*/*", "application/*", plainJSON:
			answer(w, req, e.json, plainJSON)
			return
		case e.protoType:
			answer(w, req, e.proto, e.protoType)
			return
		}
	}
	http.Error(w, "406 not acceptable: "+plainJSON+" and "+e.protoType+" are", http.StatusNotAcceptable)
}

// openAPIv3 converts the OpenAPI v2 document of a version.
func openAPIv3(v *groupVersion) *spec3.OpenAPI {
	doc := swagger(v)
	v3 := openapiconv.ConvertV2ToV3(doc)
	v3.Version = "3.0.0"
	for name, kinds := range oneOfTypes(doc.Definitions) {
		s := v3.Components.Schemas[name]
		s.Type = nil
		for _, kind := range kinds {
			s.OneOf = append(s.OneOf, *new(spec.Schema).Typed(kind, ""))
		}
	}
	return v3
}

// swagger returns the OpenAPI v2 document of some versions.
func swagger(versions ...*groupVersion) *spec.Swagger {
	m := newModels()
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Definitions: spec.Definitions{}, Paths: &spec.Paths{Paths: map[string]spec.PathItem{}},
		Info: &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes (simulated by watchlab)", Version: Version}},
	}}
	for _, v := range versions {
		for _, res := range v.resources {
			object, list := m.addKind(res)
			for _, r := range v.routes(res) {
				body := object
				if r.kind != res.GVK {
					if body = m.addTyped(r.kind); body == "" {
						continue
					}
				}
				doc.Paths.Paths[r.path] = pathItem(r, res, m, body, list)
			}
		}
	}
	for name, s := range m.definitions {
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
func (v *groupVersion) routes(res *Resource) []route {
	collection := v.path() + "/" + res.GVR.Resource
	var all []route
	if res.Namespaced {
		if res.Can(List) {
			all = append(all, route{collection, []string{List}, res.GVK})
		}
		collection = v.path() + "/namespaces/{namespace}/" + res.GVR.Resource
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

// operations are, for each verb, the action and the operation of a path.
var operations = map[string]struct {
	action string
	of     func(*spec.PathItem) **spec.Operation
}{
	Get:              {"get", func(p *spec.PathItem) **spec.Operation { return &p.Get }},
	List:             {"list", func(p *spec.PathItem) **spec.Operation { return &p.Get }},
	Create:           {"post", func(p *spec.PathItem) **spec.Operation { return &p.Post }},
	Update:           {"put", func(p *spec.PathItem) **spec.Operation { return &p.Put }},
	Patch:            {"patch", func(p *spec.PathItem) **spec.Operation { return &p.Patch }},
	Delete:           {"delete", func(p *spec.PathItem) **spec.Operation { return &p.Delete }},
	DeleteCollection: {"deletecollection", func(p *spec.PathItem) **spec.Operation { return &p.Delete }},
}

// pathItem describes the verbs of a route: the kinds, the bodies and the parameters of
// writes, by which clients find out what a server can do.
func pathItem(r route, res *Resource, m *models, body, list string) spec.PathItem {
	var item spec.PathItem
	for _, verb := range r.verbs {
		op := &spec.Operation{OperationProps: spec.OperationProps{Produces: []string{plainJSON}, Consumes: []string{"*/*"}}}
		op.AddExtension("x-kubernetes-action", operations[verb].action)
		op.AddExtension(kindExtension, kindMap(r.kind))
		parameters := func(in string, names ...string) {
			for _, name := range names {
				op.Parameters = append(op.Parameters, spec.Parameter{
					ParamProps:   spec.ParamProps{Name: name, In: in, Required: in == "path"},
					SimpleSchema: spec.SimpleSchema{Type: "string"},
				})
			}
		}
		for _, name := range []string{"namespace", "name"} {
			if strings.Contains(r.path, "{"+name+"}") {
				parameters("path", name)
			}
		}
		sent, answer := "", body
		switch verb {
		case List:
			answer = list
		case Create, Update:
			sent = body
			parameters("query", "dryRun", "fieldManager", "fieldValidation")
		case Patch:
			sent = m.add(reflect.TypeFor[metav1.Patch]())
			parameters("query", "dryRun", "fieldManager", "fieldValidation", "force")
			op.Consumes = []string{"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"}
			if res.Typed {
				op.Consumes = append(op.Consumes, "application/strategic-merge-patch+json")
			}
		case Delete, DeleteCollection:
			answer = m.add(reflect.TypeFor[metav1.Status]())
			if sent = m.addTyped(res.GroupVersion().WithKind("DeleteOptions")); sent == "" {
				sent = m.add(reflect.TypeFor[metav1.DeleteOptions]())
			}
			parameters("query", "dryRun")
		}
		if sent != "" {
			op.Parameters = append(op.Parameters, spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: true, Schema: refTo(sent)}})
		}
		op.Responses = &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			http.StatusOK: {ResponseProps: spec.ResponseProps{Description: "OK", Schema: refTo(answer)}},
		}}}
		*operations[verb].of(&item) = op
	}
	return item
}
