package fleet_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/pipeline"
)

// TestSetExperiment: the pods' experiment is the user's, with the paths of files in a pod.
func TestSetExperiment(t *testing.T) {
	dir := t.TempDir()
	file := func(dir, name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pod := file(dir, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a}]}\n")
	given := experiment.Spec{Config: pipeline.Config{Family: "queue", Impls: []string{"ring"}}, Storm: experiment.Storm{Name: "steady", Scale: 0.001}, Manifests: []string{pod}}
	run := fleet.Spec{}
	if err := run.SetExperiment(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	want := given
	want.Manifests = []string{"/etc/watchlab/pod.yaml"}
	if got, err := experiment.Parse("", run.Plan.Experiment); err != nil || !reflect.DeepEqual(got, want) || len(run.Files) != 1 || len(run.Files["pod.yaml"]) == 0 {
		t.Errorf("%v: %+v, files %q", err, got, run.Files)
	}
	given.Manifests = append(given.Manifests, file(t.TempDir(), "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: a, image: a}]}\n"))
	if err := run.SetExperiment(t.Context(), given); err == nil || !strings.Contains(err.Error(), "the same name") {
		t.Errorf("two files of one name: %v", err)
	}
}

// TestFollower: each change is printed once.
func TestFollower(t *testing.T) {
	var out bytes.Buffer
	hint := func(p fleet.Pod) string { return fleet.StartHint(p, "kind-lab", "kind", "lab") }
	f := fleet.Follower{W: &out, Hint: hint}
	state := func(pods ...fleet.Pod) fleet.State {
		return fleet.State{Plan: fleet.Plan{Pods: len(pods)}, Pods: pods}
	}
	waiting := fleet.Pod{Index: 1, Phase: fleet.Waiting, Reason: "Unschedulable", Message: "Insufficient cpu"}
	for _, progress := range []string{"", "play 1"} {
		f.Show(state(fleet.Pod{Phase: fleet.Running, Progress: progress}, waiting))
	}
	f.Show(state(fleet.Pod{Phase: fleet.Failed, Reason: "exit code 1", Name: "a", Failures: 1}, waiting))
	pulling := fleet.Pod{Phase: fleet.Waiting, Reason: "ErrImagePull", Image: "watchlab:dev"}
	grafana := fleet.Pod{Deployment: "grafana", Phase: fleet.Waiting, Reason: "ErrImagePull", Image: "grafana:1"}
	for range 2 {
		f.Show(state(pulling, pulling, grafana))
		pulling.Reason, grafana.Reason = "ImagePullBackOff", "ImagePullBackOff"
	}
	want := `watchlab: pod 1 waits: Unschedulable: Insufficient cpu; overlay kind asks for more than the nodes have
watchlab: 2 pods: 1 waiting, 1 running; 0 results uploaded
watchlab: 2 pods: 1 waiting, 1 failed; 0 results uploaded
watchlab: pod 0 waits: ErrImagePull: watchlab:dev; make image-load IMAGE=watchlab:dev CLUSTER=lab loads it, --image names another
watchlab: grafana waits: ErrImagePull: grafana:1; docker pull grafana:1 && kind load docker-image grafana:1 --name lab loads it
watchlab: 3 pods: 2 waiting; 0 results uploaded
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
