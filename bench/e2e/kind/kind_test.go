// Package kind tests README.md and docs/kind.md in a real kind cluster:
//
//	make e2e-kind CLUSTER=name
//
// The cluster must exist: `make kind-up` creates one, and any other kind cluster or
// context kind-NAME works too. The test builds and loads the image of watchlab. The
// cluster pulls the other images; where it cannot, the test builds them from pinned Go
// modules, and skips parts whose image has no Go module.
//
// bin/e2e-kind.txt holds the output of the commands.
package kind

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"watchlab/bench/fleet"
	"watchlab/bench/lab"
)

// theREADME is the command of README.md. The caller has run make kind-up.
const theREADME = "make kind-up image-load kind-run kind-results kind-down"

// TestKind runs the parts in order. Each part cleans up, except for the image and the
// telemetry servers.
func TestKind(t *testing.T) {
	var transcript bytes.Buffer
	c := connect(t, io.MultiWriter(os.Stdout, &transcript))
	file, err := os.Create(filepath.Join(root, "bin", "e2e-kind.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Write(transcript.Bytes()); err != nil {
		t.Fatal(err)
	}
	c.transcript = io.MultiWriter(os.Stdout, file)
	// Delete objects of an interrupted test. The namespace may not exist.
	c.cleaned(t)

	for _, part := range []struct {
		name string
		play func(*testing.T, *cluster)
	}{
		{"AsTheREADMESays", testREADME},
		{"PodKilled", testKilled},
		{"Observed", testObserved},
		{"SharedServer", testSharedServer},
		{"WritersAndWatchers", testWriters},
		{"WritesRefused", testRefused},
		{"NodesWithoutKubelets", testFakeNodes},
		{"CleanedUp", testClean},
		{"Image", testImage},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			c.say("\n== %s", part.name)
			part.play(t, c)
		}) {
			c.say("== %s FAILED", part.name)
			// The next part needs a clean cluster.
			c.cleaned(t)
		}
	}
	// Clean up after a part that runs alone, too.
	c.cleaned(t)
}

// cleaned deletes all objects of watchlab from the cluster.
func (c *cluster) cleaned(t *testing.T) {
	t.Helper()
	_, err := c.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if err == nil {
		c.watchlab(t, "clean", "--all")
	}
}

// results matches the results folder in the output of `make kind-results`.
var results = regexp.MustCompile(`results/\d{4}-\d\d-\d\d-[0-9a-z]+(?:-dirty)?-[a-z0-9-]+`)

// collected loads the results folder that a command printed.
func (c *cluster) collected(t *testing.T, said string) (dir string, m *lab.Merged) {
	t.Helper()
	name := results.FindString(said)
	if name == "" {
		t.Fatal("no results folder is named")
	}
	dir = filepath.Join(root, name)
	for _, f := range []string{"run.json", "env.json", "bench.txt", "report.md", "report.html"} {
		info, err := os.Stat(filepath.Join(dir, f))
		if err != nil {
			t.Error(err)
			continue
		}
		// On a busy machine no cell may be valid. Then bench.txt is empty.
		if info.Size() == 0 && f != "bench.txt" {
			t.Errorf("%s/%s is empty", name, f)
		}
	}
	o, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o.Merged == nil {
		t.Fatalf("%s is not merged", name)
	}
	return dir, o.Merged
}

// allThere checks that the results of all n pods were merged.
func allThere(t *testing.T, m *lab.Merged, n int) {
	t.Helper()
	var indexes []int
	for _, s := range m.Shares {
		indexes = append(indexes, s.Index)
		if s.Pod == "" || s.Node == "" {
			t.Errorf("share %d: pod %q on node %q", s.Index, s.Pod, s.Node)
		}
	}
	slices.Sort(indexes)
	if m.Of != n || len(m.Missing) > 0 || len(slices.Compact(indexes)) != n {
		t.Errorf("shares %v of %d are merged, %v are missing", indexes, m.Of, m.Missing)
	}
}

// testImage checks that two clones build byte-identical images for both architectures,
// and that `kind load image-archive` loads them.
func testImage(t *testing.T, c *cluster) {
	var digests []string
	for _, name := range []string{"a", "b/longer-path"} {
		clone := filepath.Join(t.TempDir(), name)
		if code, _ := c.call(t, "git", "clone", "--quiet", "--no-hardlinks", ".", clone); code != 0 {
			t.Fatal("not a git repository")
		}
		code, out := c.call(t, "make", "-s", "-C", clone, "image")
		if code != 0 {
			t.Fatal("make image failed")
		}
		digest := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(out)
		if digest == "" {
			t.Fatal("make image names no digest")
		}
		digests = append(digests, digest)
		if len(digests) == 2 {
			if code, _ := c.call(t, os.Getenv("KIND"), "load", "image-archive", filepath.Join(clone, "bin", "watchlab.tar"), "--name", c.name); code != 0 {
				t.Error("kind doesn't take an image for two architectures")
			}
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("two builds of one commit: %s and %s", digests[0], digests[1])
	}
	c.say("# both builds are %s", digests[0])
}

// testREADME runs the commands of README.md verbatim.
func testREADME(t *testing.T, c *cluster) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), theREADME) {
		t.Errorf("README.md doesn't say %q", theREADME)
	}
	words := strings.Fields(theREADME)
	said := c.make(t, words[2:len(words)-1]...)
	_, m := c.collected(t, said)
	allThere(t, m, 4)
	// The run is deleted. The namespace stays for the next run.
	until(t, "the run is gone", patience, func(ctx context.Context) (bool, error) {
		pods, err := c.pods(ctx, "watchlab.dev/run")
		return len(pods) == 0, err
	})
}

// long holds the flags of a run of about a minute, for parts that act during a run.
var long = []string{
	"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring,cond",
	"--pipeline", "informer", "--storm", "recorded-gang", "--pace", "400", "--events", "2000", "--rounds", "2", "--ignore-host",
}

// testKilled kills a pod during a run. The Job retries the pod, the others continue, and
// all results are merged. The status and the report show the retry.
func testKilled(t *testing.T, c *cluster) {
	const run, victim = "killed", 2
	args := append([]string{"--name", run, "--overlay", "kind", "--pods", "4", "--barrier", "45s", "--wait=false", "--"}, long...)
	if code, _ := c.watchlab(t, "run", args...); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var pod string
	until(t, "all pods play", patience, func(ctx context.Context) (bool, error) {
		s, err := c.status(ctx, run)
		if err != nil {
			return false, err
		}
		running := 0
		for _, sh := range s.Pods {

			if sh.Phase == "running" && sh.Progress != "" {
				running++
			}
			if sh.Index == victim {
				pod = sh.Name
			}
		}
		return running == 4, fmt.Errorf("%+v", s)
	})
	c.watchlab(t, "status", "--name", run)
	c.say("\n# now pod %s is killed", pod)
	if err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	var s fleet.State
	until(t, "the run is over", over, func(ctx context.Context) (bool, error) {
		var err error
		s, err = c.status(ctx, run)
		return err == nil && s.Over, err
	})
	code, said := c.watchlab(t, "status", "--name", run)
	if code != 0 || s.Failure != "" {
		t.Errorf("the Job failed: %s", s.Failure)
	}
	for _, sh := range s.Pods {
		want := 0
		if sh.Index == victim {
			want = 1
		}
		if sh.Phase != "succeeded" || !sh.Uploaded || sh.Failures != want {
			t.Errorf("pod %+v, want it succeeded, with %d failures", sh, want)
		}
		if sh.Index == victim && sh.Name == pod {
			t.Errorf("index %d is still pod %s", sh.Index, pod)
		}
	}
	if !strings.Contains(said, "succeeded") {
		t.Error("status reports no success")
	}
	dir, m := c.collected(t, c.make(t, "kind-results", "RUN="+run))
	allThere(t, m, 4)
	for _, sh := range m.Shares {
		switch {
		case sh.Index != victim:
			if sh.Attempt != 0 || sh.Starts == 0 {
				t.Errorf("share %+v", sh)
			}
		case sh.Pod == pod:
			t.Errorf("the result of killed pod %s is merged", pod)
		case sh.Attempt != 1 || sh.Late == 0 && sh.Starts > 0:
			t.Errorf("share %+v, want a late second attempt", sh)
		}
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?im)^.*(late|attempt|absent|behind|did not wait|without).*$`).FindAllString(string(report), -1)
	if len(lines) == 0 {
		t.Error("the report does not name the late pod")
	}
	c.say("# report.md:")
	for _, line := range lines {
		c.say("  %s", line)
	}
}

// testObserved checks the telemetry of a run. Prometheus scrapes all pods, the collector
// receives traces, Grafana has our dashboards, and Pyroscope has our pprof profiles.
func testObserved(t *testing.T, c *cluster) {
	const run = "observed"
	// A short run deploys the telemetry servers, so that they are up during the next run.
	c.make(t, "kind-run", "RUN=first", "OVERLAY=kind-observed", "PODS=1", "FLAGS=--family queue --impl ring --storm recorded-gang --rounds 1")
	there := map[string]bool{}
	for _, name := range []string{"prometheus", "collector", "pyroscope", "tempo", "grafana"} {
		there[name] = c.ready(t, name)
	}
	args := append([]string{"--name", run, "--overlay", "kind-observed", "--pods", "4", "--wait=false", "--"}, long...)
	if code, _ := c.watchlab(t, "run", args...); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	until(t, "the run is over", over, func(ctx context.Context) (bool, error) {
		s, err := c.status(ctx, run)
		return err == nil && s.Over && s.Failure == "", err
	})
	pods, err := c.pods(t.Context(), "watchlab.dev/run="+run)
	if err != nil {
		t.Fatal(err)
	}
	if there["prometheus"] {
		prometheus := c.forward(t, "prometheus", 9090)
		for _, query := range []string{
			`count_over_time(up{job="watchlab",pod=~"watchlab-` + run + `-.*"}[30m]) > 0`,
			`sum by (pod) (max_over_time(watchlab_events_total{stage="handled",pod=~"watchlab-` + run + `-.*"}[30m])) > 0`,
		} {
			var answer struct {
				Data struct {
					Result []struct {
						Metric map[string]string
						Value  [2]any
					}
				}
			}
			if err := getJSON(t.Context(), prometheus+"/api/v1/query", url.Values{"query": {query}}, &answer); err != nil {
				t.Fatal(err)
			}
			c.say("\n> %s", query)
			seen := map[string]bool{}
			for _, r := range answer.Data.Result {
				seen[r.Metric["pod"]] = true
				c.say("  %s: %v", r.Metric["pod"], r.Value[1])
			}
			for _, p := range pods {
				if !seen[p.Name] {
					t.Errorf("%s: no data of pod %s", query, p.Name)
				}
			}
			if len(seen) < 4 {
				t.Errorf("%s: of %d pods, want 4", query, len(seen))
			}
		}
	}
	if there["collector"] {
		log := c.log(t, "collector")
		counted := regexp.MustCompile(`(?m)^.*"spans": *[1-9].*$`).FindAllString(log, -1)
		if len(counted) == 0 {
			t.Errorf("the collector counts no spans:\n%s", log)
		} else {
			c.say("\n> the collector's log, %d batches of traces, the first:\n  %s", len(counted), counted[0])
		}
	}
	if there["grafana"] {
		var found []struct{ UID string }
		if err := getJSON(t.Context(), c.forward(t, "grafana", 3000)+"/api/search", url.Values{"tag": {"watchlab"}}, &found); err != nil || len(found) != 6 {
			t.Errorf("Grafana has %d of our dashboards: %v", len(found), err)
		}
	}
	if there["pyroscope"] {
		var apps []string
		err := getJSON(t.Context(), c.forward(t, "pyroscope", 4040)+"/pyroscope/label-values", url.Values{"label": {"service_name"}}, &apps)
		if err != nil || len(apps) == 0 {
			t.Errorf("Pyroscope has profiles of %q: %v", apps, err)
		}
	}
	_, m := c.collected(t, c.make(t, "kind-results", "RUN="+run))
	allThere(t, m, 4)
}

// log returns the log of a Deployment's pod.
func (c *cluster) log(t *testing.T, name string) string {
	t.Helper()
	pods, err := c.pods(t.Context(), "app.kubernetes.io/name="+name)
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods of %s: %v", len(pods), name, err)
	}
	b, err := c.client.CoreV1().Pods(namespace).GetLogs(pods[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// testSharedServer runs pods that watch one simulated API server.
func testSharedServer(t *testing.T, c *cluster) {
	said := c.make(t, "kind-run", "kind-results", "RUN=shared", "PODS=2", "MODE=shared-server",
		"FLAGS=--family deltafifo --delivery in-order --storm recorded-gang --for 10s --rounds 2")
	_, m := c.collected(t, said)
	allThere(t, m, 2)
}

// testWriters runs writers that create pods in this cluster. The other pods of the run
// play the real API server's watch of the created pods.
func testWriters(t *testing.T, c *cluster) {
	said := c.make(t, "kind-run", "kind-results", "RUN=written", "PODS=2", "MODE=cluster",
		"FLAGS=--family deltafifo --delivery in-order --storm rollout --nodes 2 --pace 20 --for 15s --rounds 2")
	_, m := c.collected(t, said)
	allThere(t, m, 2)
	if strings.Contains(said, "refused") {
		t.Error("writes are refused")
	}
	// The writers' objects and namespaces are deleted.
	until(t, "what writers made is gone", patience, func(ctx context.Context) (bool, error) {
		list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		var left []string
		for _, n := range list.Items {
			if writtenFor(n.Labels) {
				left = append(left, n.Name)
			}
		}
		return len(left) == 0, fmt.Errorf("namespaces %q", left)
	})
}

// testRefused takes the right to write statuses from the writers: the pod fails, and every
// cell is invalid.
func testRefused(t *testing.T, c *cluster) {
	const lacking = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../kind]
patches:
- target: {kind: ClusterRole, name: watchlab-example-writer}
  patch: '[{"op": "replace", "path": "/rules/0/resources", "value": ["pods"]}]'
`
	overlay, out := t.TempDir(), filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(lacking), 0o600); err != nil {
		t.Fatal(err)
	}
	code, said := c.watchlab(t, "run", "--overlay", overlay, "--name", "refused", "--mode", "cluster", "--pods", "1", "--",
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "cond", "--storm", "rollout", "--nodes", "2", "--pace", "20", "--for", "15s", "--rounds", "1")
	if code != 1 || !strings.Contains(said, "1 given up") {
		t.Errorf("exit code %d", code)
	}
	c.watchlab(t, "collect", "--name", "refused", "--out", out)
	o, err := lab.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, cl := range o.Comparisons[0].Cells {
		if cl.Verdict.Cause != lab.CauseRefused {
			t.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
	c.watchlab(t, "clean", "--name", "refused")
}

// writtenFor reports whether writers of a run created a namespace.
func writtenFor(labels map[string]string) bool {
	for key := range labels {
		if strings.HasPrefix(key, "watchlab.dev/") {
			return true
		}
	}
	return false
}

// testFakeNodes creates 500 nodes without kubelets. They must become ready and renew
// their leases, and a run plays the watch of the nodes.
func testFakeNodes(t *testing.T, c *cluster) {
	const nodes = 500
	if code, _ := c.watchlab(t, "run", "--name", "fakes", "--overlay", "kwok", "--pods", "1", "--",
		"--family", "queue", "--storm", "recorded-gang", "--rounds", "1", "--impl", "ring"); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if !c.ready(t, "kwok") {
		return
	}
	defer c.make(t, "kwok-nodes", "NODES=0")
	c.make(t, "kwok-nodes", fmt.Sprintf("NODES=%d", nodes))
	until(t, "the nodes are ready", patience, func(ctx context.Context) (bool, error) {
		list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "watchlab.dev/fake-node"})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, n := range list.Items {
			for _, condition := range n.Status.Conditions {
				if condition.Type == "Ready" && condition.Status == "True" {
					ready++
				}
			}
		}
		return ready == nodes, fmt.Errorf("%d of %d are ready", ready, nodes)
	})
	if code, out := c.call(t, "bin/watchlab", "run", "--source", "cluster", "--kubeconfig", c.kubeconfig, "--context", "kind-"+c.name, "--resource", "leases",
		"--family", "deltafifo", "--delivery", "in-order", "--for", "15s", "--rounds", "1", "--ignore-host"); code != 0 || !strings.Contains(out, "valid") {
		t.Errorf("exit code %d", code)
	}
}

// testClean checks that one command deletes all objects of watchlab from the cluster.
func testClean(t *testing.T, c *cluster) {
	c.make(t, "kind-clean")
	client := c.client
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err == nil {
		t.Error("the namespace is still there")
	}
	selected := metav1.ListOptions{}
	until(t, "nothing of ours is left", time.Minute, func(ctx context.Context) (bool, error) {
		var left []string
		add := func(kind string, o metav1.ObjectMeta) {
			if strings.HasPrefix(o.Name, "watchlab") {
				left = append(left, kind+" "+o.Name)
			}
		}
		roles, err := client.RbacV1().ClusterRoles().List(ctx, selected)
		if err != nil {
			return false, err
		}
		for _, o := range roles.Items {
			add("ClusterRole", o.ObjectMeta)
		}
		bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, selected)
		if err != nil {
			return false, err
		}
		for _, o := range bindings.Items {
			add("ClusterRoleBinding", o.ObjectMeta)
		}
		spaces, err := client.CoreV1().Namespaces().List(ctx, selected)
		if err != nil {
			return false, err
		}
		for _, o := range spaces.Items {
			if o.Name == namespace || writtenFor(o.Labels) {
				left = append(left, "Namespace "+o.Name)
			}
		}
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "watchlab.dev/fake-node"})
		if err != nil {
			return false, err
		}
		for _, o := range nodes.Items {
			add("Node", o.ObjectMeta)
		}
		return len(left) == 0, fmt.Errorf("left: %q", left)
	})
}
