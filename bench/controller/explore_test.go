package controller_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
)

// TestExplored: the plans follow from what the program watches and writes, the most telling ones first. Leases, writes
// before the storm and refused ones suggest nothing.
func TestExplored(t *testing.T) {
	jobs := schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	const me = "controller-0"
	terminating := &unstructured.Unstructured{}
	terminating.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
	p := &record.Play{
		Accesses: []record.Access{
			{At: -time.Second, Client: me, Verb: "watch", Resource: jobs, Code: 200},
			{At: -time.Second, Client: me, Verb: "watch", Resource: pods, Code: 200},
			{At: -time.Second, Client: me, Verb: "delete", Resource: pods, Code: 200},
			{At: 1 * time.Second, Client: me, Verb: "update", Resource: leases, Code: 200},
			{At: 2 * time.Second, Client: me, Verb: "apply", Resource: jobs, Subresource: "status", Code: 200},
			{At: 3 * time.Second, Client: me, Verb: "create", Resource: pods, Code: 201},
			{At: 4 * time.Second, Client: me, Verb: "create", Resource: pods, Code: 201},
			{At: 5 * time.Second, Client: me, Verb: "update", Resource: pods, Code: 409},
		},
		Changes: []record.Change{
			{At: 3 * time.Second, By: me, Type: watch.Added, Resource: pods, Key: "a/b"},
			{At: 4 * time.Second, By: record.ByWorkload, Type: watch.Modified, Resource: jobs, Key: "a/c"},
			{At: 5 * time.Second, By: record.ByWorkload, Type: watch.Modified, Resource: jobs, Key: "a/c"},
			{At: 5500 * time.Millisecond, By: record.ByWorkload, Type: watch.Modified, Resource: jobs, Key: "a/b", Object: terminating},
			{At: 6 * time.Second, By: me, Type: watch.Deleted, Resource: jobs, Key: "a/b"},
			{At: 7 * time.Second, By: record.ByWorkload, Type: watch.Added, Resource: jobs, Key: "a/b"},
		},
	}
	want := []string{
		"stall:duration=3s,resource=pods,before=create pods",
		"skip:resource=pods,before=create pods",
		"crash:after=create pods",
		"old-view:resource=jobs.batch,before=create pods; crash:after=create pods,nth=2",
		"lost-answer:resource=pods,verb=create,before=create pods",

		"stall:duration=3s,resource=jobs.batch,before=patch jobs.batch/status",
		"skip:resource=jobs.batch,before=patch jobs.batch/status",
		"crash:before=create pods",
		"old-view:resource=pods,before=create pods; crash:after=create pods,nth=2",
		"stall:duration=3s,resource=jobs.batch,before=create pods",

		"stall:at=5.45s,duration=4.5s,resource=jobs.batch",
		"crash:at=5.45s,duration=2.5s",
		"crash:after=patch jobs.batch/status",
		"old-view:at=5.45s,duration=5.5s,resource=jobs.batch; crash:at=7.2s",
		"stall:duration=3s,resource=pods,before=create pods,nth=3",

		"skip:at=5.45s,duration=2.5s,resource=jobs.batch",
		"crash:before=patch jobs.batch/status",
		"latency:at=5.45s,duration=500ms,resource=jobs.batch; old-view:at=5.55s,duration=5.5s,resource=jobs.batch; crash:at=7.2s",
		"lost-answer:resource=jobs.batch,verb=patch,before=patch jobs.batch/status",

		"crash:at=3.95s,duration=2s",
		"conflict:resource=jobs.batch,verb=patch,before=patch jobs.batch/status",
		"skip:at=3.95s,duration=2s,resource=jobs.batch",
		"stall:duration=3s,resource=jobs.batch,before=patch jobs.batch/status,nth=3",
		"stall:duration=3s,resource=pods,before=patch jobs.batch/status",
	}
	if diff := cmp.Diff(want, controller.Explored(p)); diff != "" {
		t.Error(diff)
	}
}
