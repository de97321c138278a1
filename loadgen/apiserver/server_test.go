package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
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

// A client's mapper finds the resource of a storm.
func TestDiscovery(t *testing.T) {
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
			d, err := discovery.NewDiscoveryClientForConfig(srv.config)
			if err != nil {
				t.Fatal(err)
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

// recorded yields the raw frames of a recording.
func recorded(t testing.TB, name string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		f, err := trace.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		for r := trace.NewReader(f, name); ; {
			switch f, err := r.Next(); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				t.Fatal(err)
			case !yield(fmt.Appendf(nil, `{"type":%q,"object":%s}`, f.Type, f.Object)):
				return
			}
		}
	}
}
