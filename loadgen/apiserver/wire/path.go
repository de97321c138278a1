package wire

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path is the meaning of a path below a resource.
type Path struct {
	Resource                     schema.GroupVersionResource
	Namespace, Name, Subresource string // empty for all namespaces, the collection, and the object itself
}

// String returns the path that [ParsePath] reads.
func (p Path) String() string {
	parts := []string{"/apis", p.Resource.Group, p.Resource.Version}
	if p.Resource.Group == "" {
		parts = []string{"/api", p.Resource.Version}
	}
	if p.Namespace != "" {
		parts = append(parts, "namespaces", p.Namespace)
	}
	return strings.TrimRight(strings.Join(append(parts, p.Resource.Resource, p.Name, p.Subresource), "/"), "/")
}

// ParsePath reads /api/VERSION/ or /apis/GROUP/VERSION/, an optional namespaces/NAMESPACE/, and
// RESOURCE[/NAME[/SUBRESOURCE]]. It returns false for a path below no resource.
func ParsePath(text string) (p Path, ok bool) {
	rest := strings.Trim(text, "/")
	next := func() (part string) {
		part, rest, _ = strings.Cut(rest, "/")
		return part
	}
	switch next() {
	case "api":
	case "apis":
		p.Resource.Group = next()
	default:
		return p, false
	}
	p.Resource.Version, p.Resource.Resource, p.Name = next(), next(), next()
	// namespaces/NAME/status belongs to the namespace itself.
	if p.Resource.Resource == "namespaces" && rest != "" && rest != "status" && rest != "finalize" {
		p.Namespace, p.Resource.Resource, p.Name = p.Name, next(), next()
	}
	p.Subresource = rest
	return p, p.Resource.Resource != ""
}

// Request is what the line of a request says.
type Request struct {
	Path
	Verb  string // as in RBAC
	Query url.Values
}

// ParseRequest returns false for a path below no resource, and for a method without a verb.
func ParseRequest(r *http.Request) (q Request, ok bool) {
	if q.Path, ok = ParsePath(r.URL.Path); !ok {
		return q, false
	}
	if r.URL.RawQuery != "" {
		q.Query = r.URL.Query()
	}
	verbs := Verbs[r.Method]
	if r.Method == http.MethodHead {
		verbs = Verbs[http.MethodGet]
	}
	if q.Verb = cmp.Or(verbs.Object, verbs.Collection); q.Name == "" {
		q.Verb = cmp.Or(verbs.Collection, verbs.Object)
	}
	if verbs == Verbs[http.MethodGet] && IsTrue(q.Query["watch"]) {
		q.Verb = "watch"
	}
	return q, q.Verb != ""
}

// Verbs are the verbs of a method on a collection and on an object.
var Verbs = map[string]struct{ Collection, Object string }{
	http.MethodGet:    {"list", "get"},
	http.MethodPost:   {"create", ""},
	http.MethodPut:    {"", "update"},
	http.MethodPatch:  {"", "patch"},
	http.MethodDelete: {"deletecollection", "delete"},
}

// IsTrue reads a parameter as an API server does.
func IsTrue(values []string) bool {
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}
