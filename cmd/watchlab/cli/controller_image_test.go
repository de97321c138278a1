package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/controller"
	"watchlab/bench/fleet"
	"watchlab/bench/fleet/upload"
)

// TestControllerImageInput: bad input is refused before anything is written to the cluster.
func TestControllerImageInput(t *testing.T) {
	kubeconfig := unasked(t)
	large := filepath.Join(t.TempDir(), "large.yaml")
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: " + strings.Repeat("x", 1<<20) + "}\n"
	if err := os.WriteFile(large, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	in := "--kubeconfig " + kubeconfig + " --context one --image i:1 "
	for _, c := range []struct{ flags, want string }{
		{"--context one -- true", "--context: is for --image"},
		{"--name x -- true", "--name: is for --image"},
		{"--watchlab-image x -- true", "--watchlab-image: is for --image"},
		{"--image i:1 -- true", "--context: is required"},
		{in + "--page -- true", "--page: is not for --image"},
		{in + "--in-cluster -- true", "--image: a pod gives its program a kubeconfig"},
		{in + "--attach", "--image: a pod gives its program a kubeconfig"},
		{in + "--attach -- true", "a program is given, but with attach it runs elsewhere"},
		{in, "no program is given"},
		{in + "--storm nope -- true", "--storm: trace nope: "},
		{in + "--rules nope -- true", "--rules: rules nope: "},
		{in + "--manifest " + large + " -- /manager", "the files of the run: they have "},
		{in + "--name Mine -- /manager", `--name: "Mine"`},
		{in + "--namespace a/b -- /manager", `--namespace: "a/b"`},
		{"--kubeconfig " + kubeconfig + " --context two --image i:1 -- /manager", "--context: "},
	} {
		dir := filepath.Join(t.TempDir(), "results")
		code, stdout, stderr := call(t, append([]string{"controller", "--out", dir}, strings.Fields(c.flags)...)...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "watchlab: "+c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d\n%s%s, want %s", c.flags, code, stdout, stderr, c.want)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s: a results folder", c.flags)
		}
	}
}

// TestControllerPod plays what --image packs as its pod does, except for the paths of a pod: the results folder
// comes back through the log, and has the Spec of the user.
func TestControllerPod(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(asCommand, "1") // of the program
	file("objects/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	spec := controller.Spec{
		Image: "i:1", Plans: []string{controller.PlanNone}, Speed: 100,
		Workload:  file("workload.yaml", "objects:\n- manifest: objects/map.yaml\n  copies: 3\n"),
		Manifests: []string{file("more/crd.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"), "-"},
		Programs:  []controller.Program{{Command: []string{self, "record", "--resource", "configmaps", "-o", "{dir}/maps.jsonl.zst"}}},
	}
	run, err := (&imageFlags{}).run(t.Context(), spec, strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan := string(run.Plan.Experiment)
	for name, data := range run.Files {
		path := file("pod/"+name, strings.ReplaceAll(string(data), fleet.PlanDir, filepath.Join(dir, "pod")))
		plan = strings.ReplaceAll(plan, filepath.Join(fleet.PlanDir, name), path)
	}
	if len(run.Files) != 3 || strings.Contains(plan, fleet.PlanDir) || strings.Contains(plan, "i:1") {
		t.Fatalf("%d files, Spec %s", len(run.Files), plan)
	}
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	t.Setenv(fleet.IndexVar, "0")
	run.Plan.Experiment = json.RawMessage(plan)
	text, err := run.Plan.YAML()
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, log := call(t, "pod", "--plan", file("plan.yaml", string(text)))
	if code != exitOK || stdout != "" || !strings.HasPrefix(log, notePrefix+"play 1 of 1: ") {
		t.Fatalf("exit code %d: %s%s", code, stdout, log[:min(len(log), 1000)])
	}
	out := filepath.Join(dir, "out")
	logs := upload.Logs{{Name: "log", Open: opener(log)}}
	if damaged, err := logs.Read(t.Context(), run.Plan.Run, func(b upload.Bundle) error { return b.Extract(out) }); err != nil || len(damaged) > 0 {
		t.Fatal(damaged, err)
	}
	o, err := controller.Adopt(out, spec, []string{"controller"})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Plays) != 1 || o.Spec.Workload != spec.Workload || o.Spec.Image != "i:1" || len(o.Spec.Manifests) != 2 || o.Spec.Manifests[1] != "-" || strings.Contains(o.Spec.Manifests[0], fleet.PlanDir) {
		t.Errorf("%+v", o.Spec)
	}
	again, _, err := controller.Load(filepath.Join(out, controller.SpecFile))
	if err != nil || again.Workload != spec.Workload {
		t.Errorf("%s: %+v, %v", controller.SpecFile, again, err)
	}
	for _, name := range []string{controller.ResultFile, controller.BenchFile, controller.JUnitFile, "plays/01-new-none/controller-0/maps.jsonl.zst"} {
		if _, err := os.Stat(filepath.Join(out, name)); (err == nil) == (name == controller.JUnitFile) { // Publish writes it here.
			t.Errorf("%s: %v", name, err)
		}
	}
	// A program that the image lacks.
	run.Plan.Experiment = json.RawMessage(strings.ReplaceAll(plan, self, "/does/not/exist"))
	if text, err = run.Plan.YAML(); err != nil {
		t.Fatal(err)
	}
	code, _, log = call(t, "pod", "--plan", file("plan.yaml", string(text)))
	if code != exitUsage || !strings.HasPrefix(log, "watchlab: cannot start the program /does/not/exist: ") {
		t.Errorf("exit code %d: %s", code, log)
	}
}

func opener(log string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(log)), nil }
}

func TestInstall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "watchlab")
	if code, _, stderr := call(t, "pod", "--install", path); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
}
