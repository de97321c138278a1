package fault

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	validation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
)

// request is a parsed request below a resource.
type request struct {
	http *http.Request
	wire.Request
	client  string // the program by [Hooks]
	version uint64 // resourceVersion of the query; 0 for none
}

// initial reports whether the request is a watch that asks for the initial state.
func (r *request) initial() bool {
	return r.Verb == "watch" && r.Query.Get("sendInitialEvents") == "true"
}

// needsHistory reports whether the request needs more than the current state.
func (r *request) needsHistory() bool {
	if r.Verb == "watch" {
		return !r.initial()
	}
	return r.Query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact)
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
	frozen    uint64 // version of an old view; the injector's mu guards it
}

// register adds the collection of a request.
func (i *Injector) register(h http.Handler, r *request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.collections[r.Resource] != nil {
		return
	}
	example := r.http.Clone(i.ctx)
	example.Method, example.Body, example.ContentLength = http.MethodGet, http.NoBody, 0
	example.URL = &url.URL{Path: wire.Path{Resource: r.Resource}.String(), RawQuery: "limit=1"}
	example.RequestURI = example.URL.RequestURI()
	example.Header.Set("Accept", wire.ContentJSON)
	for _, name := range []string{"Accept-Encoding", "Content-Type", "Content-Length"} {
		example.Header.Del(name)
	}
	i.collections[r.Resource] = &collection{example: example, handler: h}
}

// versions calls f with the current version of each collection that a text means. It skips a collection
// that cannot be listed. f runs under mu.
func (i *Injector) versions(resource string, f func(c *collection, version uint64)) {
	i.mu.Lock()
	known := maps.Clone(i.collections)
	i.mu.Unlock()
	for r, c := range known {
		if !matches(resource, r) {
			continue
		}
		if version, ok := c.version(); ok {
			i.mu.Lock()
			f(c, version)
			i.mu.Unlock()
		}
	}
}

// version lists one object to learn the current version. It treats a panic of the handler
// as no answer, as http.Server does.
func (c *collection) version() (version uint64, ok bool) {
	defer func() {
		if recover() != nil {
			version, ok = 0, false
		}
	}()
	rec := httptest.NewRecorder()
	c.handler.ServeHTTP(rec, c.example.Clone(c.example.Context()))
	var list metav1.PartialObjectMetadataList
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &list) != nil {
		return 0, false
	}
	version, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	return version, err == nil
}

// failure is an injected error answer.
type failure struct {
	status metav1.Status
	detail string // text for the log
	// event: an accepted watch sends the failure as an ERROR event.
	event bool
}

func fail(err *apierrors.StatusError, detail string) failure {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return failure{status: status, detail: detail}
}

// always returns a failure that does not depend on the rest of its fault.
func always(err *apierrors.StatusError, detail string) func(time.Duration) failure {
	return func(time.Duration) failure { return fail(err, detail) }
}

var (
	gone     = always(apierrors.NewResourceExpired("too old resource version (an injected fault)"), "410 Expired")
	internal = always(apierrors.NewInternalError(errors.New("an injected fault")), "500 InternalError")
	lost     = always(apierrors.NewTimeoutError("request did not complete within requested timeout (an injected fault)", 0), "504 Timeout of a write that took effect")
	conflict = always(apierrors.NewConflict(schema.GroupResource{}, "", errors.New("the object has been modified (an injected fault); please apply your changes to the latest version and try again")), "409 Conflict")
)

func withoutWatchList(time.Duration) failure {
	return fail(apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", validation.ErrorList{
		validation.Forbidden(validation.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
	}), "422 Invalid")
}

func throttled(rest time.Duration) failure {
	seconds := max(int(math.Ceil(rest.Seconds())), 1)
	return fail(apierrors.NewTooManyRequests("too many requests (an injected fault), please try again later", seconds),
		"429 TooManyRequests, Retry-After "+strconv.Itoa(seconds))
}

// write answers with the failure.
func (f *failure) write(w http.ResponseWriter, r *request) {
	if f.event {
		e := encodingOf(r.http.Header.Get("Accept"))
		if frame, err := e.frame(watch.Error, &f.status); err == nil {
			w.Header().Set("Content-Type", wire.FormOf(e.Media, wire.Object).StreamType())
			_, _ = w.Write(frame)
			return
		}
	}
	wire.WriteStatus(w, wire.JSON, &f.status)
}
