package resources

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// definitionsKind is the one resource that API servers have built in and
// client-go has no type for.
var definitionsKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// builtins returns all versions of all of client-go's resources.
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

// verbs are the methods of a resource's client and what discovery calls them.
var verbs = map[string]string{
	"Create": Create, "Delete": Delete, "DeleteCollection": DeleteCollection, "Get": Get,
	"List": List, "Patch": Patch, "Update": Update, "Watch": Watch,
}

// fromClient reads a resource off the method of a group's client that returns
// the resource's client. It returns nil for the clients that are of a
// subresource alone (policy's Evictions).
func fromClient(method reflect.Method) *Resource {
	client := method.Type.Out(0)
	create, ok := client.MethodByName("Create")
	if !ok {
		return nil
	}
	object, ok := reflect.New(create.Type.Out(0).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
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
		Typed:      true,
	}
	res.Stored = res.GVR
	for name, verb := range verbs {
		if _, ok := client.MethodByName(name); ok {
			res.Verbs = append(res.Verbs, verb)
		}
	}
	has := func(name string) bool { _, ok := client.MethodByName(name); return ok }
	own := []string{Get, Patch, Update}
	if has("UpdateStatus") {
		res.Subresources = append(res.Subresources, Subresource{Name: Status, Kind: kind, Verbs: own})
	}
	if has("UpdateScale") {
		scale := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
		res.Subresources = append(res.Subresources, Subresource{Name: Scale, Kind: scale, Verbs: own})
	}
	res.Subresources = append(res.Subresources, furtherSubresources(res)...)
	res.describe()
	return res
}

// furtherSubresources returns those that only one kind of object has and that
// a simulated server can have a meaning for.
func furtherSubresources(r *Resource) []Subresource {
	if r.GVR.Version != "v1" {
		return nil
	}
	create := []string{Create}
	switch r.GVR.GroupResource() {
	case schema.GroupResource{Resource: "pods"}:
		return []Subresource{
			{Name: "binding", Kind: r.GroupVersion().WithKind("Binding"), Verbs: create},
			{Name: "eviction", Kind: policyv1.SchemeGroupVersion.WithKind("Eviction"), Verbs: create},
			{Name: "ephemeralcontainers", Kind: r.GVK, Verbs: []string{Get, Patch, Update}},
			{Name: "resize", Kind: r.GVK, Verbs: []string{Get, Patch, Update}},
		}
	case schema.GroupResource{Resource: "namespaces"}:
		return []Subresource{{Name: "finalize", Kind: r.GVK, Verbs: []string{Update}}}
	case schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}:
		return []Subresource{{Name: "approval", Kind: r.GVK, Verbs: []string{Get, Patch, Update}}}
	case schema.GroupResource{Resource: "serviceaccounts"}:
		token := schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}
		return []Subresource{{Name: "token", Kind: token, Verbs: create}}
	}
	return nil
}

// definitionsResource is the resource of CustomResourceDefinitions.
func definitionsResource() *Resource {
	res := &Resource{
		GVR:        definitionsKind.GroupVersion().WithResource("customresourcedefinitions"),
		GVK:        definitionsKind,
		ListKind:   definitionsKind.Kind + "List",
		Singular:   "customresourcedefinition",
		Verbs:      []string{Create, Delete, DeleteCollection, Get, List, Patch, Update, Watch},
		ShortNames: []string{"crd", "crds"},
		Subresources: []Subresource{
			{Name: Status, Kind: definitionsKind, Verbs: []string{Get, Patch, Update}},
		},
	}
	res.Stored = res.GVR
	res.describe()
	return res
}

// describe adds what clients don't say, and sorts.
func (r *Resource) describe() {
	if names, ok := shortNames[r.GVR.GroupResource()]; ok {
		r.ShortNames = names
	}
	if names, ok := categories[r.GVR.GroupResource()]; ok {
		r.Categories = names
	}
	if names, ok := serverVerbs[r.GVR.GroupResource()]; ok {
		r.Verbs = slices.Clone(names)
	}
	slices.Sort(r.Verbs)
	slices.SortFunc(r.Subresources, func(a, b Subresource) int { return strings.Compare(a.Name, b.Name) })
}

// NewObject returns an empty object of a typed resource, with its kind set.
func (r *Resource) NewObject() (runtime.Object, error) {
	if !r.Typed {
		return nil, fmt.Errorf("resources: %s has no Go type", r)
	}
	object, err := scheme.Scheme.New(r.GVK)
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	object.GetObjectKind().SetGroupVersionKind(r.GVK)
	return object, nil
}
