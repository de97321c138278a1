// Package controllers storms controllers that nobody here wrote; README.md has the commands.
package controllers

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/controller"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/e2e/programs"
)

// expected is what a controller must show besides passing all verdicts.
type expected struct {
	programs []string
	// rules are those that a play without faults must have answers for. They are prefixes of the names.
	rules []string
	// known is a verdict that fails under faults in some runs, by a defect of the controller that README.md names; logs is
	// what the controller logs then. What it leaves differs from the play without faults, too.
	known, logs string
	// writes are the least writes of a play without faults.
	writes float64
}

var controllers = map[string]expected{
	"deployment": {
		programs: []string{"kube-controller-manager"}, writes: 500,
		rules: []string{"deployments.apps ADDED", "deployments.apps MODIFIED", "replicasets.apps MODIFIED", "pods DELETED"},
	},
	"replicaset": {
		programs: []string{"kube-controller-manager"}, writes: 300,
		rules: []string{"replicasets.apps ADDED", "replicasets.apps MODIFIED", "pods MODIFIED Ready=True", "pods DELETED"},
	},
	"node-lifecycle": {
		programs: []string{"kube-controller-manager"}, writes: 40,
		rules: []string{"nodes MODIFIED Ready=False|Unknown", "nodes MODIFIED Ready=True"},
	},
	"example": {
		programs: []string{"controller-runtime-builtins"}, writes: 100,
		rules: []string{"replicasets.apps ADDED", "replicasets.apps MODIFIED"},
	},
	"cert-manager": {
		programs: []string{"cert-manager-controller"}, writes: 200, known: verdict.LostUpdates, logs: "Multiple matching CertificateRequest resources exist",
		rules: []string{
			"certificates.cert-manager.io ADDED", "certificates.cert-manager.io MODIFIED",
			"certificaterequests.cert-manager.io ADDED", "certificaterequests.cert-manager.io MODIFIED",
		},
	},
}

// TestControllers runs the commands of README.md. With -short it runs the example, without faults.
func TestControllers(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	commands := readCommands(t)
	if got, want := slices.Sorted(maps.Keys(commands)), slices.Sorted(maps.Keys(controllers)); !slices.Equal(got, want) {
		t.Fatalf("README.md has commands for %q, want %q", got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		want := controllers[name]
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "example" {
				t.Skip("with -short only the example")
			}
			for _, p := range want.programs {
				programs.Pinned(t, p) // Building it takes minutes.
			}
			result, dir, failed := run(t, root, name, commands[name])
			plans := []string{controller.PlanNone, controller.PlanAll}
			if testing.Short() {
				plans = plans[:1]
			}
			if len(result.Plays) != len(plans) {
				t.Fatalf("%d plays, want %d", len(result.Plays), len(plans))
			}
			for i := range result.Plays {
				check(t, &result.Plays[i], dir, plans[i], want)
			}
			if failed != nil && want.known == "" {
				t.Errorf("the command failed: %v", failed)
			}
		})
	}
}

// run runs a command of README.md, with a folder of the test for its results, which it returns. The error is that of the
// command.
func run(t *testing.T, root, name, command string) (*controller.Result, string, error) {
	t.Helper()
	dir, flags := filepath.Join(t.TempDir(), "result"), " --shrink=false --faults none"
	if !testing.Short() {
		flags += " --faults all" // To explore takes ten minutes each.
	}
	results := "results/controller-" + name
	for from, to := range map[string]string{
		"bin/watchlab controller": programs.Watchlab(t) + " controller" + flags,
		"--out " + results:        "--out " + dir,
	} {
		if strings.Count(command, from) != 1 {
			t.Fatalf("the command has not %q:\n%s", from, command)
		}
		command = strings.Replace(command, from, to, 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", command, out)
	result, readErr := controller.ReadResult(dir)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return result, dir, err
}

// check checks one play.
func check(t *testing.T, p *controller.Play, dir, plan string, want expected) {
	t.Helper()
	if p.Plan != plan || p.Quiet == nil {
		t.Errorf("play %s, want the plan %s and a quiet end", p.Name, plan)
	}
	log, err := os.ReadFile(filepath.Join(dir, p.Folder, "controller-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	defect := plan != controller.PlanNone && (want.logs != "" && strings.Contains(string(log), want.logs) ||
		slices.ContainsFunc(p.Verdicts, func(v verdict.Verdict) bool { return v.Failed && v.Name == want.known }))
	for _, v := range p.Verdicts {
		if v.Failed && (!defect || v.Name != want.known && v.Name != verdict.Diverged) {
			t.Errorf("%s: %s: %s\n%v", p.Name, v.Name, v.Text, v.Evidence)
		}
	}
	if plan != controller.PlanNone {
		return // Faults may leave few events.
	}
	if n := p.Figures[controller.UnitWrites]; n < want.writes {
		t.Errorf("%s: %v writes, want %v or more", p.Name, n, want.writes)
	}
	for _, rule := range want.rules {
		if !slices.ContainsFunc(p.Latencies, func(l controller.Latency) bool { return strings.HasPrefix(l.Rule, rule) && l.Answered > 0 }) {
			t.Errorf("%s: no event of %q was answered", p.Name, rule)
		}
	}
}

var section = regexp.MustCompile("(?s)\n## ([a-z-]+)\n(.*?)\n```sh\n(.*?)\n```\n")

// readCommands returns the commands of README.md by their headings.
func readCommands(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{}
	for _, m := range section.FindAllSubmatch(text, -1) {
		commands[string(m[1])] = string(m[3])
	}
	return commands
}
