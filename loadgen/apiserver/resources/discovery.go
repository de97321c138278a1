package resources

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	clientdiscovery "k8s.io/client-go/discovery"

	"watchlab/loadgen/apiserver/wire"
)

// Version is the Kubernetes version of a simulated server. The suffix, which
// version comparisons ignore, marks the simulation.
const Version = "v1.37.2+watchlab.simulated"

// Handles reports whether a path belongs to discovery: /version, /openapi/…, /api, /api/v1, /apis,
// /apis/GROUP or /apis/GROUP/VERSION. Longer paths belong to resources.
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

// ServeHTTP serves discovery: it answers GET and HEAD of the paths of [Handles]. It encodes a document at its first
// request and keeps it until the registry changes.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.current.Load().documents().ServeHTTP(w, req)
}

// ServeHTTP implements [http.Handler].
func (d *documents) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	doc, ok := d.byPath["/"+strings.Join(split(req.URL.Path), "/")]
	if !ok {
		http.NotFound(w, req)
		return
	}
	chosen := doc.choose(req.Header.Get("Accept"))
	body, etag := chosen.encoded()
	h := w.Header()
	if len(doc) > 1 {
		h.Set("Vary", "Accept")
	}
	h.Set("Content-Type", chosen.contentType)
	h.Set("ETag", `"`+etag+`"`)
	h.Set("Cache-Control", "public")
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body)) // 304 for a client that has the document
}

// Content types of discovery.
const (
	plainJSON      = "application/json"
	aggregatedJSON = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// documents holds all documents of one state of the registry.
type documents struct {
	versions []*groupVersion     // in the order of discovery
	byPath   map[string]document // "/apis/apps/v1"
}

type groupVersion struct {
	schema.GroupVersion
	resources []*Resource
}

// document is a document in one or more content types, the default first.
type document []encoding

type encoding struct {
	contentType string
	// encoded returns the document and its ETag. It encodes at the first call.
	encoded func() (body []byte, etag string)
}

func newEncoding(contentType string, encode func() ([]byte, error)) encoding {
	return encoding{contentType, sync.OnceValues(func() ([]byte, string) {
		body, err := encode()
		if err != nil {
			panic("discovery: " + err.Error()) // the types are known
		}
		return body, fmt.Sprintf("%X", sha256.Sum256(body))
	})}
}

func inJSON(contentType string, value func() any) encoding {
	return newEncoding(contentType, func() ([]byte, error) {
		body, err := json.Marshal(value())
		return append(body, '\n'), err
	})
}

func (d *documents) add(path string, value any) {
	d.byPath[path] = document{inJSON(plainJSON, func() any { return value })}
}

// choose returns the content type that the client prefers, by default the first.
func (doc document) choose(accept string) encoding {
	for _, a := range goautoneg.ParseAccept(accept) {
		// Clients ask for OpenAPI in protobuf with a dot or an at sign.
		want := a.Type + "/" + strings.Replace(a.SubType, "@v1.0", ".v1.0", 1)
		if a.Params["as"] != "" {
			want += ";g=" + a.Params["g"] + ";v=" + a.Params["v"] + ";as=" + a.Params["as"]
		}
		for _, e := range doc {
			if want == e.contentType || want == "application/*" || want == "*/*" {
				return e
			}
		}
	}
	return doc[0]
}

func newDocuments(all []*Resource) *documents {
	d := &documents{byPath: map[string]document{}}
	for _, res := range all {
		if n := len(d.versions); n == 0 || d.versions[n-1].GroupVersion != res.GroupVersion() {
			d.versions = append(d.versions, &groupVersion{GroupVersion: res.GroupVersion()})
		}
		v := d.versions[len(d.versions)-1]
		v.resources = append(v.resources, res)
	}
	d.add("/version", apimachineryversion.Info{
		Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37", MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: Version,
		GitCommit: "0000000000000000000000000000000000000000", GitTreeState: "clean",
		BuildDate: "1970-01-01T00:00:00Z", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
	})
	d.add("/api", &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	})
	// client-go derives the plain documents from the aggregated ones.
	core, others := d.aggregate(true), d.aggregate(false)
	_, lists, _ := clientdiscovery.SplitGroupsAndResources(*core)
	d.addLists(lists)
	groups, lists, _ := clientdiscovery.SplitGroupsAndResources(*others)
	d.addLists(lists)
	groups.TypeMeta = metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}
	d.add("/apis", groups)
	for _, g := range groups.Groups {
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		d.add("/apis/"+g.Name, g)
	}
	for path, list := range map[string]any{"/api": core, "/apis": others} {
		d.byPath[path] = append(d.byPath[path], inJSON(aggregatedJSON, func() any { return list }))
	}
	d.addOpenAPI()
	return d
}

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
		d.add(pathOf(gv), list)
	}
}

// pathOf returns the path of a version's resources, "/apis/apps/v1".
func pathOf(gv schema.GroupVersion) string { return wire.Path{Resource: gv.WithResource("")}.String() }

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

// responseKind omits the group and version if they are the resource's own, as a real server does.
func responseKind(kind schema.GroupVersionKind, own schema.GroupVersion) *metav1.GroupVersionKind {
	if kind.GroupVersion() == own {
		return &metav1.GroupVersionKind{Kind: kind.Kind}
	}
	return &metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}
