package discovery

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/gnostic-models/openapiv2"
	"github.com/google/gnostic-models/openapiv3"
	"github.com/munnerz/goautoneg"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"watchlab/loadgen/apiserver/resources"
)

// Content types of OpenAPI in protobuf, as they are asked for with a dot or an
// at sign and answered.
const (
	protoV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// openAPI are the documents of OpenAPI, each in JSON and in protobuf.
type openAPI struct {
	v2    encodings
	index func() *document
	v3    map[string]encodings
}

// encodings are a document in JSON and in protobuf.
type encodings struct {
	json, proto func() *document
	protoType   string
}

func newOpenAPI(d *documents) openAPI {
	o := openAPI{v3: make(map[string]encodings)}
	o.v2 = encodings{protoType: protoV2, json: lazily(func() any { return d.swagger() })}
	o.v2.proto = translated(o.v2.json, func(text []byte) (proto.Message, error) { return openapi_v2.ParseDocument(text) })
	for _, g := range d.groups {
		for _, v := range g.versions {
			e := encodings{protoType: protoV3, json: lazily(func() any { return d.openAPIOf(v) })}
			e.proto = translated(e.json, func(text []byte) (proto.Message, error) { return openapi_v3.ParseDocument(text) })
			o.v3[strings.TrimPrefix(v.path(), "/")] = e
		}
	}
	o.index = lazily(func() any { return d.openAPIIndex() })
	return o
}

// translated makes a document's protobuf of its JSON, when it is first asked
// for.
func translated(text func() *document, parse func([]byte) (proto.Message, error)) func() *document {
	return sync.OnceValue(func() *document {
		message, err := parse(text().body)
		if err != nil {
			panic("discovery: OpenAPI: " + err.Error())
		}
		body, err := proto.Marshal(message)
		if err != nil {
			panic("discovery: OpenAPI: " + err.Error())
		}
		return newDocument(body)
	})
}

func (d *documents) serveOpenAPI(w http.ResponseWriter, req *http.Request, parts []string) {
	switch {
	case len(parts) == 1 && parts[0] == "v2":
		d.openapi.v2.serve(w, req)
	case len(parts) == 1 && parts[0] == "v3":
		answer(w, req, d.openapi.index, plainJSON)
	case len(parts) > 1 && parts[0] == "v3":
		e, ok := d.openapi.v3[strings.Join(parts[1:], "/")]
		if !ok {
			http.NotFound(w, req)
			return
		}
		e.serve(w, req)
	default:
		http.NotFound(w, req)
	}
}

// serve answers in the encoding that the client prefers.
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

// openAPIIndex names the document of each version, with a hash that changes
// with it, so that clients can keep what they have.
func (d *documents) openAPIIndex() any {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	index := struct {
		Paths map[string]entry `json:"paths"`
	}{Paths: make(map[string]entry)}
	for path, e := range d.openapi.v3 {
		index.Paths[path] = entry{URL: "/openapi/v3/" + path + "?hash=" + e.json().etag}
	}
	return index
}

// title and about head each document.
const title = "Kubernetes (simulated by watchlab)"

func about() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: title, Version: Version}}
}

// openAPIOf is the OpenAPI v3 document of a version.
func (d *documents) openAPIOf(v *groupVersion) *spec3.OpenAPI {
	m := newModels(false)
	doc := &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       about(),
		Paths:      &spec3.Paths{Paths: make(map[string]*spec3.Path)},
		Components: &spec3.Components{},
	}
	deleted := m.addTyped(v.gv.WithKind("DeleteOptions"))
	if deleted == "" {
		deleted = m.add(reflect.TypeFor[metav1.DeleteOptions]())
	}
	patch := m.add(reflect.TypeFor[metav1.Patch]())
	status := m.add(reflect.TypeFor[metav1.Status]())
	for _, res := range v.resources {
		object, list := m.addKind(res)
		for _, route := range d.routes(v, res) {
			path := new(spec3.Path)
			body := object
			if route.kind != res.GVK {
				if body = m.addTyped(route.kind); body == "" {
					continue
				}
			}
			for _, verb := range route.verbs {
				op := operation(verb, route, m)
				answer := body
				switch verb {
				case resources.List:
					answer = list
				case resources.Delete, resources.DeleteCollection:
					answer = status
				}
				op.Responses = responses(m.refTo(answer))
				switch verb {
				case resources.Create, resources.Update:
					op.RequestBody = requestBody(m.refTo(body), "*/*")
				case resources.Delete, resources.DeleteCollection:
					op.RequestBody = requestBody(m.refTo(deleted), "*/*")
				case resources.Patch:
					op.RequestBody = requestBody(m.refTo(patch), patchTypes(res)...)
				}
				setOperation(path, verb, op)
			}
			doc.Paths.Paths[route.path] = path
		}
	}
	doc.Components.Schemas = m.definitions
	return doc
}

// route is a path with what can be done there.
type route struct {
	path        string
	verbs       []string
	res         *resources.Resource
	subresource string
	kind        schema.GroupVersionKind
}

// routes returns the paths of a resource and its subresources.
func (d *documents) routes(v *groupVersion, res *resources.Resource) []route {
	collection := v.path() + "/" + res.GVR.Resource
	var all []route
	if res.Namespaced {
		if res.Can(resources.List) {
			all = append(all, route{path: collection, verbs: []string{resources.List}, res: res, kind: res.GVK})
		}
		collection = v.path() + "/namespaces/{namespace}/" + res.GVR.Resource
	}
	pick := func(from []string, wanted ...string) []string {
		return slices.DeleteFunc(slices.Clone(wanted), func(verb string) bool { return !slices.Contains(from, verb) })
	}
	all = append(all,
		route{path: collection, verbs: pick(res.Verbs, resources.List, resources.Create, resources.DeleteCollection), res: res, kind: res.GVK},
		route{path: collection + "/{name}", verbs: pick(res.Verbs, resources.Get, resources.Update, resources.Patch, resources.Delete), res: res, kind: res.GVK},
	)
	for _, sub := range d.subresources(res) {
		all = append(all, route{
			path: collection + "/{name}/" + sub.Name, verbs: pick(sub.Verbs, resources.Get, resources.Create, resources.Update, resources.Patch),
			res: res, subresource: sub.Name, kind: sub.Kind,
		})
	}
	return all
}

// actions are what OpenAPI calls verbs.
var actions = map[string]string{
	resources.Get: "get", resources.List: "list", resources.Create: "post", resources.Update: "put",
	resources.Patch: "patch", resources.Delete: "delete", resources.DeleteCollection: "deletecollection",
}

// operation describes what a verb does at a route, all but its body and its
// answers.
func operation(verb string, r route, m *models) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		OperationId: operationID(verb, r), Description: verb + " " + r.kind.Kind,
		Tags: []string{strings.ReplaceAll(r.res.GroupVersion().String(), "/", "_")},
	}}
	op.AddExtension("x-kubernetes-action", actions[verb])
	op.AddExtension(kindExtension, kindMap(r.kind))
	for _, p := range parameters(verb, r.path) {
		op.Parameters = append(op.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
			Name: p.name, In: p.in, Required: p.in == "path",
			Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{p.kind}, UniqueItems: true}},
		}})
	}
	return op
}

func operationID(verb string, r route) string {
	id := verb + exported(r.res.GVR.Group) + exported(r.res.GVR.Version)
	if strings.Contains(r.path, "{namespace}") {
		id += "Namespaced"
	}
	id += exported(r.res.GVR.Resource) + exported(r.subresource)
	if verb == resources.List && r.res.Namespaced && !strings.Contains(r.path, "{namespace}") {
		id += "ForAllNamespaces"
	}
	return id
}

// exported returns a name with capitals instead of dots: "AppsV1".
func exported(name string) string {
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '.' || r == '-' }) {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

type parameter struct{ name, in, kind string }

// parameters returns those of a verb: what the simulated server looks at.
func parameters(verb, path string) []parameter {
	query := func(kind string, names ...string) []parameter {
		var all []parameter
		for _, n := range names {
			all = append(all, parameter{n, "query", kind})
		}
		return all
	}
	var all []parameter
	switch verb {
	case resources.List:
		all = append(query("string", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "continue"),
			append(query("boolean", "watch", "allowWatchBookmarks", "sendInitialEvents"), query("integer", "limit", "timeoutSeconds")...)...)
	case resources.Create, resources.Update:
		all = query("string", "dryRun", "fieldManager", "fieldValidation")
	case resources.Patch:
		all = append(query("string", "dryRun", "fieldManager", "fieldValidation"), query("boolean", "force")...)
	case resources.Delete:
		all = append(query("string", "dryRun", "propagationPolicy"), query("integer", "gracePeriodSeconds")...)
	case resources.DeleteCollection:
		all = query("string", "dryRun", "labelSelector", "fieldSelector", "propagationPolicy")
	}
	for _, name := range []string{"namespace", "name"} {
		if strings.Contains(path, "{"+name+"}") {
			all = append(all, parameter{name, "path", "string"})
		}
	}
	return all
}

func patchTypes(res *resources.Resource) []string {
	all := []string{"application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"}
	if res.Typed {
		all = append(all, "application/strategic-merge-patch+json")
	}
	return all
}

func requestBody(s *spec.Schema, mediaTypes ...string) *spec3.RequestBody {
	return &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Content: content(s, mediaTypes...), Required: true}}
}

func responses(s *spec.Schema) *spec3.Responses {
	return &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
		http.StatusOK:           {ResponseProps: spec3.ResponseProps{Description: "OK", Content: content(s, plainJSON)}},
		http.StatusUnauthorized: {ResponseProps: spec3.ResponseProps{Description: "Unauthorized"}},
	}}}
}

func content(s *spec.Schema, mediaTypes ...string) map[string]*spec3.MediaType {
	all := make(map[string]*spec3.MediaType, len(mediaTypes))
	for _, t := range mediaTypes {
		all[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: s}}
	}
	return all
}

func setOperation(path *spec3.Path, verb string, op *spec3.Operation) {
	switch verb {
	case resources.Get, resources.List:
		path.Get = op
	case resources.Create:
		path.Post = op
	case resources.Update:
		path.Put = op
	case resources.Patch:
		path.Patch = op
	case resources.Delete, resources.DeleteCollection:
		path.Delete = op
	}
}

// swagger is the OpenAPI v2 document of everything.
func (d *documents) swagger() *spec.Swagger {
	m := newModels(true)
	doc := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: about(), Definitions: make(spec.Definitions),
		Paths: &spec.Paths{Paths: make(map[string]spec.PathItem)},
	}}
	for _, g := range d.groups {
		for _, v := range g.versions {
			for _, res := range v.resources {
				object, list := m.addKind(res)
				for _, r := range d.routes(v, res) {
					body := object
					if r.kind != res.GVK {
						if body = m.addTyped(r.kind); body == "" {
							continue
						}
					}
					doc.Paths.Paths[r.path] = swaggerPath(r, m, body, list)
				}
			}
		}
	}
	for name, s := range m.definitions {
		doc.Definitions[name] = *s
	}
	return doc
}

func swaggerPath(r route, m *models, body, list string) spec.PathItem {
	var item spec.PathItem
	for _, verb := range r.verbs {
		v3 := operation(verb, r, m)
		op := &spec.Operation{OperationProps: spec.OperationProps{
			ID: v3.OperationId, Description: v3.Description, Tags: v3.Tags,
			Schemes: []string{"https"}, Produces: []string{plainJSON}, Consumes: []string{"*/*"},
		}}
		op.Extensions = v3.Extensions
		for _, p := range parameters(verb, r.path) {
			op.Parameters = append(op.Parameters, spec.Parameter{
				ParamProps:   spec.ParamProps{Name: p.name, In: p.in, Required: p.in == "path"},
				SimpleSchema: spec.SimpleSchema{Type: p.kind}, CommonValidations: spec.CommonValidations{UniqueItems: true},
			})
		}
		answer := body
		switch verb {
		case resources.List:
			answer = list
		case resources.Delete, resources.DeleteCollection:
			answer = m.add(reflect.TypeFor[metav1.Status]())
		case resources.Patch:
			op.Consumes = patchTypes(r.res)
			op.Parameters = append(op.Parameters, bodyParameter(m.refTo(m.add(reflect.TypeFor[metav1.Patch]()))))
		case resources.Create, resources.Update:
			op.Parameters = append(op.Parameters, bodyParameter(m.refTo(body)))
		}
		op.Responses = &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			http.StatusOK:           {ResponseProps: spec.ResponseProps{Description: "OK", Schema: m.refTo(answer)}},
			http.StatusUnauthorized: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
		}}}
		switch verb {
		case resources.Get, resources.List:
			item.Get = op
		case resources.Create:
			item.Post = op
		case resources.Update:
			item.Put = op
		case resources.Patch:
			item.Patch = op
		case resources.Delete, resources.DeleteCollection:
			item.Delete = op
		}
	}
	return item
}

func bodyParameter(s *spec.Schema) spec.Parameter {
	return spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: true, Schema: s}}
}
