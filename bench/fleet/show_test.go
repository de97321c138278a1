package fleet_test

import (
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

// TestStartHint: what a waiting pod lacks, and what helps.
func TestStartHint(t *testing.T) {
	for _, tc := range []struct {
		pod     fleet.Pod
		context string
		want    string
	}{
		{fleet.Pod{Phase: fleet.Waiting, Reason: "Unschedulable"}, "kind-lab", "overlay base asks for more than the nodes have"},
		{fleet.Pod{Phase: fleet.Waiting, Reason: "ErrImagePull", Image: "watchlab:dev"}, "kind-lab", "make image-load IMAGE=watchlab:dev CLUSTER=lab loads it, --image names another"},
		{fleet.Pod{Phase: fleet.Waiting, Reason: "ImagePullBackOff"}, "dev", "load it into the nodes, or a registry that they reach"},
		{fleet.Pod{Phase: fleet.Waiting}, "dev", "kubectl -n lab get events says more"},
	} {
		if got := fleet.StartHint(tc.pod, tc.context, "", "lab"); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.pod, got, tc.want)
		}
	}
}
