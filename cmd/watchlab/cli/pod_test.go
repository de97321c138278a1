package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/fleet"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
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

// TestPodsWithoutACluster: pods without a barrier need no cluster; collect merges their results.
func TestPodsWithoutACluster(t *testing.T) {
	dir := t.TempDir()
	for _, index := range []string{"0", "1"} {
		plan := planned(t, index, `
run: alone
mode: self
pods: 2
experiment: {family: queue, variants: [cond], storm: {name: `+tiny+`}, rounds: 1, events: 2000}
upload: dir=`+dir+`
barrier: 0s
`)
		if code, _, errs := call(t, "pod", "--plan", plan, "--metrics-addr", "127.0.0.1:0"); code != exitOK || !strings.Contains(errs, "uploaded") {
			t.Fatalf("pod %s: exit code %d, stderr %q", index, code, errs)
		}
	}
	var parts []lab.Share
	damaged, err := upload.Dir(dir).Read(context.Background(), "alone", func(p upload.Bundle) error {
		s, err := p.PodResult()
		if err == nil {
			parts = append(parts, *s)
		}
		return err
	})
	if err != nil || len(damaged) > 0 || len(parts) != 2 {
		t.Fatalf("%d pods, damaged %v, %v", len(parts), damaged, err)
	}
	attempts := []lab.Attempt{{Index: parts[0].Index}, {Index: parts[1].Index}}
	if _, err := lab.Merge(attempts, func(i int) (*lab.Share, error) { return &parts[i], nil }, lab.MergeOptions{}); err != nil {
		t.Error(err)
	}
	for _, p := range parts {
		if len(p.Starts) > 0 || p.Attempt != 0 || len(p.Whole) != 1 || p.Whole[0] != parts[0].Whole[0] || p.Pod == "" {
			t.Errorf("pod %d: %+v", p.Index, p)
		}
	}
}

func TestShardRefuses(t *testing.T) {
	const plan = "run: a\nmode: self\npods: 2\nupload: log\nbarrier: 0s\n"
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
		{"quick study", "0", plan + "experiment: {}", nil, "needs --family"},
		{"budget", "0", plan + "experiment: {family: queue, budget: 1m}", nil, "all pods play the same --rounds"},
		{"memory", "0", plan + "experiment: {family: queue, memory: true}", nil, "memory is not for pods"},
		{"share", "0", plan + "experiment: {family: queue, share: 0/2}", nil, "each pod has its own"},
		{"live", "0", plan + "experiment: {source: cluster}", nil, "source cluster is not for mode self"},
		{"field of the experiment", "0", plan + "experiment: {family: queue, rounds: -1}", nil, "rounds: -1"},
		{"upload", "0", strings.Replace(plan, "log", "nowhere", 1) + "experiment: {family: queue}", nil, "--plan: "},
		{"kubeconfig", "0", strings.Replace(plan, "0s", "1m", 1) + "experiment: {family: queue}", []string{"--kubeconfig", "/nowhere/kubeconfig"}, "--kubeconfig: "},
	} {
		code, out, errs := call(t, append([]string{"pod", "--plan", planned(t, tc.index, tc.plan)}, tc.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want one line with %q", tc.name, code, out, errs, tc.want)
		}
	}
}
