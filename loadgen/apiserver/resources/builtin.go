package resources

import (
	_ "embed" // discovery
	"reflect"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// definitionsKind is the only built-in kind without a client in client-go.
var definitionsKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// Scheme holds the Go types of the built-in kinds: client-go's and
// CustomResourceDefinitions.
var Scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}()

// Codecs decode the built-in kinds from JSON, YAML, protobuf and CBOR.
var Codecs = serializer.NewCodecFactory(Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

// builtins returns all resources of client-go, in all versions.
var builtins = sync.OnceValue(func() []*Resource {
	var all []*Resource
	clients := reflect.TypeFor[kubernetes.Interface]()
	for group := range clients.Methods() {
		if group.Name == "Discovery" {
			continue
		}
		for method := range group.Type.Out(0).Methods() {
			if method.Name == "RESTClient" {
				continue
			}
			if res := fromClient(method); res != nil {
				all = append(all, res)
			}
		}
	}
	return append(all, definitionsResource())
})

// verbs maps the methods of a resource's client to the verbs of discovery.
var verbs = map[string]string{
	"Create": Create, "Delete": Delete, "DeleteCollection": DeleteCollection, "Get": Get,
	"List": List, "Patch": Patch, "Update": Update, "Watch": Watch,
}

// fromClient derives a resource from the method of a group's client that returns
// the resource's client. It returns nil for clients of a mere subresource
// (policy's Evictions).
func fromClient(method reflect.Method) *Resource {
	client := method.Type.Out(0)
	create, ok := client.MethodByName("Create")
	if !ok {
		return nil
	}
	object, ok := reflect.New(create.Type.Out(0).Elem()).Interface().(Object)
	if !ok {
		return nil
	}
	kinds, _, err := Scheme.ObjectKinds(object)
	if err != nil || len(kinds) == 0 {
		return nil
	}
	kind := kinds[0]
	res := &Resource{
		GVR:        kind.GroupVersion().WithResource(strings.ToLower(method.Name)),
		GVK:        kind,
		ListKind:   kind.Kind + "List",
		Singular:   strings.ToLower(kind.Kind),
		Namespaced: method.Type.NumIn() == 1,
	}
	has := func(name string) bool { _, ok := client.MethodByName(name); return ok }
	for name, verb := range verbs {
		if has(name) {
			res.Verbs = append(res.Verbs, verb)
		}
	}
	if has("UpdateStatus") {
		res.Subresources = append(res.Subresources, Subresource{Name: Status, Kind: kind, Verbs: getPatchUpdate})
	}
	if has("UpdateScale") {
		scale := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
		res.Subresources = append(res.Subresources, Subresource{Name: Scale, Kind: scale, Verbs: getPatchUpdate})
	}
	switch res.GVR {
	case corev1.SchemeGroupVersion.WithResource("pods"):
		res.Subresources = append(res.Subresources,
			Subresource{Name: Binding, Kind: res.GroupVersion().WithKind("Binding"), Verbs: []string{Create}},
			Subresource{Name: Eviction, Kind: policyv1.SchemeGroupVersion.WithKind("Eviction"), Verbs: []string{Create}},
			Subresource{Name: "ephemeralcontainers", Kind: kind, Verbs: getPatchUpdate},
			Subresource{Name: "resize", Kind: kind, Verbs: getPatchUpdate})
	case corev1.SchemeGroupVersion.WithResource("namespaces"):
		res.Subresources = append(res.Subresources, Subresource{Name: Finalize, Kind: kind, Verbs: []string{Update}})
	}
	res.describe()
	return res
}

func definitionsResource() *Resource {
	res := &Resource{
		GVR:          definitionsKind.GroupVersion().WithResource("customresourcedefinitions"),
		GVK:          definitionsKind,
		ListKind:     definitionsKind.Kind + "List",
		Singular:     "customresourcedefinition",
		Verbs:        slices.Clone(allVerbs),
		Subresources: []Subresource{{Name: Status, Kind: definitionsKind, Verbs: getPatchUpdate}},
	}
	res.describe()
	return res
}

// describe adds what the clients of a built-in resource lack: what a real server says.
func (r *Resource) describe() {
	r.Stored = r.GVR
	if line := recorded().resources[r.GVR.GroupResource()]; line != nil {
		r.ShortNames, r.Categories = list(line[7]), list(line[8])
		if r.GVR.Version == line[1] {
			r.Verbs = list(line[6])
		}
	}
	r.sort()
}

// discoveryText is the discovery of kube-apiserver v1.36.3, a resource a line.
//
//go:embed discovery-v1.36.3.txt
var discoveryText string

// recording is a recorded discovery: the rank of each group, and for each resource its
// line of discoveryText in fields.
type recording struct {
	groups    map[string]int
	resources map[schema.GroupResource][]string
}

var recorded = sync.OnceValue(func() recording {
	r := recording{map[string]int{}, map[schema.GroupResource][]string{}}
	for line := range strings.Lines(discoveryText) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		group := strings.TrimPrefix(fields[0], "core")
		if _, ok := r.groups[group]; !ok {
			r.groups[group] = len(r.groups)
		}
		r.resources[schema.GroupResource{Group: group, Resource: fields[2]}] = fields
	}
	return r
})

// list splits a list of discoveryText.
func list(text string) []string {
	if text == "-" {
		return nil
	}
	return strings.Split(text, ",")
}

func (r *Resource) sort() {
	slices.Sort(r.Verbs)
	slices.SortFunc(r.Subresources, func(a, b Subresource) int { return strings.Compare(a.Name, b.Name) })
}

// NewObject returns an empty object of the resource, with its kind set: a Go type
// of client-go if there is one, else *unstructured.Unstructured.
func (r *Resource) NewObject() Object {
	if !r.Typed() {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetGroupVersionKind(r.GVK)
		return u
	}
	t := Scheme.AllKnownTypes()[r.GVK]
	object := reflect.New(t).Interface().(Object) // as in fromClient
	object.GetObjectKind().SetGroupVersionKind(r.GVK)
	return object
}
