// Package resources knows which resources a simulated API server has.
//
// Built-in resources are read off client-go itself: each method of a typed
// client that returns a client of a resource (Pods(namespace), Nodes()) names
// the plural, says by its argument whether the resource has namespaces, and by
// the methods of what it returns (UpdateStatus, GetScale, List, …) which verbs
// and subresources there are. A new client-go therefore brings its resources
// with it. Short names and categories, which clients don't need, are a table
// (table.go).
//
// Custom resources come from CustomResourceDefinition manifests (crd.go).
package resources

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Verbs that a resource may have, as discovery calls them.
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

// Names of the subresources that every kind of resource may have.
const (
	Status = "status"
	Scale  = "scale"
)

// Resource is one resource in one version. It is shared and must not be
// changed.
type Resource struct {
	GVR          schema.GroupVersionResource
	GVK          schema.GroupVersionKind
	ListKind     string
	Singular     string
	Namespaced   bool
	ShortNames   []string
	Categories   []string
	Verbs        []string
	Subresources []Subresource
	Typed        bool
	Stored       schema.GroupVersionResource
	Custom       *Custom
}

// Subresource is a part of a resource with a path of its own.
type Subresource struct {
	Name  string
	Kind  schema.GroupVersionKind
	Verbs []string
}

// Subresource returns the subresource of that name.
func (r *Resource) Subresource(name string) (Subresource, bool) {
	i, ok := slices.BinarySearchFunc(r.Subresources, name, func(s Subresource, name string) int {
		return strings.Compare(s.Name, name)
	})
	if !ok {
		return Subresource{}, false
	}
	return r.Subresources[i], true
}

// HasStatus tells whether the status is written through a path of its own, so
// that other writes leave it alone.
func (r *Resource) HasStatus() bool {
	_, ok := r.Subresource(Status)
	return ok
}

// Can tells whether the resource has that verb.
func (r *Resource) Can(verb string) bool {
	_, ok := slices.BinarySearch(r.Verbs, verb)
	return ok
}

// Storable tells whether objects of the resource are kept: whether it can be
// listed and watched.
func (r *Resource) Storable() bool { return r.Can(List) && r.Can(Watch) }

// GroupVersion returns the resource's group and version.
func (r *Resource) GroupVersion() schema.GroupVersion { return r.GVR.GroupVersion() }

// String returns "deployments.v1.apps", and "pods.v1" where there is no group.
func (r *Resource) String() string {
	if r.GVR.Group == "" {
		return r.GVR.Resource + "." + r.GVR.Version
	}
	return r.GVR.Resource + "." + r.GVR.Version + "." + r.GVR.Group
}

// Registry holds the resources that are served. It is safe for concurrent
// use; looking up takes no lock. The zero value is not ready: see [New].
type Registry struct {
	current atomic.Pointer[snapshot]

	mu          sync.Mutex
	enabled     map[schema.GroupVersion]bool
	definitions map[string]*definition
}

// snapshot is the registry at one moment.
type snapshot struct {
	version    uint64
	all        []*Resource
	byResource map[schema.GroupVersionResource]*Resource
	byKind     map[schema.GroupVersionKind]*Resource
}

// New returns a registry of what a real API server serves unless told
// otherwise: the stable versions (v1, v2) of client-go's resources, and
// CustomResourceDefinitions. Each of extra adds an alpha or beta version.
func New(extra ...schema.GroupVersion) *Registry {
	r := &Registry{enabled: make(map[schema.GroupVersion]bool), definitions: make(map[string]*definition)}
	for _, gv := range extra {
		r.enabled[gv] = true
	}
	r.publish()
	return r
}

// Serve adds the built-in resources of an alpha or beta version. It says
// whether client-go has any; one that is served already changes nothing.
func (r *Registry) Serve(gv schema.GroupVersion) bool {
	known := slices.ContainsFunc(builtins(), func(b *Resource) bool { return b.GroupVersion() == gv })
	if !known {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.enabled[gv] && !stable(gv.Version) {
		r.enabled[gv] = true
		r.publish()
	}
	return true
}

// publish makes a new snapshot. r.mu is held, or r is not shared yet.
func (r *Registry) publish() {
	next := &snapshot{version: 1}
	if old := r.current.Load(); old != nil {
		next.version = old.version + 1
	}
	for _, b := range builtins() {
		if stable(b.GVR.Version) || r.enabled[b.GroupVersion()] {
			next.all = append(next.all, b)
		}
	}
	for _, d := range r.definitions {
		next.all = append(next.all, d.resources...)
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

// Version grows with every change of what is served.
func (r *Registry) Version() uint64 { return r.current.Load().version }

// Lookup finds a resource by its plural name in a group ("" for core) and a
// version.
func (r *Registry) Lookup(group, version, resource string) (*Resource, bool) {
	res, ok := r.current.Load().byResource[schema.GroupVersionResource{Group: group, Version: version, Resource: resource}]
	return res, ok
}

// ByKind finds a resource by the kind of its objects.
func (r *Registry) ByKind(kind schema.GroupVersionKind) (*Resource, bool) {
	res, ok := r.current.Load().byKind[kind]
	return res, ok
}

// All returns everything that is served, in the order of discovery: core
// first, groups as a real server orders them, a group's preferred version
// first, resources by name. The slice is shared and must not be changed.
func (r *Registry) All() []*Resource { return r.current.Load().all }

// Snapshot returns All together with the version that it is of.
func (r *Registry) Snapshot() (all []*Resource, version uint64) {
	s := r.current.Load()
	return s.all, s.version
}

// stable tells v1 and v2 from v1beta1.
func stable(v string) bool {
	return !strings.Contains(v, "alpha") && !strings.Contains(v, "beta")
}

func inDiscoveryOrder(a, b *Resource) int {
	if c := compareGroups(a.GVR.Group, b.GVR.Group); c != 0 {
		return c
	}
	if c := version.CompareKubeAwareVersionStrings(b.GVR.Version, a.GVR.Version); c != 0 {
		return c
	}
	return strings.Compare(a.GVR.Resource, b.GVR.Resource)
}

// compareGroups orders groups as a real server's discovery does: the built-in
// ones by rank, then those of custom resources by name.
func compareGroups(a, b string) int {
	ra, rb := slices.Index(groupOrder, a), slices.Index(groupOrder, b)
	switch {
	case ra >= 0 && rb >= 0:
		return ra - rb
	case ra >= 0:
		return -1
	case rb >= 0:
		return 1
	}
	return strings.Compare(a, b)
}
