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
	"errors"
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
		{"Observed", testObserved},
		{"CleanedUp", testClean},
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
func (c *cluster) collected(t *testing.T, said string) *lab.Merged {
	t.Helper()
	name := results.FindString(said)
	if name == "" {
		t.Fatal("no results folder is named")
	}
	o, err := lab.Load(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if o.Merged == nil {
		t.Fatalf("%s is not merged", name)
	}
	if _, err := os.Stat(filepath.Join(root, name, "report.html")); err != nil {
		t.Error(err)
	}
	return o.Merged
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
	allThere(t, c.collected(t, said), 4)
	// The run is deleted. The namespace stays for the next run.
	until(t, "the run is gone", patience, func(ctx context.Context) (bool, error) {
		pods, err := c.pods(ctx, "watchlab.dev/run")
		return len(pods) == 0, err
	})
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
	code, _ := c.watchlab(t, "run", "--name", run, "--overlay", "bin/kind-observed.yaml", "--pods", "4", "--",
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring,cond",
		"--pipeline", "informer", "--storm", "recorded-gang", "--pace", "400", "--events", "2000", "--rounds", "2", "--ignore-host")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
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
		log, err := c.client.CoreV1().Pods(namespace).GetLogs(c.pod(t, "collector").Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counted := regexp.MustCompile(`(?m)^.*"spans": *[1-9].*$`).FindAllString(string(log), -1)
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
	allThere(t, c.collected(t, c.make(t, "kind-results", "RUN="+run)), 4)
}

// testClean checks that one command deletes all objects of watchlab from the cluster.
func testClean(t *testing.T, c *cluster) {
	c.make(t, "kind-clean")
	if _, err := c.client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err == nil {
		t.Error("the namespace is still there")
	}
	until(t, "nothing of ours is left", time.Minute, func(ctx context.Context) (bool, error) {
		roles, err := c.client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{LabelSelector: fleet.NamespaceLabel})
		bindings, otherErr := c.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: fleet.NamespaceLabel})
		if err := errors.Join(err, otherErr); err != nil {
			return false, err
		}
		left := len(roles.Items) + len(bindings.Items)
		return left == 0, fmt.Errorf("%d roles and bindings are left", left)
	})
}
