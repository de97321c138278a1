package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// request is a parsed request below a resource.
type request struct {
	*http.Request
	// collection is the path of the resource, without namespace and name.
	collection string
	watch      bool
	query      url.Values
	// version is the resourceVersion of the query; 0 for none.
	version uint64
}

// read parses a request. It returns false if the path is not below a resource.
func read(r *http.Request) (*request, bool) {
	path, ok := collectionOf(r.URL.Path)
	if !ok {
		return nil, false
	}
	q := r.URL.Query()
	out := &request{Request: r, collection: path, query: q}
	if values, ok := q["watch"]; ok && r.Method == http.MethodGet {
		// apimachinery takes all other values as true.
		out.watch = values[0] != "false" && values[0] != "0"
	}
	out.version, _ = strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	return out, true
}

// collectionOf returns the path of the resource in a path.
func collectionOf(path string) (string, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var n int
	switch parts[0] {
	case "api":
		n = 2
	case "apis":
		n = 3
	default:
		return "", false
	}
	if len(parts) <= n {
		return "", false
	}
	prefix, rest := parts[:n], parts[n:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	return "/" + strings.Join(prefix, "/") + "/" + rest[0], true
}

// resumes reports whether the request continues from an earlier answer.
func (r *request) resumes() bool {
	return r.needsHistory() && r.version > 0 || r.query.Get("continue") != ""
}

// needsHistory reports whether the request needs more than the current state.
func (r *request) needsHistory() bool {
	if r.watch {
		return r.query.Get("sendInitialEvents") != "true"
	}
	return r.query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact)
}

// collection is the known state of a resource's path.
type collection struct {
	// example is a LIST of one object; handler answers it with the current version.
	example *http.Request
	handler http.Handler
	// compacted is the oldest version with history; spec is the fault that set it.
	// The injector's mu guards both.
	compacted uint64
	spec      int
}

// know registers the collection of a request.
func (i *Injector) know(h http.Handler, r *request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.collections[r.collection] == nil {
		example := &http.Request{
			Method: http.MethodGet,
			Host:   r.Host, RemoteAddr: r.RemoteAddr, TLS: r.TLS,
			Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
			Header: r.Header.Clone(),
			URL:    &url.URL{Path: r.collection, RawQuery: "limit=1"},
			Body:   http.NoBody,
		}
		example.Header.Set("Accept", string(encodingJSON))
		example.Header.Del("Accept-Encoding")
		example.Header.Del("Content-Type")
		example.Header.Del("Content-Length")
		example.RequestURI = example.URL.RequestURI()
		i.collections[r.collection] = &collection{example: example, handler: h}
	}
}

// compact records the current version of each collection; older versions are gone. It
// skips a collection that cannot be listed.
func (i *Injector) compact(ctx context.Context, spec int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-i.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	i.mu.Lock()
	known := maps.Clone(i.collections)
	i.mu.Unlock()
	for _, c := range known {
		version, ok := c.ask(ctx)
		if !ok {
			continue
		}
		i.mu.Lock()
		c.compacted, c.spec = max(c.compacted, version), spec
		i.mu.Unlock()
	}
}

// ask lists one object to learn the version. It treats a panic of the handler as no
// answer, as http.Server does.
func (c *collection) ask(ctx context.Context) (version uint64, ok bool) {
	defer func() {
		if recover() != nil {
			version, ok = 0, false
		}
	}()
	rec := &recorder{header: http.Header{}}
	c.handler.ServeHTTP(rec, c.example.Clone(ctx))
	var list metav1.PartialObjectMetadataList
	if rec.code != http.StatusOK || json.Unmarshal(rec.body.Bytes(), &list) != nil {
		return 0, false
	}
	version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	return version, err == nil
}

// recorder records an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

// failure is an injected error answer.
type failure struct {
	status metav1.Status
	// detail is the text for the log.
	detail string
	// event: an accepted watch sends the failure as an ERROR event.
	event bool
}

func fail(err *apierrors.StatusError, detail string) failure {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return failure{status: status, detail: detail}
}

func gone() failure {
	return fail(apierrors.NewResourceExpired("too old resource version (an injected fault)"), "410 Expired")
}

func internal() failure {
	return fail(apierrors.NewInternalError(errInjected), "500 InternalError")
}

func throttled(rest time.Duration) failure {
	seconds := int(math.Ceil(rest.Seconds()))
	return fail(apierrors.NewTooManyRequests("too many requests (an injected fault), please try again later", max(seconds, 1)),
		"429 TooManyRequests, Retry-After "+strconv.Itoa(max(seconds, 1)))
}

// write answers with the failure.
func (f *failure) write(w http.ResponseWriter, r *request) {
	if f.event {
		e := encodingOf(r.Header.Get("Accept"))
		if frame, err := e.frame(watch.Error, &f.status); err == nil {
			w.Header().Set("Content-Type", e.stream())
			_, _ = w.Write(frame)
			return
		}
	}
	body, err := json.Marshal(&f.status)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(encodingJSON))
	if d := f.status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.WriteHeader(int(f.status.Code))
	_, _ = w.Write(append(body, '\n'))
}
