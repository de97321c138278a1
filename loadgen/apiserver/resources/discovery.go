package resources

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	clientdiscovery "k8s.io/client-go/discovery"
)

// Version is the Kubernetes version of a simulated server. The suffix, which
// version comparisons ignore, marks the simulation.
const Version = "v1.36.3+watchlab.simulated"

// Discovery serves the groups, versions and resources of a registry, OpenAPI and
// the version. It is safe for concurrent use. It encodes a document at its first
// request and keeps it until the registry changes.
type Discovery struct {
	registry *Registry
	// filter passes the resources that are shown.
	filter func(*Resource) bool

	// mu guards current, the documents of the registry's version at the last request.
	mu      sync.Mutex
	current *documents
}

// NewDiscovery returns a handler for the storable resources of a registry.
func NewDiscovery(registry *Registry) *Discovery {
	return &Discovery{registry: registry, filter: (*Resource).Storable}
}

// Handles reports whether a path belongs to discovery: /version, /openapi/…, /api,
// /api/v1, /apis, /apis/GROUP or /apis/GROUP/VERSION. Longer paths belong to
// resources.
func Handles(path string) bool {
	parts := split(path)
	longest := map[string]int{"version": 1, "api": 2, "apis": 3}
	switch {
	case len(parts) == 0:
		return false
	case parts[0] == "openapi":
		return len(parts) > 1
	}
	return len(parts) <= longest[parts[0]]
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// ServeHTTP answers GET and HEAD of the paths of [Handles].
func (h *Discovery) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	path := "/" + strings.Join(split(req.URL.Path), "/")
	docs := h.documents()
	openAPI, isOpenAPI := docs.encoded[path]
	aggregated, isAggregated := docs.aggregated[path]
	plain, ok := docs.plain[path]
	if isOpenAPI || isAggregated {
		w.Header().Set("Vary", "Accept")
	}
	switch {
	case isOpenAPI:
		openAPI.serve(w, req)
	case isAggregated && wantsAggregated(req.Header.Get("Accept")):
		answer(w, req, aggregated, aggregatedJSON)
	case ok:
		answer(w, req, plain, plainJSON)
	default:
		http.NotFound(w, req)
	}
}

// documents returns the documents of the registry's current state.
func (h *Discovery) documents() *documents {
	all, version := h.registry.Snapshot()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.current.version < version {
		h.current = newDocuments(all, version, h.filter)
	}
	return h.current
}

// Content types of discovery.
const (
	plainJSON      = "application/json"
	aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// documents holds all documents of one state of the registry, by path. Each is
// encoded once.
type documents struct {
	// version is that of the registry.
	version uint64
	// versions are in the order of discovery.
	versions []*groupVersion
	// plain holds documents by path ("/apis/apps/v1"); aggregated those of /api and
	// /apis.
	plain, aggregated map[string]func() *document
	// encoded holds the OpenAPI documents.
	encoded map[string]encodings
}

type groupVersion struct {
	schema.GroupVersion
	resources []*Resource
}

// document is an encoded document with its ETag.
type document struct {
	body []byte
	etag string
}

// lazily encodes a document at its first use.
func lazily(value func() any) func() *document {
	return sync.OnceValue(func() *document {
		body, err := json.Marshal(value())
		if err != nil {
			panic("discovery: " + err.Error()) // the types are known
		}
		return newDocument(append(body, '\n'))
	})
}

func newDocument(body []byte) *document {
	sum := sha256.Sum256(body)
	return &document{body: body, etag: strings.ToUpper(hex.EncodeToString(sum[:]))}
}

func newDocuments(all []*Resource, version uint64, filter func(*Resource) bool) *documents {
	d := &documents{version: version, plain: map[string]func() *document{}, aggregated: map[string]func() *document{}, encoded: map[string]encodings{}}
	for _, res := range all {
		if !filter(res) {
			continue
		}
		if n := len(d.versions); n == 0 || d.versions[n-1].GroupVersion != res.GroupVersion() {
			d.versions = append(d.versions, &groupVersion{GroupVersion: res.GroupVersion()})
		}
		v := d.versions[len(d.versions)-1]
		v.resources = append(v.resources, res)
	}
	core, others := d.aggregate(true), d.aggregate(false)
	d.aggregated["/api"] = lazily(func() any { return core })
	d.aggregated["/apis"] = lazily(func() any { return others })
	d.plain["/version"] = lazily(func() any { return info() })
	d.plain["/api"] = lazily(func() any {
		return &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		}
	})
	// client-go derives the plain documents from the aggregated ones.
	_, lists, _ := clientdiscovery.SplitGroupsAndResources(*core)
	d.addLists(lists)
	groups, lists, _ := clientdiscovery.SplitGroupsAndResources(*others)
	d.addLists(lists)
	groups.TypeMeta = metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}
	d.plain["/apis"] = lazily(func() any { return groups })
	for _, g := range groups.Groups {
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		d.plain["/apis/"+g.Name] = lazily(func() any { return g })
	}
	d.addOpenAPI()
	return d
}

// addLists adds plain lists of resources.
func (d *documents) addLists(lists map[schema.GroupVersion]*metav1.APIResourceList) {
	for gv, list := range lists {
		list.Kind = "APIResourceList"
		if gv.Group != "" { // a real server omits it for the core group
			list.APIVersion = "v1"
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if r.Group == gv.Group && r.Version == gv.Version {
				r.Group, r.Version = "", ""
			}
			if strings.Contains(r.Name, "/") {
				r.SingularName = "" // client-go sets that of the resource
			}
		}
		d.plain[(&groupVersion{GroupVersion: gv}).path()] = lazily(func() any { return list })
	}
}

// path returns the path of a version's resources, "/apis/apps/v1".
func (v *groupVersion) path() string {
	if v.Group == "" {
		return "/api/" + v.Version
	}
	return "/apis/" + v.Group + "/" + v.Version
}

// wantsAggregated reports whether a client prefers aggregated discovery v2 to plain
// discovery.
func wantsAggregated(accept string) bool {
	for _, a := range goautoneg.ParseAccept(accept) {
		if a.Type != "application" && a.Type != "*" || a.SubType != "json" && a.SubType != "*" {
			continue
		}
		if a.Params["g"] != "apidiscovery.k8s.io" {
			return false
		}
		if a.Params["v"] == "v2" && a.Params["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

// answer writes a document, or 304 if the client has it.
func answer(w http.ResponseWriter, req *http.Request, doc func() *document, contentType string) {
	d := doc()
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("ETag", `"`+d.etag+`"`)
	h.Set("Cache-Control", "public")
	for have := range strings.SplitSeq(req.Header.Get("If-None-Match"), ",") {
		if have = strings.TrimPrefix(strings.TrimSpace(have), "W/"); have == "*" || have == `"`+d.etag+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(d.body) // fails if the client is gone
}

// aggregate returns the aggregated document of the core group or of all others.
func (d *documents) aggregate(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, v := range d.versions {
		if core != (v.Group == "") {
			continue
		}
		if n := len(list.Items); n == 0 || list.Items[n-1].Name != v.Group {
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: v.Group}})
		}
		item := &list.Items[len(list.Items)-1]
		item.Versions = append(item.Versions, v.aggregate())
	}
	return list
}

func (v *groupVersion) aggregate() apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, res := range v.resources {
		own := v.GroupVersion
		if res.Custom != nil {
			own = schema.GroupVersion{} // a real server omits nothing of these
		}
		entry := apidiscoveryv2.APIResourceDiscovery{
			Resource: res.GVR.Resource, ResponseKind: responseKind(res.GVK, own), Scope: apidiscoveryv2.ScopeCluster,
			SingularResource: res.Singular, Verbs: res.Verbs, ShortNames: res.ShortNames, Categories: res.Categories,
		}
		if res.Namespaced {
			entry.Scope = apidiscoveryv2.ScopeNamespace
		}
		for _, sub := range res.Subresources {
			entry.Subresources = append(entry.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: sub.Name, ResponseKind: responseKind(sub.Kind, own), Verbs: slices.Clone(sub.Verbs),
			})
		}
		out.Resources = append(out.Resources, entry)
	}
	return out
}

// responseKind omits the group and version if they are the resource's own, as a
// real server does.
func responseKind(kind schema.GroupVersionKind, own schema.GroupVersion) *metav1.GroupVersionKind {
	if kind.GroupVersion() == own {
		return &metav1.GroupVersionKind{Kind: kind.Kind}
	}
	return &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}

// info is the answer to /version.
func info() apimachineryversion.Info {
	return apimachineryversion.Info{
		Major: "1", Minor: "36", GitVersion: Version,
		GitCommit: "0000000000000000000000000000000000000000", GitTreeState: "clean",
		BuildDate: "1970-01-01T00:00:00Z", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
	}
}
