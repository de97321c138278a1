package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/fleet"
)

// planned writes a plan and sets the environment of one of its pods.
func planned(t *testing.T, index, plan string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fleet.IndexVar, index)
	t.Setenv(fleet.PodVar, "pod-"+index)
	return file
}

func TestShardRefuses(t *testing.T) {
	kubeconfig := unasked(t)
	const plan = "run: a\nmode: self\npods: 2\nbarrier: 0s\n"
	for _, tc := range []struct {
		name, index, plan string
		args              []string
		want              string
	}{
		{"no index", "", plan + "experiment: {family: queue}", nil, `JOB_COMPLETION_INDEX is ""`},
		{"index", "2", plan + "experiment: {family: queue}", nil, "pods 0 to 1"},
		{"plan", "0", "run: a\nmode: none\n", nil, "--plan: "},
		{"field", "0", plan + "experiment: {family: queue}\nhurry: true", nil, "hurry"},
		{"role", "0", plan + "experiment: {family: queue}", []string{"--role", "cook"}, "--role: "},
		{"writer", "0", plan + "experiment: {family: queue}", []string{"--role", "writer"}, "mode self has no writers"},
		{"unknown flag", "0", plan + "experiment: {fast: true}", nil, `unknown field "fast"`},
		{"no experiment", "0", plan, nil, "experiment"},
		{"quick", "0", plan + "experiment: {}", nil, "needs --family"},
		{"budget", "0", plan + "experiment: {family: queue, budget: 1m}", nil, "all pods play the same --rounds"},
		{"memory", "0", plan + "experiment: {family: queue, memory: true}", nil, "memory is not for pods"},
		{"share", "0", plan + "experiment: {family: queue, share: 0/2}", nil, "each pod has its own"},
		{"live", "0", plan + "experiment: {source: cluster}", nil, "source cluster is not for mode self"},
		{"field of the experiment", "0", plan + "experiment: {family: queue, rounds: -1}", nil, "rounds: -1"},
		{"upload", "0", plan + "upload: log\nexperiment: {family: queue}", nil, `unknown field "upload"`},
		{"kubeconfig", "0", plan + "experiment: {family: queue}", []string{"--kubeconfig", "/nowhere/kubeconfig"}, "--kubeconfig: "},
	} {
		code, out, errs := call(t, append([]string{"pod", "--kubeconfig", kubeconfig, "--plan", planned(t, tc.index, tc.plan)}, tc.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want one line with %q", tc.name, code, out, errs, tc.want)
		}
	}
}
