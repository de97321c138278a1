// Package plane plays controllers to a real control plane and to the simulated one.
package plane

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/server"
	"watchlab/bench/e2e/programs"
)

// paced are the counts that follow the speed of a server: a controller answers several events with one write of
// a status, and a conflict has a further attempt. docs/fidelity.md lists them.
var paced = []string{
	"update deployments.apps/status", "update replicasets.apps/status", "conflicts", "get replicasets.apps", "get deployments.apps",
	"MODIFIED deployments.apps by controller-0", "MODIFIED replicasets.apps by controller-0",
}

// compared are the resources whose changes are counted.
var compared = []string{"namespaces", "nodes", "pods", "replicasets.apps", "deployments.apps"}

// TestPlanes plays deployments to the deployment and replicaset controllers of kube-controller-manager, on etcd and
// kube-apiserver and on the simulated server. The verdicts are the same. So are the requests and the changes by
// everybody, if each step of a deployment is over before the next one; without that, pods depend on the speed.
func TestPlanes(t *testing.T) {
	if testing.Short() {
		t.Skip("four plays, two with a real control plane: two minutes")
	}
	envtest(t)
	page, err := os.ReadFile("../../../docs/fidelity.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range paced {
		if !strings.Contains(string(page), "`"+what+"`") {
			t.Errorf("docs/fidelity.md lists no difference in `%s`", what)
		}
	}
	for _, c := range []struct {
		workload string
		slower   bool                   // steps do not overlap, if they are slow enough
		exact    func(what string) bool // counts that are the same
	}{
		{"testdata/steps.yaml", true, func(what string) bool { return !slices.Contains(paced, what) }},
		// Its rollouts overlap. A template that is replaced before the controller reads it gets no replicaset.
		{"deployments", false, func(what string) bool {
			return strings.HasPrefix(what, "watch ") || strings.HasPrefix(what, "list ") || strings.HasSuffix(what, " by workload")
		}},
	} {
		t.Run(filepath.Base(c.workload), func(t *testing.T) {
			simulated, actual := playOn(t, c.workload, server.Simulated, 1), playOn(t, c.workload, server.Envtest, 1)
			all, wrong := differences(simulated, actual, c.exact)
			if c.slower && len(wrong) > 0 {
				t.Logf("on a slow machine a step is not over before the next one; once more, slower: %q", wrong)
				simulated, actual = playOn(t, c.workload, server.Simulated, 0.1), playOn(t, c.workload, server.Envtest, 0.1)
				all, wrong = differences(simulated, actual, c.exact)
			}
			if !slices.Equal(simulated.verdicts, actual.verdicts) {
				t.Errorf("verdicts of the simulated server: %q; of the real one: %q", simulated.verdicts, actual.verdicts)
			}
			t.Logf("differences: %q", all)
			for _, text := range wrong {
				t.Error(text)
			}
		})
	}
}

// played is what two plays of the same workload have in common.
type played struct {
	verdicts []string
	counts   map[string]int // of successful requests, and of changes by author
}

// differences says which counts differ, and which of them must not. kube-apiserver ends watches now and then, and the
// controller resumes them.
func differences(simulated, actual played, exact func(what string) bool) (all, wrong []string) {
	keys := maps.Clone(simulated.counts)
	maps.Copy(keys, actual.counts)
	for _, what := range slices.Sorted(maps.Keys(keys)) {
		s, r := simulated.counts[what], actual.counts[what]
		if s == r {
			continue
		}
		text := fmt.Sprintf("%s: %d on the simulated server, %d on the real one", what, s, r)
		all = append(all, text)
		if exact(what) && !(strings.HasPrefix(what, "watch ") && r > s) {
			wrong = append(wrong, text)
		}
	}
	return all, wrong
}

// playOn plays a workload to kube-controller-manager on a server.
func playOn(t *testing.T, workload, on string, speed float64) played {
	t.Helper()
	spec := controller.Spec{
		Server: on, Workload: workload, Speed: speed, Rules: "deployments", Plans: []string{controller.PlanNone}, Settle: metav1.Duration{Duration: time.Minute},
		Programs: []controller.Program{{Command: []string{
			programs.Pinned(t, "kube-controller-manager"), "--kubeconfig={kubeconfig}", "--controllers=deployment-controller,replicaset-controller",
			"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000",
		}}},
	}
	dir := filepath.Join(t.TempDir(), "out")
	result, err := controller.Run(t.Context(), spec, controller.Options{Dir: dir, Notify: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	play := &result.Plays[0]
	out := played{counts: map[string]int{}}
	for _, v := range play.Verdicts {
		out.verdicts = append(out.verdicts, fmt.Sprintf("%s: %v", v.Name, v.Failed))
		if v.Failed {
			t.Errorf("%s: %s: %v", v.Name, v.Text, v.Evidence)
		}
	}
	if len(play.Verdicts) == 0 || len(play.Latencies) == 0 || play.Latencies[0].Answered == 0 {
		t.Errorf("%d verdicts, latencies %+v", len(play.Verdicts), play.Latencies)
	}
	for _, r := range play.Requests {
		out.counts[r.Verb+" "+r.Resource] += r.Count - r.Conflicts - r.Errors
		out.counts["conflicts"] += r.Conflicts + r.Errors
	}
	changes, err := filepath.Glob(filepath.Join(dir, play.Folder, "changes*"))
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	f, err := os.Open(changes[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for dec := json.NewDecoder(plain); dec.More(); {
		var c record.Change
		if err := dec.Decode(&c); err != nil {
			t.Fatal(err)
		}
		there := c.By == record.ByManifest || c.By == "" && c.Type == watch.Added // before the play
		if slices.Contains(compared, c.Resource.GroupResource().String()) && !there {
			out.counts[fmt.Sprintf("%s %s by %s", c.Type, c.Resource.GroupResource(), cmp.Or(c.By, "nobody"))]++
		}
	}
	return out
}
