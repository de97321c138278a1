package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

func TestMain(m *testing.M) {
	// net/http keeps a connection for 500 ms after it refused a request, so that the client reads why.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience is the time limit of an expected event.
const patience = time.Minute

// Except for the version, the frames of a recording equal those of the recorded API
// server byte for byte.
func TestFramesMatchKubeAPIServer(t *testing.T) {
	for _, name := range trace.Names() {
		if name == "recorded-gang" || name == "recorded-rollout" {
			// The others are further pods of the same kind.
			continue
		}
		t.Run(name, func(t *testing.T) {
			s, err := trace.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			p, err := PrepareWith(s, store.NewBudget(0))
			if err != nil {
				t.Fatal(err)
			}
			srv, err := Open(Options{}, p)
			if err != nil {
				t.Fatal(err)
			}
			srv.Release(uint64(len(s.Events)))
			c := srv.storms[0]
			req := &request{target: target{resource: c.stored}, collection: c, kind: c.kind}
			var i, marks int
			// 900 frames take a few seconds with the race detector and include the end
			// of the initial list.
			enough := min(len(s.Events), 900)
			for raw := range recorded(t, name) {
				if i == enough {
					break
				}
				var e struct {
					Type   watch.EventType
					Object struct{ Metadata metav1.ObjectMeta }
				}
				if err := json.Unmarshal(raw, &e); err != nil {
					t.Fatal(err)
				}
				var got []byte
				version := uint64(i + 1)
				if e.Type == watch.Bookmark {
					version = uint64(i)
					end := e.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
					if end {
						marks++
					}
					if got, err = req.bookmark(version, end); err != nil {
						t.Fatal(err)
					}
				} else {
					got = srv.frames(t, uint64(i), version)
					i++
				}
				want := strings.Replace(string(raw)+"\n",
					fmt.Sprintf(`"resourceVersion":%q`, e.Object.Metadata.ResourceVersion),
					fmt.Sprintf(`"resourceVersion":"%d"`, version), 1)
				if want != string(got) {
					t.Fatalf("frame %d (-recorded +served):\n%s", i, cmp.Diff(want, string(got)))
				}
			}
			if i != enough || marks != 1 {
				t.Errorf("%d events and %d ends of the initial list were compared, want %d and 1", i, marks, enough)
			}
		})
	}
}

func TestList(t *testing.T) {
	s := pods(400)
	srv := start(t, s, Options{})
	srv.Release(200)
	for _, f := range filters {
		for _, limit := range []int{0, 1, 5} {
			t.Run(fmt.Sprintf("%s&limit=%d", f.path, limit), func(t *testing.T) {
				got := viewer{}
				token, keys := "", []string{}
				for {
					code, body := srv.do(t, http.MethodGet, fmt.Sprintf("%s&limit=%d&continue=%s", f.path, limit, token))
					if code != http.StatusOK {
						t.Fatalf("%d: %s", code, body)
					}
					var l v1.PodList
					if err := json.Unmarshal(body, &l); err != nil {
						t.Fatal(err)
					}
					if l.Kind != "PodList" || l.APIVersion != "v1" || l.ResourceVersion != "200" || l.Items == nil {
						t.Fatalf("list is %s", body)
					}
					for _, p := range l.Items {
						if p.Kind != "" {
							t.Errorf("item %s has a kind, unlike a real server's", p.Name)
						}
						key := storm.ObjectKey(p.Namespace, p.Name)
						got[key] = p.ResourceVersion
						keys = append(keys, key)
					}
					if token = l.Continue; token == "" {
						break
					}
					if len(l.Items) != limit {
						t.Fatalf("a page of %d", len(l.Items))
					}
					// Later events do not change the pages of a list.
					srv.Release(200)
				}
				if diff := cmp.Diff(want(s, 200, f.takes), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if !slices.IsSorted(keys) || len(keys) != len(got) {
					t.Errorf("keys %v, want them sorted and once", keys)
				}
			})
		}
	}
}

// All pages of a list show one version.
func TestPagesShareSnapshot(t *testing.T) {
	s := pods(400)
	srv := start(t, s, Options{})
	srv.Release(200)
	c := srv.clientset(t).CoreV1().Pods("")
	page, err := c.List(t.Context(), metav1.ListOptions{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	all := want(s, 200, func(*v1.Pod) bool { return true })
	if page.RemainingItemCount == nil || *page.RemainingItemCount != int64(len(all)-3) {
		t.Errorf("remainingItemCount %v, want %d", page.RemainingItemCount, len(all)-3)
	}
	srv.Release(400)
	got := viewer{}
	for {
		for _, p := range page.Items {
			got[storm.ObjectKey(p.Namespace, p.Name)] = p.ResourceVersion
		}
		if page.Continue == "" {
			break
		}
		if page, err = c.List(t.Context(), metav1.ListOptions{Limit: 3, Continue: page.Continue}); err != nil {
			t.Fatal(err)
		}
		if page.ResourceVersion != "200" {
			t.Errorf("a later page has version %s, want 200", page.ResourceVersion)
		}
	}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := srv.Snapshots(); n != 1 {
		t.Errorf("Snapshots() = %d, want 1: further pages don't count", n)
	}
	exact, err := c.List(t.Context(), metav1.ListOptions{ResourceVersion: "150", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(want(s, 150, func(*v1.Pod) bool { return true })); len(exact.Items) != n || exact.ResourceVersion != "150" {
		t.Errorf("exactly at 150 there are %d at %s, want %d", len(exact.Items), exact.ResourceVersion, n)
	}
}

func TestGet(t *testing.T) {
	s := pods(200)
	srv := start(t, s, Options{})
	srv.Release(200)
	c := srv.clientset(t).CoreV1()
	final := s.Final()
	for i := range s.Events {
		e := &s.Events[i]
		p := e.Object.(*v1.Pod)
		got, err := c.Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		seq, there := final[e.Key]
		switch {
		case !there && !apierrors.IsNotFound(err):
			t.Errorf("%s: %v, want NotFound", e.Key, err)
		case there && err != nil:
			t.Errorf("%s: %v", e.Key, err)
		case there:
			if diff := cmp.Diff(s.Events[seq-1].Object, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", e.Key, diff)
			}
		}
	}
	// kubectl asks for a table, or else JSON.
	code, body := srv.do(t, http.MethodGet, "/api/v1/namespaces/ns-0/pods?limit=500", "Accept",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	if code != http.StatusOK || !strings.HasPrefix(string(body), `{"kind":"Table","apiVersion":"meta.k8s.io/v1",`) {
		t.Errorf("kubectl get pods: %d: %.80s", code, body)
	}
	// The frames have not changed.
	if string(allOf(t, s)) != string(srv.frames(t, 0, 200)) {
		t.Error("serving changed the frames")
	}
}

func TestStatuses(t *testing.T) {
	srv := start(t, pods(200), Options{Retain: 20})
	srv.Release(200)
	const jsonType, protobuf = "application/json", "application/vnd.kubernetes.protobuf"
	token, err := continueToken{Version: continueVersion, ResourceVersion: 100, StartKey: "a"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path, accept string
		code                 int
		reason               metav1.StatusReason
	}{
		{"GET", "/api/v1/nodes", jsonType, 200, ""},
		{"GET", "/apis/apps/v1/pods", jsonType, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/pods/pod-1", jsonType, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces//pods", jsonType, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/ns-0/pods/pod-1/log", jsonType, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/ns-0/pods/none", jsonType, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/ns-0/nodes", jsonType, 404, metav1.StatusReasonNotFound},
		{"POST", "/api/v1/pods", jsonType, 405, metav1.StatusReasonMethodNotAllowed},
		{"PUT", "/api/v1/namespaces/ns-0/pods", jsonType, 405, metav1.StatusReasonMethodNotAllowed},
		{"POST", "/api/v1/namespaces/ns-0/pods/pod-1", jsonType, 405, metav1.StatusReasonMethodNotAllowed},
		{"POST", "/healthz", jsonType, 405, metav1.StatusReasonMethodNotAllowed},
		{"GET", "/api/v1/pods", "application/yaml", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods", "application/json;q=0", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods", "application/json;as=Table;v=v2;g=meta.k8s.io", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods?includeObject=Some", "application/json;as=Table;v=v1;g=meta.k8s.io", 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods", protobuf + ", */*;q=0.5", 200, ""},
		{"GET", "/api/v1/pods?%zz", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?limit=many", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?limit=-1", jsonType, 200, ""},
		{"GET", "/api/v1/pods?watch=maybe&timeoutSeconds=-5", jsonType, 200, ""},
		{"GET", "/api/v1/pods?watch=1&timeoutSeconds=soon", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&timeoutSeconds=-5", jsonType, 200, ""},
		{"GET", "/api/v1/pods?watch=1&resourceVersion=new", jsonType, 500, ""},
		{"GET", "/api/v1/pods?resourceVersion=-1", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?labelSelector=a%20b%20c", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?fieldSelector=status.qosClass%3DBurstable", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?continue=abc", jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?resourceVersion=200&continue=" + token, jsonType, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&sendInitialEvents=true", jsonType, 422, metav1.StatusReasonInvalid},
		{"GET", "/api/v1/pods?sendInitialEvents=true&resourceVersion=1&resourceVersionMatch=NotOlderThan", jsonType, 422, metav1.StatusReasonInvalid},
		{"GET", "/api/v1/pods?resourceVersionMatch=Exact", jsonType, 422, metav1.StatusReasonInvalid},
		{"GET", "/api/v1/pods?continue=" + token, jsonType, 410, metav1.StatusReasonExpired},
		{"GET", "/api/v1/pods?resourceVersion=100&resourceVersionMatch=Exact", jsonType, 410, metav1.StatusReasonExpired},
		{"GET", "/api/v1/pods?resourceVersion=100", jsonType, 200, ""},
		{"GET", "/api/v1/pods?resourceVersion=201", jsonType, 504, metav1.StatusReasonTimeout},
		{"GET", "/api/v1/pods?watch=1&resourceVersion=201", jsonType, 504, metav1.StatusReasonTimeout},
		{"GET", "/api/v1/namespaces/ns-0/pods/pod-1?resourceVersion=201", jsonType, 504, metav1.StatusReasonTimeout},
	} {
		t.Run(tc.method+" "+tc.path+" "+tc.accept, func(t *testing.T) {
			code, body := srv.do(t, tc.method, tc.path, "Accept", tc.accept)
			if code != tc.code {
				t.Fatalf("%d, want %d: %s", code, tc.code, body)
			}
			if tc.code == http.StatusOK {
				return
			}
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure ||
				int(status.Code) != tc.code || status.Reason != tc.reason || status.Message == "" {
				t.Errorf("status %s, want %d %s", body, tc.code, tc.reason)
			}
			if tc.code == http.StatusGatewayTimeout && !apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: status}, metav1.CauseTypeResourceVersionTooLarge) {
				t.Errorf("status %s has no cause that client-go knows", body)
			}
		})
	}
}

func TestHealthAndDiscovery(t *testing.T) {
	leases, err := trace.Load("recorded-nodeloss-leases")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := trace.Load("recorded-nodeloss-nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*storm.Storm{pods(10), leases, nodes} {
		t.Run(s.Resource.Resource, func(t *testing.T) {
			srv := start(t, s, Options{})
			for _, path := range []string{"/healthz", "/livez", "/readyz"} {
				if code, body := srv.do(t, http.MethodGet, path); code != http.StatusOK || string(body) != "ok" {
					t.Errorf("%s: %d %s", path, code, body)
				}
			}
			d, err := discovery.NewDiscoveryClientForConfig(srv.config)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := d.ServerVersion(); err != nil || v.Major != "1" {
				t.Errorf("version %v, %v", v, err)
			}
			groups, err := restmapper.GetAPIGroupResources(d)
			if err != nil {
				t.Fatal(err)
			}
			m, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(s.Kind.GroupKind(), s.Kind.Version)
			if err != nil {
				t.Fatal(err)
			}
			wantScope := meta.RESTScopeNamespace
			if s == nodes {
				wantScope = meta.RESTScopeRoot
			}
			if m.Resource != s.Resource || m.Scope != wantScope {
				t.Errorf("mapping %v %v, want %v %v", m.Resource, m.Scope.Name(), s.Resource, wantScope.Name())
			}
		})
	}
}

func TestClusterScoped(t *testing.T) {
	s, err := trace.Load("recorded-nodeloss-nodes")
	if err != nil {
		t.Fatal(err)
	}
	srv := start(t, s, Options{})
	c := srv.clientset(t).CoreV1().Nodes()
	name := s.Events[0].Key
	if n, err := c.Get(t.Context(), name, metav1.GetOptions{}); err != nil || n.Name != name {
		t.Errorf("Get(%s): %v, %v", name, n, err)
	}
	l, err := c.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil || len(l.Items) != 1 {
		t.Errorf("List: %v, %v", l, err)
	}
	if _, err := c.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("nodes by spec.nodeName: %v, want a bad request", err)
	}
}

func TestLifecycle(t *testing.T) {
	bad := pods(10)
	bad.Events[3].Seq = 7
	if _, err := New(bad, Options{}); !errors.Is(err, storm.ErrInvalid) {
		t.Errorf("an invalid storm: %v", err)
	}
	srv, err := New(pods(10), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Close(); err != nil {
		t.Errorf("Close before Start: %v", err)
	}
	if _, err := srv.Start(); !errors.Is(err, ErrState) {
		t.Errorf("Start after Close: %v", err)
	}
	// Close ends an idle watch and a watch that is blocked in a write.
	s := bulky()
	started := start(t, s, Options{})
	if _, err := started.Start(); !errors.Is(err, ErrState) {
		t.Errorf("a second Start: %v", err)
	}
	started.open(t, "/api/v1/pods?watch=1&resourceVersion=1")
	started.open(t, "/api/v1/namespaces/none/pods?watch=1&resourceVersion=1")
	started.Release(uint64(len(s.Events)) + 5)
	for range 2 {
		if err := started.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}
