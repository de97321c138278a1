package discovery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/resources"
)

// Content types of discovery.
const (
	plainJSON      = "application/json"
	aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// documents are all answers about what was served at one moment. Each is
// encoded once.
type documents struct {
	of         uint64
	opts       Options
	served     []*resources.Resource
	groups     []*group
	version    func() *document
	plain      map[string]func() *document
	aggregated map[string]func() *document
	openapi    openAPI
}

// group is a group with its versions, the preferred one first.
type group struct {
	name     string
	versions []*groupVersion
}

type groupVersion struct {
	gv        schema.GroupVersion
	resources []*resources.Resource
}

// document is an answer with its name for caches.
type document struct {
	body []byte
	etag string
}

// lazily encodes a document when it is first asked for.
func lazily(value func() any) func() *document {
	return sync.OnceValue(func() *document {
		body, err := json.Marshal(value())
		if err != nil {

			panic("discovery: " + err.Error())
		}
		return newDocument(append(body, '\n'))
	})
}

func newDocument(body []byte) *document {
	sum := sha256.Sum256(body)
	return &document{body: body, etag: strings.ToUpper(hex.EncodeToString(sum[:]))}
}

func newDocuments(all []*resources.Resource, version uint64, opts Options) *documents {
	d := &documents{of: version, opts: opts, plain: make(map[string]func() *document), aggregated: make(map[string]func() *document)}
	for _, res := range all {
		if opts.Resource(res) {
			d.add(res)
		}
	}
	d.version = lazily(func() any { return info() })
	d.aggregated["/api"] = lazily(func() any { return d.aggregate(true) })
	d.aggregated["/apis"] = lazily(func() any { return d.aggregate(false) })
	d.plain["/api"] = lazily(func() any { return legacyVersions() })
	d.plain["/apis"] = lazily(func() any { return d.groupList() })
	for _, g := range d.groups {
		if g.name != "" {
			d.plain["/apis/"+g.name] = lazily(func() any { return withKind(g.apiGroup()) })
		}
		for _, v := range g.versions {
			d.plain[v.path()] = lazily(func() any { return d.resourceList(v) })
		}
	}
	d.openapi = newOpenAPI(d)
	return d
}

// add puts a resource into its group and version; they come in the order of
// discovery.
func (d *documents) add(res *resources.Resource) {
	d.served = append(d.served, res)
	if n := len(d.groups); n == 0 || d.groups[n-1].name != res.GVR.Group {
		d.groups = append(d.groups, &group{name: res.GVR.Group})
	}
	g := d.groups[len(d.groups)-1]
	if n := len(g.versions); n == 0 || g.versions[n-1].gv != res.GroupVersion() {
		g.versions = append(g.versions, &groupVersion{gv: res.GroupVersion()})
	}
	v := g.versions[len(g.versions)-1]
	v.resources = append(v.resources, res)
}

// path is where a version's resources are, "/apis/apps/v1".
func (v *groupVersion) path() string {
	if v.gv.Group == "" {
		return "/api/" + v.gv.Version
	}
	return "/apis/" + v.gv.Group + "/" + v.gv.Version
}

func (d *documents) serveGroups(w http.ResponseWriter, req *http.Request, parts []string) {
	path := "/" + strings.Join(parts, "/")
	if doc, ok := d.aggregated[path]; ok && wantsAggregated(req.Header.Get("Accept")) {
		w.Header().Set("Vary", "Accept")
		answer(w, req, doc, aggregatedJSON)
		return
	}
	doc, ok := d.plain[path]
	if !ok {
		http.NotFound(w, req)
		return
	}
	if _, ok := d.aggregated[path]; ok {
		w.Header().Set("Vary", "Accept")
	}
	answer(w, req, doc, plainJSON)
}

// wantsAggregated tells whether a client prefers aggregated discovery, v2, to
// the plain kind.
func wantsAggregated(accept string) bool {
	for _, a := range goautoneg.ParseAccept(accept) {
		if a.Type != "application" && a.Type != "*" || a.SubType != "json" && a.SubType != "*" {
			continue
		}
		if a.Params["g"] == "apidiscovery.k8s.io" {
			if a.Params["v"] == "v2" && a.Params["as"] == "APIGroupDiscoveryList" {
				return true
			}
			continue
		}
		return false
	}
	return false
}

// answer writes a document, or that the client has it.
func answer(w http.ResponseWriter, req *http.Request, doc func() *document, contentType string) {
	d := doc()
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("ETag", `"`+d.etag+`"`)
	h.Set("Cache-Control", "public")
	if matches(req.Header.Get("If-None-Match"), d.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	// The client is gone if it fails.
	_, _ = w.Write(d.body)
}

// matches tells whether one of the names that a client has is that one.
func matches(header, etag string) bool {
	for have := range strings.SplitSeq(header, ",") {
		if have = strings.TrimPrefix(strings.TrimSpace(have), "W/"); have == "*" || have == `"`+etag+`"` {
			return true
		}
	}
	return false
}

func legacyVersions() *metav1.APIVersions {
	return &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
}

func (d *documents) groupList() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, g := range d.groups {
		if g.name != "" {
			list.Groups = append(list.Groups, *g.apiGroup())
		}
	}
	return list
}

func (g *group) apiGroup() *metav1.APIGroup {
	out := &metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.gv.String(), Version: v.gv.Version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func withKind(g *metav1.APIGroup) *metav1.APIGroup {
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return g
}

// resourceList is the plain list of a version's resources and subresources.
func (d *documents) resourceList(v *groupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: v.gv.String(),
		APIResources: []metav1.APIResource{},
	}
	if v.gv.Group == "" {
		// Nobody knows why, but a real server leaves it out of the oldest group's.
		list.APIVersion = ""
	}
	for _, res := range v.resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: res.GVR.Resource, SingularName: res.Singular, Namespaced: res.Namespaced, Kind: res.GVK.Kind,
			Verbs: res.Verbs, ShortNames: res.ShortNames, Categories: res.Categories,
		})
		for _, sub := range d.subresources(res) {
			entry := metav1.APIResource{Name: res.GVR.Resource + "/" + sub.Name, Namespaced: res.Namespaced, Kind: sub.Kind.Kind, Verbs: sub.Verbs}
			if sub.Kind.GroupVersion() != v.gv {
				entry.Group, entry.Version = sub.Kind.Group, sub.Kind.Version
			}
			list.APIResources = append(list.APIResources, entry)
		}
	}
	return list
}

func (d *documents) subresources(res *resources.Resource) []resources.Subresource {
	var shown []resources.Subresource
	for _, sub := range res.Subresources {
		if d.opts.Subresource(res, sub) {
			shown = append(shown, sub)
		}
	}
	return shown
}

// aggregate is everything in one document: of the core group, or of all
// others.
func (d *documents) aggregate(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, g := range d.groups {
		if core != (g.name == "") {
			continue
		}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, v := range g.versions {
			item.Versions = append(item.Versions, d.aggregateVersion(v))
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func (d *documents) aggregateVersion(v *groupVersion) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: v.gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, res := range v.resources {
		own := v.gv
		if res.Custom != nil {
			// Of these it leaves out nothing.
			own = schema.GroupVersion{}
		}
		entry := apidiscoveryv2.APIResourceDiscovery{
			Resource: res.GVR.Resource, ResponseKind: kindOf(res.GVK, own), Scope: apidiscoveryv2.ScopeCluster,
			SingularResource: res.Singular, Verbs: res.Verbs, ShortNames: res.ShortNames, Categories: res.Categories,
		}
		if res.Namespaced {
			entry.Scope = apidiscoveryv2.ScopeNamespace
		}
		for _, sub := range d.subresources(res) {
			entry.Subresources = append(entry.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: sub.Name, ResponseKind: kindOf(sub.Kind, own), Verbs: sub.Verbs,
			})
		}
		out.Resources = append(out.Resources, entry)
	}
	return out
}

func kindOf(kind schema.GroupVersionKind, own schema.GroupVersion) *metav1.GroupVersionKind {
	// A real server leaves out the group and version that are the resource's own,
	// but not those of another.
	if kind.GroupVersion() == own {
		return &metav1.GroupVersionKind{Kind: kind.Kind}
	}
	return &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}
