package fleet_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/pipeline"
)

// TestSetExperiment: the pods' experiment is the user's, with the paths of files in a pod.
func TestSetExperiment(t *testing.T) {
	const tiny = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","resourceVersion":"1"}}}` + "\n" +
		`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","resourceVersion":"2"}}}` + "\n"
	file := filepath.Join(t.TempDir(), "pods.jsonl")
	if err := os.WriteFile(file, []byte(tiny), 0o600); err != nil {
		t.Fatal(err)
	}
	given := experiment.Spec{Config: pipeline.Config{Family: "queue", Impls: []string{"ring"}}, Storm: experiment.Storm{Name: file}}
	run := fleet.Spec{}
	if err := run.SetExperiment(given); err != nil {
		t.Fatal(err)
	}
	want := given
	want.Storm.Name = "/etc/watchlab/pods.jsonl"
	if got, err := experiment.Parse("", run.Plan.Experiment); err != nil || !reflect.DeepEqual(got, want) || len(run.Files) != 1 || string(run.Files["pods.jsonl"]) != tiny {
		t.Errorf("%v: %+v, files %q", err, got, run.Files)
	}
}

// TestFollower: each change is printed once.
func TestFollower(t *testing.T) {
	var out bytes.Buffer
	hint := func(p fleet.Pod) string { return fleet.StartHint(p, "kind-lab", "kind", "lab") }
	f := fleet.Follower{Say: func(line string) { fmt.Fprintln(&out, "watchlab: "+line) }, Hint: hint}
	state := func(pods ...fleet.Pod) fleet.State {
		return fleet.State{Plan: fleet.Plan{Pods: len(pods)}, Pods: pods}
	}
	waiting := fleet.Pod{Index: 1, Phase: fleet.Waiting, Reason: "Unschedulable", Message: "Insufficient cpu"}
	for _, progress := range []string{"", "play 1"} {
		f.Show(state(fleet.Pod{Phase: fleet.Running, Progress: progress}, waiting))
	}
	f.Show(state(fleet.Pod{Phase: fleet.Failed, Reason: "exit code 1", Name: "a", Failures: 1}, waiting))
	pulling := fleet.Pod{Phase: fleet.Waiting, Reason: "ErrImagePull", Image: "watchlab:dev"}
	for range 2 {
		f.Show(state(pulling, pulling))
		pulling.Reason = "ImagePullBackOff"
	}
	want := `watchlab: pod 1 waits: Unschedulable: Insufficient cpu; overlay kind asks for more than the nodes have
watchlab: 2 pods: 1 waiting, 1 running
watchlab: 2 pods: 1 waiting, 1 failed
watchlab: pod 0 waits: ErrImagePull: watchlab:dev; make image-load IMAGE=watchlab:dev CLUSTER=lab loads it, --image names another
watchlab: 2 pods: 2 waiting
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
