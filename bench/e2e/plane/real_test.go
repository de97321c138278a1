package plane

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"watchlab/bench/controller"
	"watchlab/bench/controller/server"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
)

// TestReal plays to a controller on a kube-apiserver of its own and on a cluster, with a stale view: its bug is told as on the
// simulated server, its twin passes. In the cluster, what was there stays, and nothing of a play is left.
func TestReal(t *testing.T) {
	envtest(t)
	program := filepath.Join(t.TempDir(), "planted")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../planted").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	play := func(t *testing.T, on, bug string) (failed []string) {
		spec := controller.Spec{
			Server: on, Manifests: []string{"../planted/testdata/widgets.yaml"}, Workload: "../planted/testdata/short.yaml", Unshrunk: true,
			Plans:    []string{controller.PlanNone, "stall:duration=3s,resource=configmaps,before=create configmaps"},
			Programs: []controller.Program{{Command: []string{program, "--bug=" + bug}}},
		}
		result, err := controller.Run(t.Context(), spec, controller.Options{Dir: filepath.Join(t.TempDir(), "out"), Notify: func(line string) { t.Log(line) }})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range result.Plays {
			for _, v := range p.Verdicts {
				if v.Failed {
					t.Logf("%s: %s: %v", p.Name, v.Text, v.Evidence)
					failed = append(failed, v.Name)
				}
			}
		}
		return failed
	}
	t.Run(server.Envtest, func(t *testing.T) {
		if failed := play(t, server.Envtest, "careful"); failed != nil {
			t.Errorf("without a bug: %q", failed)
		}
		if failed := play(t, server.Envtest, "twice"); !slices.Equal(failed, []string{verdict.Diverged, verdict.ActedStale}) {
			t.Errorf("with a bug: %q", failed)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
		client := dynamic.NewForConfigOrDie(cp.Config())
		configMaps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
		mine := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "mine"}}}
		if _, err := configMaps.Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if failed := play(t, cp.Kubeconfig(), "careful"); failed != nil {
			t.Errorf("without a bug: %q", failed)
		}
		left, err := configMaps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for i := range left.Items {
			names[left.Items[i].GetName()] = true
		}
		delete(names, "kube-root-ca.crt") // of every namespace
		if !names["mine"] || len(names) != 1 {
			t.Errorf("after the play there are %v, want mine", names)
		}
		crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		if list, err := crds.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("after the play there are %d definitions (%v)", len(list.Items), err)
		}
	})
}

// envtest puts etcd and kube-apiserver where operator authors have them.
func envtest(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.Symlink(programs.Pinned(t, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", dir)
}
