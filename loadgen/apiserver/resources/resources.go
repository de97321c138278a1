// Package resources lists the resources of a simulated API server and describes them to clients.
//
//  1. Built-in resources are those of a recorded discovery that client-go has a type for
//     (builtin.go).
//  2. Custom resources come from CustomResourceDefinition manifests (crd.go).
//  3. Discovery serves the list: groups, versions and resources, plain and
//     aggregated (discovery.go), and OpenAPI v2 and v3 (openapi.go).
package resources

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"watchlab/loadgen/apiserver/wire"
)

// Verbs of a resource, as in discovery.
const (
	Create           = "create"
	Delete           = "delete"
	DeleteCollection = "deletecollection"
	Get              = "get"
	List             = "list"
	Patch            = "patch"
	Update           = "update"
	Watch            = "watch"
)

var (
	customVerbs    = []string{Delete, DeleteCollection, Get, List, Patch, Create, Update, Watch} // in a real server's order
	getPatchUpdate = []string{Get, Patch, Update}
)

// Names of subresources with special rules.
const (
	Status    = "status"
	Scale     = "scale"
	Ephemeral = "ephemeralcontainers"
	Resize    = "resize"
	Finalize  = "finalize"
	Approval  = "approval"
)

// Object is an object of any resource.
type Object interface {
	runtime.Object
	metav1.Object
}

// Resource is one resource in one version. It is shared and must not be changed.
type Resource struct {
	GVR        schema.GroupVersionResource // name in URLs
	GVK        schema.GroupVersionKind     // kind of its objects
	ListKind   string                      // kind of its lists, "PodList"
	Singular   string                      // "pod"
	Namespaced bool                        // false for cluster-scoped resources
	ShortNames []string                    // kubectl's abbreviations, "po"
	Categories []string                    // kubectl's groups of resources, "all"
	// Verbs are the supported verbs, as in discovery. A resource without list and watch, such as
	// a TokenReview, is not stored.
	Verbs        []string
	Subresources []Subresource // as in discovery
	// Stored is the resource in its stored version. All versions of a custom resource share one
	// collection and differ in apiVersion only. For a built-in resource it is GVR.
	Stored schema.GroupVersionResource
	Custom *Custom // nil for built-in resources
}

// Subresource is a part of a resource with a path of its own.
type Subresource struct {
	Name  string                  // last element of the path, "status"
	Kind  schema.GroupVersionKind // that of the resource for status, Scale for scale
	Verbs []string                // sorted
}

// Subresource returns the subresource of that name.
func (r *Resource) Subresource(name string) (Subresource, bool) {
	i := slices.IndexFunc(r.Subresources, func(s Subresource) bool { return s.Name == name })
	if i < 0 {
		return Subresource{}, false
	}
	return r.Subresources[i], true
}

// HasStatus reports whether there is a status subresource.
func (r *Resource) HasStatus() bool {
	_, ok := r.Subresource(Status)
	return ok
}

// Can reports whether the resource has a verb.
func (r *Resource) Can(verb string) bool { return slices.Contains(r.Verbs, verb) }

// Typed reports whether the objects have a Go type. Custom resources have none: they are
// unstructured and have no protobuf.
func (r *Resource) Typed() bool { return r.Custom == nil }

// GroupVersion returns the resource's group and version.
func (r *Resource) GroupVersion() schema.GroupVersion { return r.GVR.GroupVersion() }

// Path returns the path of the objects in a namespace; "" for all namespaces or a
// cluster-scoped resource.
func (r *Resource) Path(namespace string) string {
	return wire.Path{Resource: r.GVR, Namespace: namespace}.String()
}

// String returns "deployments.v1.apps", and "pods.v1" where there is no group.
func (r *Resource) String() string {
	return strings.TrimSuffix(r.GVR.Resource+"."+r.GVR.Version+"."+r.GVR.Group, ".")
}

// Registry holds the served resources. It is safe for concurrent use; lookups take no lock.
type Registry struct {
	current atomic.Pointer[snapshot] // replaced as a whole under mu; readers take no lock

	mu sync.Mutex // serializes changes and guards definitions
	// definitions holds definitions by name, "widgets.example.com", and further versions
	// of built-in resources by group and version.
	definitions map[string][]*Resource
}

// snapshot is an immutable state of the registry.
type snapshot struct {
	all        []*Resource
	byResource map[schema.GroupVersionResource]*Resource
	byKind     map[schema.GroupVersionKind]*Resource
	documents  func() *documents // of discovery, made at the first call
}

// New returns a registry of the resources that a real API server serves by default:
// the stable versions (v1, v2) in client-go, and CustomResourceDefinitions.
func New() *Registry {
	r := &Registry{definitions: make(map[string][]*Resource)}
	r.publish()
	return r
}

// Serve adds the built-in resources of an alpha or beta version. It reports whether
// client-go has any.
func (r *Registry) Serve(gv schema.GroupVersion) bool {
	found := inVersion(gv)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(found) > 0 && !stable(gv.Version) && r.definitions[gv.String()] == nil {
		r.definitions[gv.String()] = found
		r.publish()
	}
	return len(found) > 0
}

// publish stores a new snapshot. The caller holds r.mu, or r is not shared yet.
func (r *Registry) publish() {
	next := &snapshot{}
	next.documents = sync.OnceValue(func() *documents { return newDocuments(next.all) })
	for _, b := range builtins() {
		if stable(b.GVR.Version) {
			next.all = append(next.all, b)
		}
	}
	for _, served := range r.definitions {
		next.all = append(next.all, served...)
	}
	slices.SortFunc(next.all, inDiscoveryOrder)
	next.byResource = make(map[schema.GroupVersionResource]*Resource, len(next.all))
	next.byKind = make(map[schema.GroupVersionKind]*Resource, len(next.all))
	for _, res := range next.all {
		next.byResource[res.GVR] = res
		next.byKind[res.GVK] = res
	}
	r.current.Store(next)
}

// Lookup finds a resource by its plural name in a group ("" for core) and a version.
func (r *Registry) Lookup(group, version, resource string) (*Resource, bool) {
	res, ok := r.current.Load().byResource[schema.GroupVersionResource{Group: group, Version: version, Resource: resource}]
	return res, ok
}

// ByKind finds a resource by the kind of its objects.
func (r *Registry) ByKind(kind schema.GroupVersionKind) (*Resource, bool) {
	res, ok := r.current.Load().byKind[kind]
	return res, ok
}

// All returns all resources in the order of discovery: groups as a real server
// orders them, core first; a group's preferred version first; resources by name.
// The slice is shared and must not be changed.
func (r *Registry) All() []*Resource { return r.current.Load().all }

// stable reports whether a version is neither alpha nor beta.
func stable(v string) bool {
	return !strings.Contains(v, "alpha") && !strings.Contains(v, "beta")
}

// inDiscoveryOrder orders the groups of a real server as it does, before others, and
// custom resources last.
func inDiscoveryOrder(a, b *Resource) int {
	rank := func(r *Resource) int {
		switch i, ok := groupRanks()[r.GVR.Group]; {
		case ok:
			return i
		case r.Custom == nil:
			return len(builtins())
		}
		return len(builtins()) + 1
	}
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		strings.Compare(a.GVR.Group, b.GVR.Group),
		version.CompareKubeAwareVersionStrings(b.GVR.Version, a.GVR.Version),
		strings.Compare(a.GVR.Resource, b.GVR.Resource),
	)
}
