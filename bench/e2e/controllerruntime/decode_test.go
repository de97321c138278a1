package controllerruntime_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"watchlab/impls/decode"
	"watchlab/impls/informer"
)

// TestForManager: the informers of controller-runtime's cache decode with shared, which shows in the
// managed fields. Namespaces and selectors hold. Metadata is controller-runtime's, and so is all else
// where the client is not made of the config.
func TestForManager(t *testing.T) {
	s := pods("a", "b", "c", "d")
	for i := range s.Events {
		p := s.Events[i].Object.(*v1.Pod)
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply}}
		p.Labels = map[string]string{"app": "web"}
		switch p.Name {
		case "c":
			p.Labels = map[string]string{"app": "other"}
		case "d":
			p.Namespace, s.Events[i].Key = "elsewhere", "elsewhere/d"
		}
	}
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	kind := v1.SchemeGroupVersion.WithKind("Pod")
	for _, c := range []struct {
		name     string
		like     client.Object
		other    bool // client
		encoding decode.Encoding
		accepts  string
		stripped bool
	}{
		{"typed", &v1.Pod{}, false, "", runtime.ContentTypeProtobuf, true},
		{"typed/json", &v1.Pod{}, false, decode.JSON, runtime.ContentTypeJSON, true},
		{"unstructured", ofKind(&unstructured.Unstructured{}, kind), false, "", runtime.ContentTypeJSON, true},
		{"metadata", ofKind(&metav1.PartialObjectMetadata{}, kind), false, "", "", false},
		{"another client", &v1.Pod{}, true, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := startServer(s)
			t.Cleanup(srv.close)
			transport := &recording{inner: &http.Transport{}}
			t.Cleanup(transport.inner.CloseIdleConnections)
			plain := &rest.Config{Host: srv.url, Transport: transport}
			config, newInformer, err := informer.ForManager(plain, informer.Options{Decode: "shared", Decoder: decode.Options{Encoding: c.encoding}})
			if err != nil {
				t.Fatal(err)
			}
			of := config
			if c.other {
				of = plain
			}
			httpClient := must(rest.HTTPClientFor(of))(t)
			made := startCache(t, config, cache.Options{
				HTTPClient:  httpClient,
				NewInformer: newInformer,
				ByObject:    map[client.Object]cache.ByObject{c.like: {Namespaces: map[string]cache.Config{"default": {}}, Label: web}},
			})
			if err := made.IndexField(t.Context(), c.like, "name", func(obj client.Object) []string { return []string{obj.GetName()} }); err != nil {
				t.Fatal(err)
			}
			calls := handle(t, made, c.like)
			expect(t, calls, "add a@1 true", "add b@2 true")
			srv.Release(8)
			expect(t, calls, "update a@1 a@5", "update b@2 b@6")
			var got []string
			for _, obj := range cached(t.Context(), t, made, c.like) {
				if (obj.GetManagedFields() == nil) != c.stripped {
					t.Errorf("managed fields: %v", obj.GetManagedFields())
				}
				got = append(got, version(obj))
			}
			if slices.Sort(got); fmt.Sprint(got) != "[a@5 b@6]" {
				t.Errorf("the cache has %v", got)
			}
			if got := cached(t.Context(), t, made, c.like, client.MatchingFields{"name": "b"}); len(got) != 1 {
				t.Errorf("the index has %v", got)
			}
			if err := made.RemoveInformer(t.Context(), c.like); err != nil {
				t.Error(err)
			}
			for _, r := range transport.requests() {
				if !strings.Contains(r, "/namespaces/default/pods?") || !strings.Contains(r, "app%3Dweb") ||
					c.accepts != "" && !strings.HasPrefix(r, c.accepts+",") {
					t.Errorf("sent %q", r)
				}
			}
		})
	}
}

// recording records the media types and URLs of lists and watches.
type recording struct {
	inner *http.Transport
	mu    sync.Mutex
	sent  []string
}

func (r *recording) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/pods") {
		r.mu.Lock()
		r.sent = append(r.sent, req.Header.Get("Accept")+" "+req.URL.RequestURI())
		r.mu.Unlock()
	}
	return r.inner.RoundTrip(req)
}

func (r *recording) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent
}
