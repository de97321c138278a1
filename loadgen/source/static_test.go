package source_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"watchlab/impls/merge"
	"watchlab/loadgen/source"
)

// staticPatience is longer than the longest period of a test.
const staticPatience = 90 * time.Second

// staticPod returns a manifest.
func staticPod(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\nspec:\n  containers:\n  - name: c\n    image: \"%s\"\n", name, image)
}

// writeFile replaces a file atomically.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	noError(t, os.WriteFile(tmp, []byte(text), 0o644))
	noError(t, os.Rename(tmp, path))
}

// receiver receives the updates of a source that runs until the test ends.
type receiver struct {
	t       testing.TB
	updates chan merge.PodUpdate
	reports chan string
}

func receiveStatic(t testing.TB, build func(report func(error)) source.StaticPods) *receiver {
	t.Helper()
	r := &receiver{t: t, updates: make(chan merge.PodUpdate), reports: make(chan string, 10_000)}
	src := build(func(err error) { r.reports <- err.Error() })
	run(t, func(ctx context.Context) { src.Run(ctx, r.updates) })
	return r
}

// next waits for an update and returns the images of its pods, by name.
func (r *receiver) next(from string) map[string]string {
	r.t.Helper()
	select {
	case u := <-r.updates:
		if u.Op != merge.SET || u.Source != from {
			r.t.Fatalf("%v of %s, want SET of %s", u.Op, u.Source, from)
		}
		images := map[string]string{}
		for _, p := range u.Pods {
			images[p.Name] = p.Spec.Containers[0].Image
		}
		return images
	case <-time.After(staticPatience):
		r.t.Fatal("no update came")
		return nil
	}
}

// until receives updates until one equals want.
func (r *receiver) until(from string, want map[string]string) {
	r.t.Helper()
	for !cmp.Equal(want, r.next(from)) {
	}
}

// reported waits for a report that contains the text, and receives updates meanwhile.
func (r *receiver) reported(text string) {
	r.t.Helper()
	deadline := time.After(staticPatience)
	for {
		select {
		case report := <-r.reports:
			if strings.Contains(report, text) {
				return
			}
		case <-r.updates:
		case <-deadline:
			r.t.Fatalf("%q was not reported", text)
		}
	}
}

func staticFile(path string, poll bool, period time.Duration) func(func(error)) source.StaticPods {
	return func(report func(error)) source.StaticPods {
		return source.StaticFile(path, source.StaticOptions{NodeName: "Node-1", Period: period, Report: report, Poll: poll})
	}
}

// A file notification arrives long before the end of the period.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "b.yaml"), staticPod("b", "1"))
	r := receiveStatic(t, staticFile(dir, false, time.Hour))
	r.until(merge.FileSource, map[string]string{"b-node-1": "1"})

	writeFile(t, filepath.Join(dir, "a.manifest"), staticPod("a", "1"))
	r.until(merge.FileSource, map[string]string{"a-node-1": "1", "b-node-1": "1"})
	writeFile(t, filepath.Join(dir, "b.yaml"), staticPod("b", "2"))
	r.until(merge.FileSource, map[string]string{"a-node-1": "1", "b-node-1": "2"})
	noError(t, os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(staticPod("b", "3")), 0o644))
	r.until(merge.FileSource, map[string]string{"a-node-1": "1", "b-node-1": "3"})
	noError(t, os.Rename(filepath.Join(dir, "b.yaml"), filepath.Join(dir, "c.yaml")))
	r.until(merge.FileSource, map[string]string{"a-node-1": "1"})
	r.until(merge.FileSource, map[string]string{"a-node-1": "1", "b-node-1": "3"})
	// An invalid file changes nothing.
	writeFile(t, filepath.Join(dir, "a.manifest"), "kind: [")
	r.reported("a.manifest:1: ")
	writeFile(t, filepath.Join(dir, "d.yaml"), staticPod("d", "1"))
	r.until(merge.FileSource, map[string]string{"a-node-1": "1", "b-node-1": "3", "d-node-1": "1"})
	for _, name := range []string{"a.manifest", "c.yaml", "d.yaml"} {
		noError(t, os.Remove(filepath.Join(dir, name)))
	}
	r.until(merge.FileSource, map[string]string{})
}

// A folder that is created, removed and created again, and a path that is a file.
func TestPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	r := receiveStatic(t, staticFile(dir, false, 50*time.Millisecond))
	if got := r.next(merge.FileSource); len(got) > 0 {
		t.Errorf("%v, want nothing", got)
	}
	r.reported("manifests: it does not exist")
	for n := range 2 {
		noError(t, os.Mkdir(dir, 0o755))
		image := fmt.Sprint(n)
		writeFile(t, filepath.Join(dir, "a"), staticPod("a", image))
		r.until(merge.FileSource, map[string]string{"a-node-1": image})
		noError(t, os.RemoveAll(dir))
		r.until(merge.FileSource, map[string]string{})
	}
	path := filepath.Join(t.TempDir(), "pod.yaml")
	writeFile(t, path, staticPod("a", "1"))
	r = receiveStatic(t, staticFile(path, false, time.Hour))
	for _, image := range []string{"1", "2", "3"} { // Each write creates another file.
		writeFile(t, path, staticPod("a", image)+"---\n"+staticPod("b", image)) // The kubelet reads the first document.
		r.until(merge.FileSource, map[string]string{"a-node-1": image})
	}
}

// Without notifications, each period reads everything. In the bubble the times are exact.
func TestFolderPolled(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		origin := time.Now()
		writeFile(t, filepath.Join(dir, "a"), staticPod("a", "1"))
		writeFile(t, filepath.Join(dir, ".hidden"), staticPod("hidden", "1"))
		writeFile(t, filepath.Join(dir, "broken"), "x")
		noError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
		r := receiveStatic(t, staticFile(dir, true, 0))
		for i, want := range []map[string]string{
			{"a-node-1": "1"}, {"a-node-1": "1", "b-node-1": "1"}, {"b-node-1": "2"}, {}, {},
		} {
			if diff := cmp.Diff(want, r.next(merge.FileSource)); diff != "" {
				t.Errorf("update %d (-want +got):\n%s", i, diff)
			}
			if at := time.Since(origin); at != time.Duration(i)*source.StaticPeriod {
				t.Errorf("update %d after %v", i, at)
			}
			switch i {
			case 0:
				writeFile(t, filepath.Join(dir, "b"), staticPod("b", "1"))
			case 1:
				writeFile(t, filepath.Join(dir, "b"), staticPod("b", "2"))
				_ = os.Remove(filepath.Join(dir, "a"))
			case 2:
				_ = os.Remove(filepath.Join(dir, "b"))
			}
		}
		r.reported("broken:1: invalid manifest: it is not an object")
		r.reported("folder: it is not a file")
	})
}

// The conversion of a manifest, as in the kubelet.
func TestAdoption(t *testing.T) {
	dir := t.TempDir()
	read := func(node, name, text string) *v1.Pod {
		t.Helper()
		writeFile(t, filepath.Join(dir, name), text)
		r := receiveStatic(t, func(report func(error)) source.StaticPods {
			return source.StaticFile(filepath.Join(dir, name), source.StaticOptions{NodeName: node, Report: report, Poll: true})
		})
		return (<-r.updates).Pods[0]
	}
	web := staticPod("web", "1")
	p := read("Node-1", "a", web)
	if p.Name != "web-node-1" || p.Namespace != "default" || p.Spec.NodeName != "Node-1" || p.Status.Phase != v1.PodPending {
		t.Errorf("%s/%s on %s is %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase)
	}
	if p.UID == "" || p.Annotations[source.HashAnnotation] != string(p.UID) {
		t.Errorf("UID %q, annotations %v", p.UID, p.Annotations)
	}
	if again := read("Node-1", "a", web); again.UID != p.UID {
		t.Error("the same manifest makes another pod")
	}
	for what, other := range map[string]*v1.Pod{
		"content": read("Node-1", "a", staticPod("web", "2")), "path": read("Node-1", "b", web), "node": read("Node-2", "a", web),
	} {
		if other.UID == p.UID {
			t.Errorf("another %s makes the same pod", what)
		}
	}
	own := read("Node-1", "c", strings.Replace(web, "metadata:", "metadata:\n  uid: abc\n  namespace: kube-system", 1))
	if own.UID != "abc" || own.Namespace != "kube-system" || own.Annotations[source.HashAnnotation] != "abc" {
		t.Errorf("%+v", own.ObjectMeta)
	}
	tolerant := read("Node-1", "d", web+"  tolerations:\n  - operator: Exists\n    effect: NoExecute\n    tolerationSeconds: 5\n")
	want := []v1.Toleration{{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
	if diff := cmp.Diff([][]v1.Toleration{want, want}, [][]v1.Toleration{p.Spec.Tolerations, tolerant.Spec.Tolerations}); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
}

func TestRejectedPods(t *testing.T) {
	good := staticPod("web", "1")
	for want, text := range map[string]string{
		"a name is needed":                    strings.Replace(good, "name: web", "generateName: web", 1),
		"is not a pod":                        "apiVersion: v1\nkind: Node\nmetadata: {name: node1}",
		"it has no pod":                       "# Nothing.",
		`metadata.name "We_b-n"`:              strings.Replace(good, "name: web", "name: We_b", 1),
		`metadata.namespace "a.b"`:            strings.Replace(good, "metadata:", "metadata:\n  namespace: a.b", 1),
		"spec.containers: there are none":     "apiVersion: v1\nkind: Pod\nmetadata: {name: web}",
		`container "c" has no image`:          strings.Replace(good, "    image: \"1\"\n", "", 1),
		`two containers are called "c"`:       good + "  - name: c\n    image: x\n",
		`the container's name "C"`:            strings.Replace(good, "name: c", "name: C", 1),
		"f:6: invalid manifest: did not find": strings.Replace(good, "containers:", "containers: [", 1),
	} {
		path := filepath.Join(t.TempDir(), "f")
		writeFile(t, path, text)
		r := receiveStatic(t, func(report func(error)) source.StaticPods {
			return source.StaticFile(path, source.StaticOptions{NodeName: "n", Report: report, Poll: true})
		})
		r.reported(want)
	}
}

// transport answers requests without a network.
type transport http.HandlerFunc

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	t(w, r)
	return w.Result(), nil
}

func TestHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		code, body, asked := http.StatusOK, "", 0
		answer := func(c int, b string) {
			mu.Lock()
			defer mu.Unlock()
			code, body = c, b
		}
		server := transport(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		})
		r := receiveStatic(t, func(report func(error)) source.StaticPods {
			return source.StaticURL("http://node/manifest", source.StaticOptions{
				NodeName: "n", Report: report, Period: time.Minute,
				Client: &http.Client{Transport: server},
			})
		})
		list := func(names ...string) string {
			text := "apiVersion: v1\nkind: PodList\nitems:\n"
			for _, n := range names {
				text += "- " + strings.ReplaceAll(strings.TrimSpace(staticPod(n, "1")), "\n", "\n  ") + "\n"
			}
			if len(names) == 0 {
				text = "apiVersion: v1\nkind: PodList\nitems: []\n"
			}
			return text
		}
		for i, step := range []struct {
			code int
			body string
			// want is nil if no update is expected.
			want   map[string]string
			report string
		}{
			{200, "", map[string]string{}, "it is empty"},
			{200, staticPod("a", "1"), map[string]string{"a-n": "1"}, ""},
			{200, staticPod("a", "1"), nil, ""},
			{500, staticPod("b", "1"), nil, "500 Internal Server Error"},
			{200, list("a", "b"), map[string]string{"a-n": "1", "b-n": "1"}, ""},
			{200, "{", nil, "manifest:1: "},
			{200, list("a", "b"), map[string]string{"a-n": "1", "b-n": "1"}, ""},
			{200, "", map[string]string{}, ""},
			{200, list("a", "b"), map[string]string{"a-n": "1", "b-n": "1"}, ""},
			{200, list(), map[string]string{}, ""},
			{200, "# Nothing.", nil, "neither a pod nor a list of pods"},
			{200, "apiVersion: v1\nkind: Node\nmetadata: {name: node1}", nil, "is not a pod"},
		} {
			answer(step.code, step.body)
			if i == 0 {
				// The first request is running; all answers are equal.
				synctest.Wait()
			}
			if step.want == nil {
				time.Sleep(time.Minute)
				synctest.Wait()
				select {
				case u := <-r.updates:
					t.Errorf("step %d: %v of %d pods, want nothing", i, u.Op, len(u.Pods))
				default:
				}
			} else if diff := cmp.Diff(step.want, r.next(merge.HTTPSource)); diff != "" {
				t.Errorf("step %d (-want +got):\n%s", i, diff)
			}
			synctest.Wait()
			if step.report != "" {
				r.reported(step.report)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if asked < 12 {
			t.Errorf("asked %d times", asked)
		}
	})
}
