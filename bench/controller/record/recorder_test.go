package record_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
)

// text returns the facts of an access that do not depend on time.
func text(a *record.Access) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", a.Verb, a.Resource.GroupResource())
	if a.Subresource != "" {
		fmt.Fprintf(&b, "/%s", a.Subresource)
	}
	fmt.Fprintf(&b, " %q %d", a.Key, a.Code)
	if a.Based > 0 {
		fmt.Fprintf(&b, " based=%d", a.Based)
	}
	if a.Version > 0 {
		fmt.Fprintf(&b, " version=%d", a.Version)
	}
	for name, set := range map[string]bool{"unchanged": a.Unchanged, "dry": a.DryRun, "continues": a.Continues, "state": a.State && !a.Any, "any": a.State && a.Any} {
		if set {
			b.WriteString(" " + name)
		}
	}
	return b.String()
}

func texts(r *record.Recorder) string {
	accesses, _ := r.Result()
	var lines []string
	for i := range accesses {
		lines = append(lines, text(&accesses[i]))
	}
	return strings.Join(lines, "\n")
}

// named names the client of each request, as the check of tokens does.
func named(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(apiserver.WithClient(r.Context(), "new-0")))
	})
}

// cborOf encodes as a client does.
func cborOf(t *testing.T, v any) string {
	t.Helper()
	b, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return "\xd9\xd9\xf7" + string(b)
}

const (
	pods  = "/api/v1/namespaces/a/pods"
	web   = pods + "/web"
	merge = "application/merge-patch+json"
	apply = "application/apply-patch+yaml"
)

func TestRequests(t *testing.T) {
	for name, test := range map[string]struct {
		method, target, contentType, body string
		code                              int // 0 aborts the answer
		answer                            string
		want                              string
	}{
		"get":                     {"GET", web, "", "", 200, `{}`, `get pods "a/web" 200`},
		"get a subresource":       {"GET", web + "/log", "", "", 200, `x`, `get pods/log "a/web" 200`},
		"get of the cluster":      {"GET", "/api/v1/nodes/n", "", "", 404, `{}`, `get nodes "n" 404`},
		"get a namespace":         {"GET", "/api/v1/namespaces/a", "", "", 200, `{}`, `get namespaces "a" 200`},
		"status of a namespace":   {"PUT", "/api/v1/namespaces/a/status", "", "", 200, ``, `update namespaces/status "a" 200`},
		"list":                    {"GET", "/apis/apps/v1/deployments?limit=5", "", "", 200, `{}`, `list deployments.apps "" 200 state`},
		"list of any version":     {"GET", pods + "?resourceVersion=0", "", "", 200, `{}`, `list pods "a/" 200 any`},
		"list in a namespace":     {"GET", pods, "", "", 200, `{}`, `list pods "a/" 200 state`},
		"list on":                 {"GET", pods + "?continue=x", "", "", 200, `{}`, `list pods "a/" 200 continues`},
		"watch":                   {"GET", pods + "?watch=1&resourceVersion=5", "", "", 200, ``, `watch pods "a/" 200`},
		"watch the state":         {"GET", pods + "?watch=true&resourceVersion=0", "", "", 200, ``, `watch pods "a/" 200 state`},
		"watch the initial state": {"GET", pods + "?watch=true&resourceVersion=7&sendInitialEvents=true", "", "", 200, ``, `watch pods "a/" 200 state`},
		"no watch":                {"GET", pods + "?watch=false", "", "", 200, ``, `list pods "a/" 200 state`},
		"create": {"POST", pods, "", `{"metadata":{"generateName":"web-"}}`, 201, `{"kind":"Pod","metadata":{"name":"web-1","resourceVersion":"7"}}`,
			`create pods "a/web-1" 201 version=7`},
		"create of the cluster": {"POST", "/api/v1/nodes", "", `{"metadata":{"name":"n"}}`, 409, `{"kind":"Status","metadata":{}}`, `create nodes "n" 409`},
		"create without a name": {"POST", pods, "", `{`, 400, `{}`, `create pods "a/" 400`},
		"create a subresource":  {"POST", web + "/binding", "", `{"metadata":{"name":"web"}}`, 201, `{"kind":"Status"}`, `create pods/binding "a/web" 201`},
		"update": {"PUT", web, "", `{"metadata":{"name":"web","resourceVersion":"7"}}`, 200, `{"metadata":{"name":"web","resourceVersion":"9"}}`,
			`update pods "a/web" 200 based=7 version=9`},
		"update without a change": {"PUT", web, "", `{"metadata":{"resourceVersion":"7"}}`, 200, `{"metadata":{"resourceVersion":"7"}}`,
			`update pods "a/web" 200 based=7 version=7 unchanged`},
		"conflict": {"PUT", web, "", `{"metadata":{"resourceVersion":"7"}}`, 409, `{"kind":"Status","metadata":{"resourceVersion":"3"}}`, `update pods "a/web" 409 based=7`},
		"known before": {"PATCH", web, merge, `{"metadata":{"labels":{}}}`, 200, `{"metadata":{"resourceVersion":"5"}}`,
			`patch pods "a/web" 200 version=5 unchanged`},
		"merge patch": {"PATCH", web, merge, `{"metadata":{"resourceVersion":"6"}}`, 200, `{"metadata":{"resourceVersion":"8"}}`,
			`patch pods "a/web" 200 based=6 version=8`},
		"JSON patch": {"PATCH", web, "application/json-patch+json", `[{"op":"test","path":"/metadata/resourceVersion","value":"6"}]`, 200, `{"metadata":{"resourceVersion":"8"}}`,
			`patch pods "a/web" 200 based=6 version=8`},
		"apply": {"PATCH", web + "?fieldManager=x&dryRun=All", apply, "kind: Pod\nmetadata: {name: web, resourceVersion: \"6\"}\n", 200, `{"metadata":{"resourceVersion":"8"}}`,
			`apply pods "a/web" 200 based=6 version=8 dry`},
		"apply in CBOR": {"PATCH", web, "application/apply-patch+cbor", cborOf(t, map[string]any{"metadata": map[string]any{"resourceVersion": "6"}}), 200,
			cborOf(t, map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "web", "resourceVersion": "8", "labels": map[string]any{"a": "b"}}}),
			`apply pods "a/web" 200 based=6 version=8`},
		"delete": {"DELETE", web, "", `{"kind":"DeleteOptions","dryRun":["All"],"preconditions":{"resourceVersion":"6"}}`, 200, `{"kind":"Status","metadata":{}}`,
			`delete pods "a/web" 200 based=6 dry`},
		"delete without a kind": {"DELETE", web, "", `{"preconditions":{"resourceVersion":"6"}}`, 200, ``, `delete pods "a/web" 200 based=6`},
		"delete without a body": {"DELETE", web, "", ``, 200, `{"metadata":{"resourceVersion":"8"}}`, `delete pods "a/web" 200 version=8`},
		"delete all":            {"DELETE", pods, "", ``, 200, `{"kind":"PodList","metadata":{"resourceVersion":"8"}}`, `deletecollection pods "a/" 200`},
		"evict": {"POST", web + "/eviction", "", `{"metadata":{"name":"web"},"deleteOptions":{"preconditions":{"resourceVersion":"6"}}}`, 201, `{"kind":"Status"}`,
			`create pods/eviction "a/web" 201 based=6`},
		"aborted":        {"PUT", web, "", `{"metadata":{"resourceVersion":"7"}}`, 0, ``, `update pods "a/web" 0 based=7`},
		"discovery":      {"GET", "/apis/apps/v1", "", "", 200, `{}`, ``},
		"health":         {"GET", "/healthz", "", "", 200, `{}`, ``},
		"another method": {"OPTIONS", web, "", "", 405, `{}`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			r := record.NewRecorder()
			r.Observe(apiserver.Change{Resource: v1.SchemeGroupVersion.WithResource("pods"), Key: "a/web", Version: 5})
			h := named(r.Wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if _, err := io.ReadAll(req.Body); err != nil {
					t.Error(err)
				}
				if test.code == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(test.code)
				_, _ = w.Write([]byte(test.answer))
			})))
			req := httptest.NewRequest(test.method, test.target, strings.NewReader(test.body))
			req.Header.Set("Content-Type", test.contentType)
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), req)
			}()
			if got := texts(r); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			accesses, _ := r.Result()
			for _, a := range accesses {
				if writes := a.Writes() || a.DryRun; writes && a.In != int64(len(test.body)) || a.Out != int64(len(test.answer)) {
					t.Errorf("bytes: in %d, out %d", a.In, a.Out)
				}
			}
		})
	}
}

// A real clientset in each encoding, directly and through a proxy, leaves the same accesses.
// TestAsked: what a list selects, and the form that it asks for first.
func TestAsked(t *testing.T) {
	for accept, want := range map[string]string{
		"": "json false", "application/json": "json false", "application/vnd.kubernetes.protobuf,application/json": "protobuf false",
		"application/cbor, application/json;q=0.9":                                                             "cbor false",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json": "protobuf true",
	} {
		r := record.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, pods+"?labelSelector=a%3Db&fieldSelector=c%3Dd", nil)
		req.Header.Set("Accept", accept)
		named(r.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))).ServeHTTP(httptest.NewRecorder(), req)
		accesses, _ := r.Result()
		if a := accesses[0]; fmt.Sprint(a.Encoding, " ", a.Metadata) != want || a.Selector != "a=b c=d" {
			t.Errorf("%q: %s %t, selector %q; want %s", accept, a.Encoding, a.Metadata, a.Selector, want)
		}
	}
}

func TestClientset(t *testing.T) {
	const want = `create pods "a/web" 201 version=9
update pods "a/web" 200 based=9 version=10
update pods "a/web" 200 based=10 version=10 unchanged
update pods "a/web" 409 based=9
update pods/status "a/web" 200 based=10 version=11
patch pods "a/web" 200 version=12
patch pods "a/web" 200 version=12 unchanged
apply pods "a/web" 200 version=13
apply pods "a/web" 200 version=13 unchanged
delete pods "a/web" 409 based=9
create pods/eviction "a/web" 409 based=9
delete pods "a/web" 200 based=13 version=14`
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"} {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/proxied=%v", strings.TrimPrefix(encoding, "application/"), proxied), func(t *testing.T) {
				r := record.NewRecorder()
				opts := apiserver.Options{}
				if !proxied {
					opts.Wrap = func(h http.Handler) http.Handler { return named(r.Wrap(h)) }
				}
				srv, err := apiserver.Open(opts)
				if err != nil {
					t.Fatal(err)
				}
				at, err := srv.Start()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = srv.Close() }()
				if proxied {
					to, err := url.Parse(at)
					if err != nil {
						t.Fatal(err)
					}
					proxy := httptest.NewServer(named(r.Wrap(httputil.NewSingleHostReverseProxy(to))))
					defer proxy.Close()
					at = proxy.URL
				}
				setup, err := kubernetes.NewForConfig(&rest.Config{Host: at, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: encoding}})
				if err != nil {
					t.Fatal(err)
				}
				write(t, setup)
				got := texts(r)
				if _, rest, ok := strings.Cut(got, "\n"); !ok || rest != want { // after the namespace
					t.Errorf("%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func write(t *testing.T, set kubernetes.Interface) {
	ctx := t.Context()
	if _, err := set.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c := set.CoreV1().Pods("a")
	must := func(p *v1.Pod, err error) *v1.Pod {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := must(c.Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{}))
	next := first.DeepCopy()
	next.Labels = map[string]string{"a": "1"}
	second := must(c.Update(ctx, next, metav1.UpdateOptions{}))
	must(c.Update(ctx, second, metav1.UpdateOptions{}))
	if _, err := c.Update(ctx, first, metav1.UpdateOptions{}); err == nil {
		t.Error("no conflict")
	}
	second.Status.Phase = v1.PodRunning
	must(c.UpdateStatus(ctx, second, metav1.UpdateOptions{}))
	for range 2 {
		must(c.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"2"}}}`), metav1.PatchOptions{}))
	}
	for range 2 {
		must(c.Apply(ctx, corev1.Pod("web", "a").WithLabels(map[string]string{"b": "3"}), metav1.ApplyOptions{FieldManager: "x"}))
	}
	old, newest := "9", "13"
	if err := c.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}); err == nil {
		t.Error("no conflict")
	}
	if err := c.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a"},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}}); err == nil {
		t.Error("no conflict")
	}
	if err := c.Delete(ctx, "web", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &newest}}); err != nil {
		t.Fatal(err)
	}
}

// lines is a ResponseWriter that keeps each Write and Flush.
type lines struct {
	header http.Header
	calls  []string
}

func (l *lines) Header() http.Header { return l.header }
func (l *lines) WriteHeader(int)     {}
func (l *lines) Flush()              { l.calls = append(l.calls, "flush") }
func (l *lines) Write(b []byte) (int, error) {
	l.calls = append(l.calls, string(b))
	return len(b), nil
}

// Times count from Start, and an open watch has its length and bytes so far.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record.NewRecorder()
		h := named(r.Wrap(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			_, _ = w.Write([]byte("first\nsecond\n"))
			w.(http.Flusher).Flush()
			_, _ = w.Write([]byte("third\n"))
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		})))
		ctx, cancel := context.WithCancel(t.Context())
		out := &lines{header: http.Header{}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(out, httptest.NewRequestWithContext(ctx, http.MethodGet, pods+"?watch=1", nil))
		}()
		time.Sleep(3 * time.Second)
		r.Start(time.Now())
		time.Sleep(2 * time.Second)
		check := func(took time.Duration) {
			t.Helper()
			accesses, _ := r.Result()
			if len(accesses) != 1 {
				t.Fatalf("%d accesses", len(accesses))
			}
			a := accesses[0]
			if a.At != -3*time.Second || a.Took != took || a.Out != 19 || a.Code != 200 || !a.State || a.Client != "new-0" {
				t.Errorf("%+v", a)
			}
		}
		check(5 * time.Second)
		cancel()
		<-done
		time.Sleep(time.Second)
		check(5 * time.Second)
		if got := strings.Join(out.calls, "|"); got != "first\nsecond\n|flush|third\n|flush" {
			t.Errorf("%q", got)
		}

		r.Observe(apiserver.Change{At: time.Now(), By: record.ByStorm, Type: watch.Added, Version: 7})
		r.Observe(apiserver.Change{At: time.Now(), Intended: time.Now().Add(-time.Second), Version: 8})
		_, changes := r.Result()
		if len(changes) != 2 || changes[0].At != 3*time.Second || changes[0].Intended != 3*time.Second || changes[1].Intended != 2*time.Second {
			t.Errorf("%+v", changes)
		}
	})
}

func TestActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record.NewRecorder()
		began := time.Now()
		version := 5
		h := named(r.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if version == 0 {
				w.WriteHeader(http.StatusInternalServerError)
			}
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"}}`, version)
		})))
		r.Observe(apiserver.Change{Resource: v1.SchemeGroupVersion.WithResource("pods"), Key: "a/web", Version: 5})
		r.Observe(apiserver.Change{Resource: v1.SchemeGroupVersion.WithResource("events"), Key: "a/web", Version: 5})
		for _, step := range []struct {
			name, method, path string
			version            int // answered; 0 for a failure
			pause              time.Duration
			want               record.Activity[time.Duration]
		}{
			{"change", http.MethodPut, web, 6, 1, record.Activity[time.Duration]{}},
			{"no change", http.MethodPut, web, 6, 1, record.Activity[time.Duration]{Useless: 2}},
			{"get", http.MethodGet, web, 6, 1, record.Activity[time.Duration]{Useless: 2}},
			{"dry run", http.MethodPut, web + "?dryRun=All", 6, 1, record.Activity[time.Duration]{Useless: 2}},
			{"event", http.MethodPut, "/api/v1/namespaces/a/events/web", 5, 1, record.Activity[time.Duration]{Useless: 2}},
			{"no change again", http.MethodPut, web, 6, 1, record.Activity[time.Duration]{Useless: 6}},
			{"irregular", http.MethodPut, web, 7, 8, record.Activity[time.Duration]{Useless: 6}},
			{"a heartbeat", http.MethodPut, web, 8, 8, record.Activity[time.Duration]{Useless: 6}},
			{"irregular again", http.MethodPut, web, 11, 4, record.Activity[time.Duration]{Useless: 6}},
			{"regular", http.MethodPut, web, 12, 4, record.Activity[time.Duration]{Useless: 6, Again: 36}},
			{"another part is another writer", http.MethodPut, web + "/status", 13, 8, record.Activity[time.Duration]{Useless: 6, Again: 36}},
			{"failed", http.MethodPut, web, 0, 1, record.Activity[time.Duration]{Useless: 6, Again: 36}},
			{"failed again", http.MethodPut, web, 0, 4, record.Activity[time.Duration]{Useless: 6, Again: 36, Retry: 51}},
			{"succeeded", http.MethodPut, web, 14, 1, record.Activity[time.Duration]{Useless: 6, Again: 36}},
		} {
			time.Sleep(step.pause * time.Second)
			version = step.version
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(step.method, step.path, strings.NewReader("{}")))
			a := r.Activity()
			since := func(at time.Time) time.Duration { return at.Sub(began) / time.Second }
			if got := (record.Activity[time.Duration]{Changed: since(a.Changed), Useless: since(a.Useless), Again: since(a.Again), Retry: since(a.Retry)}); got != step.want {
				t.Errorf("%s: %v, want %v", step.name, got, step.want)
			}
		}
		version = 0
		for range 20 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, web, strings.NewReader("{}")))
		}
		if got, want := time.Until(r.Activity().Retry), 5*time.Millisecond<<13; got != want {
			t.Errorf("after 20 failures the next try is due in %v, want %v", got, want)
		}
	})
}

// TestProgress: a client makes progress when it comes to another object, or to the children of one, and not by what it
// does over and over.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record.NewRecorder()
		began := time.Now()
		for _, c := range []struct {
			by, uid, owner string
			t              watch.EventType
			want           bool
		}{
			{record.ByWorkload, "a", "", watch.Added, false},
			{record.ByWorkload, "b", "", watch.Added, false},
			{"new-0", "a", "", watch.Modified, true},
			{"new-0", "a", "", watch.Modified, false},
			{"new-1", "a", "", watch.Modified, true},
			{"new-0", "child-1", "b", watch.Added, true},
			{"new-0", "child-2", "b", watch.Added, false},
			{"new-0", "b", "", watch.Modified, true},
			{"new-0", "own", "", watch.Added, false},
			{"new-0", "own", "", watch.Modified, false},
			{"new-0", "grandchild", "own", watch.Added, false},
			{"new-1", "own", "", watch.Modified, true},
		} {
			time.Sleep(time.Second)
			resource := "replicasets"
			o := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(c.uid)}}
			if c.owner != "" {
				resource = "pods"
				o.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(c.owner), Controller: new(true)}}
			}
			r.Observe(apiserver.Change{By: c.by, Type: c.t, Resource: v1.SchemeGroupVersion.WithResource(resource), Key: "a/" + c.uid, Object: o, At: time.Now()})
			if got := r.Activity().Progress.Equal(time.Now()); got != c.want || !r.Activity().Changed.After(began) && c.by != record.ByWorkload {
				t.Errorf("%+v: progress %t", c, got)
			}
		}
	})
}

func TestUnnamedIsNotRecorded(t *testing.T) {
	r := record.NewRecorder()
	h := r.Wrap(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, pods, nil))
	if got := texts(r); got != "" {
		t.Error(got)
	}
}
