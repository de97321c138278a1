package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen.
const patience = time.Minute

// pods returns a storm of n pod events, the same for the same n: pods in two
// namespaces come and go, get a label and lose it, and move between nodes.
func pods(n int) *storm.Storm {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	s := &storm.Storm{
		Name:     "pods",
		Resource: v1.SchemeGroupVersion.WithResource("pods"),
		Kind:     v1.SchemeGroupVersion.WithKind("Pod"),
	}
	index := map[string]int32{}
	live := map[string]*v1.Pod{}
	for i := range n {
		seq := uint64(i + 1)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace:       fmt.Sprintf("ns-%d", rng.IntN(2)),
			Name:            fmt.Sprintf("pod-%d", rng.IntN(12)),
			ResourceVersion: strconv.FormatUint(seq, 10),
			Labels:          map[string]string{"app": fmt.Sprintf("a%d", rng.IntN(2))},
			// What HTML escaping is about.
			Annotations: map[string]string{"note": "<b>&\u2028\"\\ü"},
		}}
		p.Spec.NodeName = fmt.Sprintf("node-%d", rng.IntN(2))
		key := storm.ObjectKey(p.Namespace, p.Name)
		if _, ok := index[key]; !ok {
			index[key] = int32(len(index))
		}
		kind := watch.Added
		if was := live[key]; was != nil {
			kind = watch.Modified
			if rng.IntN(4) == 0 {
				kind = watch.Deleted
				p.Labels, p.Spec = was.Labels, was.Spec
			}
		} else if s.Initial == i && i < n/4 {
			s.Initial++
		}
		live[key] = p
		if kind == watch.Deleted {
			live[key] = nil
		}
		s.Events = append(s.Events, storm.Event{
			Type: kind, Seq: seq, At: time.Duration(i) * time.Millisecond, Key: key, KeyIndex: index[key], Object: p,
		})
	}
	s.Keys = len(index)
	return s
}

// bulky returns a storm of more bytes than sockets take before somebody reads.
func bulky() *storm.Storm {
	s := pods(2500)
	filler := strings.Repeat("x", 8<<10)
	for i := range s.Events {
		s.Events[i].Object.(*v1.Pod).Annotations["filler"] = filler
	}
	return s
}

// testServer is a started server and a client of it.
type testServer struct {
	*Server
	url    string
	client *http.Client
	config *rest.Config
}

func start(t testing.TB, s *storm.Storm, opts Options) *testServer {
	t.Helper()
	srv, err := New(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return &testServer{
		Server: srv,
		url:    url,
		client: &http.Client{Transport: transport},
		config: &rest.Config{Host: url, Transport: transport, QPS: -1},
	}
}

func (s *testServer) clientset(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// do sends a request and returns the answer with its body.
func (s *testServer) do(t testing.TB, method, path string, header ...string) (*http.Response, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, body
}

// open starts a watch and returns a function that reads the next frame; it
// returns nil at the end.
func (s *testServer) open(t testing.TB, path string) func() []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: %s: %s", path, res.Status, body)
	}
	r := bufio.NewReader(res.Body)
	return func() []byte {
		t.Helper()
		line, err := r.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 || !errors.Is(err, io.EOF) {
				t.Fatalf("%s: %v after %q", path, err, line)
			}
			return nil
		}
		return line
	}
}

// seen is what a test compares of an event.
type seen struct {
	Type    watch.EventType
	Key     string
	Version string
}

func decodeFrame(t testing.TB, frame []byte) (seen, *v1.Pod) {
	t.Helper()
	var e struct {
		Type   watch.EventType
		Object v1.Pod
	}
	if err := json.Unmarshal(frame, &e); err != nil {
		t.Fatalf("%v in frame %q", err, frame)
	}
	return seen{e.Type, storm.ObjectKey(e.Object.Namespace, e.Object.Name), e.Object.ResourceVersion}, &e.Object
}

// The frames of a recording come out as they came in from the real API server
// that sent them, byte for byte, but for the version.
func TestFramesAreThoseOfARealServer(t *testing.T) {
	for _, name := range trace.Names() {
		if name == "gang" {
			// More pods of the same kind.
			continue
		}
		t.Run(name, func(t *testing.T) {
			s, err := trace.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			srv, err := New(s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var i, marks int
			for raw := range recorded(t, name) {
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
					if got, err = srv.bookmarkFrame(version, end); err != nil {
						t.Fatal(err)
					}
				} else {
					got = srv.frames.between(uint64(i), version)
					i++
				}
				want := strings.Replace(string(raw)+"\n",
					fmt.Sprintf(`"resourceVersion":%q`, e.Object.Metadata.ResourceVersion),
					fmt.Sprintf(`"resourceVersion":"%d"`, version), 1)
				if want != string(got) {
					t.Fatalf("frame %d (-recorded +served):\n%s", i, cmp.Diff(want, string(got)))
				}
			}
			if i != len(s.Events) || marks != 1 {
				t.Errorf("%d events and %d ends of the initial list were compared, want %d and 1", i, marks, len(s.Events))
			}
		})
	}
}

// A watch of everything is the storm's frames.
func TestWatchFromVersion(t *testing.T) {
	s := pods(300)
	srv := start(t, s, Options{})
	next := srv.open(t, fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d", s.Initial))
	for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
		srv.Release(uint64(seq))
		if got, want := string(next()), string(srv.frames.between(uint64(seq-1), uint64(seq))); got != want {
			t.Fatalf("frame %d is %s, want %s", seq, got, want)
		}
	}
	// Once more from the middle, all at once.
	from := len(s.Events) / 2
	next = srv.open(t, fmt.Sprintf("/api/v1/pods?watch=true&resourceVersion=%d", from))
	for seq := from + 1; seq <= len(s.Events); seq++ {
		if e, _ := decodeFrame(t, next()); e.Version != strconv.Itoa(seq) {
			t.Fatalf("version %s, want %d", e.Version, seq)
		}
	}
	if n := srv.Watches(); n != 2 {
		t.Errorf("Watches() = %d, want 2", n)
	}
	if n := srv.Snapshots(); n != 0 {
		t.Errorf("Snapshots() = %d, want 0", n)
	}
	if got, least := srv.WireBytes(), int64(len(srv.frames.data)); got < least {
		t.Errorf("WireBytes() = %d, want more than the %d of the frames", got, least)
	}
}

// viewer keeps the state that a watch's events make, and refuses those that
// don't fit.
type viewer map[string]string

func (v viewer) apply(t testing.TB, e seen) {
	t.Helper()
	_, there := v[e.Key]
	if there == (e.Type == watch.Added) {
		t.Fatalf("%v where there=%v", e, there)
	}
	if e.Type == watch.Deleted {
		delete(v, e.Key)
	} else {
		v[e.Key] = e.Version
	}
}

// want returns the state at a position of what a filter takes.
func want(s *storm.Storm, at int, takes func(*v1.Pod) bool) viewer {
	v := viewer{}
	for _, e := range s.Events[:at] {
		if p := e.Object.(*v1.Pod); e.Type != watch.Deleted && takes(p) {
			v[e.Key] = p.ResourceVersion
		} else {
			delete(v, e.Key)
		}
	}
	return v
}

var filters = []struct {
	path  string
	takes func(*v1.Pod) bool
}{
	{"/api/v1/pods?x=y", func(*v1.Pod) bool { return true }},
	{"/api/v1/namespaces/ns-1/pods?x=y", func(p *v1.Pod) bool { return p.Namespace == "ns-1" }},
	{"/api/v1/namespaces/none/pods?x=y", func(*v1.Pod) bool { return false }},
	{"/api/v1/pods?labelSelector=app%3Da1", func(p *v1.Pod) bool { return p.Labels["app"] == "a1" }},
	{"/api/v1/pods?labelSelector=app+notin+(a1),app", func(p *v1.Pod) bool { return p.Labels["app"] != "a1" }},
	{"/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", func(p *v1.Pod) bool { return p.Spec.NodeName == "node-1" }},
	{"/api/v1/pods?fieldSelector=spec.nodeName!%3Dnode-1,metadata.namespace%3Dns-0", func(p *v1.Pod) bool { return p.Spec.NodeName != "node-1" && p.Namespace == "ns-0" }},
	{"/api/v1/namespaces/ns-0/pods?fieldSelector=metadata.name%3Dpod-3", func(p *v1.Pod) bool { return p.Name == "pod-3" && p.Namespace == "ns-0" }},
}

// What a filtered watch makes of its events is, at every bookmark, what a
// filtered list of that version shows.
func TestFilteredWatch(t *testing.T) {
	s := pods(400)
	for _, f := range filters {
		t.Run(f.path, func(t *testing.T) {
			srv := start(t, s, Options{BookmarkInterval: time.Millisecond})
			next := srv.open(t, f.path+"&watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
			v := viewer{}
			last, marks := 0, 0
			for at := s.Initial; ; {
				e, p := decodeFrame(t, next())
				version, err := strconv.Atoi(e.Version)
				if err != nil {
					t.Fatal(err)
				}
				if e.Type != watch.Bookmark {
					if marks > 0 && version <= last {
						t.Fatalf("%v after version %d", e, last)
					}
					// A pod leaves with its last state that matched.
					if !f.takes(p) {
						t.Fatalf("%v %v on %s: it isn't selected", e, p.Labels, p.Spec.NodeName)
					}
					last = max(last, version)
					v.apply(t, e)
					continue
				}
				if first := p.Annotations[metav1.InitialEventsAnnotationKey] == "true"; first != (marks == 0) {
					t.Fatalf("bookmark %d: annotated: %v", marks, first)
				}
				marks++
				if diff := cmp.Diff(want(s, version, f.takes), v); diff != "" {
					t.Fatalf("at %d (-want +got):\n%s", version, diff)
				}
				if version == len(s.Events) {
					return
				}
				if version == at {
					at = min(at+7, len(s.Events))
					srv.Release(uint64(at))
				}
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
					res, body := srv.do(t, http.MethodGet, fmt.Sprintf("%s&limit=%d&continue=%s", f.path, limit, token))
					if res.StatusCode != http.StatusOK {
						t.Fatalf("%s: %s", res.Status, body)
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
							t.Errorf("item %s has a kind; a real server's hasn't", p.Name)
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
					// Later events don't change the pages of a list.
					srv.Release(srv.stream.Visible())
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

// The pages of a list are those of one moment.
func TestPagesAreOneSnapshot(t *testing.T) {
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
			t.Errorf("%s: %v, want it not to be found", e.Key, err)
		case there && err != nil:
			t.Errorf("%s: %v", e.Key, err)
		case there:
			if diff := cmp.Diff(s.Events[seq-1].Object, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", e.Key, diff)
			}
		}
	}
	// As kubectl asks: for a table, or else JSON.
	res, body := srv.do(t, http.MethodGet, "/api/v1/namespaces/ns-0/pods?limit=500", "Accept",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), `{"kind":"PodList","apiVersion":"v1",`) {
		t.Errorf("kubectl get pods: %s: %.80s", res.Status, body)
	}
	// The frames are still what they were.
	fresh, err := New(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if string(fresh.frames.data) != string(srv.frames.data) {
		t.Error("serving changed the frames")
	}
}

func TestStatuses(t *testing.T) {
	srv := start(t, pods(200), Options{Retain: 20})
	srv.Release(200)
	const json, protobuf = "application/json", "application/vnd.kubernetes.protobuf"
	token, err := continueToken{Version: continueVersion, ResourceVersion: 100, StartKey: "a"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path, accept string
		code                 int
		reason               metav1.StatusReason
	}{
		{"GET", "/api/v1/nodes", json, 404, metav1.StatusReasonNotFound},
		{"GET", "/apis/apps/v1/pods", json, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/pods/pod-1", json, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces//pods", json, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/ns-0/pods/pod-1/log", json, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/ns-0/pods/none", json, 404, metav1.StatusReasonNotFound},
		{"GET", "/", json, 404, metav1.StatusReasonNotFound},
		{"POST", "/api/v1/namespaces/ns-0/pods", json, 405, metav1.StatusReasonMethodNotAllowed},
		{"PUT", "/api/v1/namespaces/ns-0/pods/pod-1", json, 405, metav1.StatusReasonMethodNotAllowed},
		{"PATCH", "/api/v1/namespaces/ns-0/pods/pod-1", json, 405, metav1.StatusReasonMethodNotAllowed},
		{"DELETE", "/api/v1/pods", json, 405, metav1.StatusReasonMethodNotAllowed},
		{"GET", "/api/v1/pods", protobuf, 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods", "application/json;q=0", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods", "application/json;as=Table;v=v1;g=meta.k8s.io", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods", protobuf + ", */*;q=0.5", 200, ""},
		{"GET", "/api/v1/pods?%zz", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?limit=many", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?limit=-1", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=maybe", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&timeoutSeconds=soon", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&timeoutSeconds=-5", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&resourceVersion=new", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?resourceVersion=-1", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?labelSelector=a%20b%20c", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?fieldSelector=status.phase%3DRunning", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?continue=abc", json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?resourceVersion=200&continue=" + token, json, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&sendInitialEvents=true", json, 422, metav1.StatusReasonInvalid},
		{"GET", "/api/v1/pods?sendInitialEvents=true&resourceVersion=1&resourceVersionMatch=NotOlderThan", json, 422, metav1.StatusReasonInvalid},
		{"GET", "/api/v1/pods?resourceVersionMatch=Exact", json, 422, metav1.StatusReasonInvalid},
		{"GET", "/api/v1/pods?continue=" + token, json, 410, metav1.StatusReasonExpired},
		{"GET", "/api/v1/pods?resourceVersion=100&resourceVersionMatch=Exact", json, 410, metav1.StatusReasonExpired},
		{"GET", "/api/v1/pods?resourceVersion=100", json, 200, ""},
		{"GET", "/api/v1/pods?resourceVersion=201", json, 504, metav1.StatusReasonTimeout},
		{"GET", "/api/v1/pods?watch=1&resourceVersion=201", json, 504, metav1.StatusReasonTimeout},
		{"GET", "/api/v1/namespaces/ns-0/pods/pod-1?resourceVersion=201", json, 504, metav1.StatusReasonTimeout},
	} {
		t.Run(tc.method+" "+tc.path+" "+tc.accept, func(t *testing.T) {
			res, body := srv.do(t, tc.method, tc.path, "Accept", tc.accept)
			if res.StatusCode != tc.code {
				t.Fatalf("%s, want %d: %s", res.Status, tc.code, body)
			}
			if tc.code == http.StatusOK {
				return
			}
			var status metav1.Status
			if err := jsonUnmarshal(body, &status); err != nil {
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

func jsonUnmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }

// A watch from a version that is gone gets an ERROR event with the status 410,
// and ends.
func TestWatchGone(t *testing.T) {
	srv := start(t, pods(200), Options{Retain: 20})
	srv.Release(200)
	next := srv.open(t, "/api/v1/pods?watch=1&resourceVersion=179")
	var e struct {
		Type   watch.EventType
		Object metav1.Status
	}
	frame := next()
	if err := json.Unmarshal(frame, &e); err != nil {
		t.Fatal(err)
	}
	if e.Type != watch.Error || e.Object.Code != http.StatusGone || e.Object.Reason != metav1.StatusReasonExpired {
		t.Errorf("frame %s, want an ERROR with 410", frame)
	}
	if more := next(); more != nil {
		t.Errorf("frame %s after the ERROR", more)
	}
	next = srv.open(t, "/api/v1/pods?watch=1&resourceVersion=180")
	if e, _ := decodeFrame(t, next()); e.Version != "181" {
		t.Errorf("the oldest that is retained goes on with %s, want 181", e.Version)
	}
}

func TestWatchTimeout(t *testing.T) {
	srv := start(t, pods(40), Options{})
	next := srv.open(t, "/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dnone")
	if frame := next(); frame != nil {
		t.Errorf("frame %s, want the end", frame)
	}
}

// A watch from any state starts with the oldest; one without a version with
// the present state; neither marks its end.
func TestLegacyInitialEvents(t *testing.T) {
	s := pods(200)
	srv := start(t, s, Options{})
	srv.Release(200)
	for version, at := range map[string]int{"": 200, "0": s.Initial} {
		next := srv.open(t, "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion="+version)
		v := viewer{}
		state := want(s, at, func(*v1.Pod) bool { return true })
		for range state {
			e, _ := decodeFrame(t, next())
			v.apply(t, e)
		}
		if diff := cmp.Diff(state, v); diff != "" {
			t.Errorf("resourceVersion=%q (-want +got):\n%s", version, diff)
		}
	}
}

// A watch that nobody reads holds up neither Release nor another watch, and
// gets everything in the end.
func TestSlowWatch(t *testing.T) {
	s := bulky()
	srv := start(t, s, Options{})
	path := fmt.Sprintf("/api/v1/pods?watch=1&resourceVersion=%d", s.Initial)
	slow, fast := srv.open(t, path), srv.open(t, path)
	for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
		srv.Release(uint64(seq))
	}
	for _, next := range []func() []byte{fast, slow} {
		for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
			if got, want := string(next()), string(srv.frames.between(uint64(seq-1), uint64(seq))); got != want {
				t.Fatalf("frame %d is %.80s…, want %.80s…", seq, got, want)
			}
		}
	}
}

func TestHealthAndDiscovery(t *testing.T) {
	leases, err := trace.Load("nodeloss-leases")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := trace.Load("nodeloss-nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*storm.Storm{pods(10), leases, nodes} {
		t.Run(s.Resource.Resource, func(t *testing.T) {
			srv := start(t, s, Options{})
			for _, path := range []string{"/healthz", "/livez", "/readyz"} {
				if res, body := srv.do(t, http.MethodGet, path); res.StatusCode != http.StatusOK || string(body) != "ok" {
					t.Errorf("%s: %s %s", path, res.Status, body)
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
	s, err := trace.Load("nodeloss-nodes")
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
	if _, err := New(pods(10), Options{Retain: -1}); !errors.Is(err, ErrOptions) {
		t.Errorf("Retain -1: %v", err)
	}
	if _, err := New(pods(10), Options{BookmarkInterval: -1}); !errors.Is(err, ErrOptions) {
		t.Errorf("BookmarkInterval -1: %v", err)
	}
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
	// Close ends a watch that waits, and one that is stuck in a write.
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

// body starts a watch and returns a function that reads n bytes of it.
func (s *testServer) body(t testing.TB, path string) func(n int64) {
	t.Helper()
	res, err := s.client.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return func(n int64) {
		if _, err := io.CopyN(io.Discard, res.Body, n); err != nil {
			t.Error(err)
		}
	}
}
