// Package discovery answers what a client asks before it asks for anything:
// which groups, versions and resources a simulated API server has (plain and
// aggregated), what their objects look like (OpenAPI v2 and v3), and which
// version of Kubernetes it speaks.
//
// Documents are made when they are first asked for and kept until the registry
// of resources changes.
package discovery

import (
	"net/http"
	"strings"
	"sync"

	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"watchlab/loadgen/apiserver/resources"
)

// Version is what a simulated server calls itself: the Kubernetes version
// whose API it speaks, marked as a simulation in the part that version
// comparisons leave out.
const Version = "v1.36.3+watchlab.simulated"

// Options say what of the registry is served.
type Options struct {
	Resource    func(*resources.Resource) bool
	Subresource func(*resources.Resource, resources.Subresource) bool
}

// Handler serves discovery, OpenAPI and the version. It is safe for concurrent
// use.
type Handler struct {
	registry *resources.Registry
	opts     Options

	mu      sync.Mutex
	current *documents
}

// New returns a handler for what the registry has, now and later.
func New(registry *resources.Registry, opts Options) *Handler {
	if opts.Resource == nil {
		opts.Resource = (*resources.Resource).Storable
	}
	if opts.Subresource == nil {
		opts.Subresource = func(_ *resources.Resource, s resources.Subresource) bool {
			return s.Name == resources.Status || s.Name == resources.Scale
		}
	}
	return &Handler{registry: registry, opts: opts}
}

// Handles tells whether a path is discovery's: /version, /openapi/…, /api,
// /api/v1, /apis, /apis/GROUP and /apis/GROUP/VERSION. Paths that go deeper
// are of resources.
func Handles(path string) bool {
	parts := split(path)
	switch {
	case len(parts) == 0:
		return false
	case parts[0] == "version":
		return len(parts) == 1
	case parts[0] == "openapi":
		return len(parts) > 1
	case parts[0] == "api":
		return len(parts) <= 2
	case parts[0] == "apis":
		return len(parts) <= 3
	}
	return false
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// ServeHTTP answers GET and HEAD of the paths that [Handles] names; what isn't
// there is 404.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		return
	}
	parts := split(req.URL.Path)
	if len(parts) == 0 {
		http.NotFound(w, req)
		return
	}
	docs := h.documents()
	switch parts[0] {
	case "version":
		answer(w, req, docs.version, plainJSON)
	case "openapi":
		docs.serveOpenAPI(w, req, parts[1:])
	case "api", "apis":
		docs.serveGroups(w, req, parts)
	default:
		http.NotFound(w, req)
	}
}

// documents returns those of what is served now.
func (h *Handler) documents() *documents {
	all, version := h.registry.Snapshot()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil || h.current.of < version {
		h.current = newDocuments(all, version, h.opts)
	}
	return h.current
}

// info is what /version says.
func info() apimachineryversion.Info {
	return apimachineryversion.Info{
		Major: "1", Minor: "36", GitVersion: Version,
		GitCommit: "0000000000000000000000000000000000000000", GitTreeState: "clean",
		BuildDate: "1970-01-01T00:00:00Z", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
	}
}
