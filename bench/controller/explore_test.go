package controller_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/internal/golden"
)

// TestExplored: the plans follow from what the program watches and writes, the most telling ones first: of changes, those
// of users; an old view of what it reads by WatchList comes late. Leases, writes before the storm and refused ones suggest nothing.
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
			{At: -time.Second, Client: me, Verb: "watch", Resource: pods, Code: 200, State: true},
			{At: -time.Second, Client: me, Verb: "delete", Resource: pods, Code: 200},
			{At: 1 * time.Second, Client: me, Verb: "update", Resource: leases, Code: 200},
			{At: 2 * time.Second, Client: me, Verb: "apply", Resource: jobs, Subresource: "status", Code: 200},
			{At: 3 * time.Second, Client: me, Verb: "create", Resource: pods, Code: 201},
			{At: 4 * time.Second, Client: me, Verb: "create", Resource: pods, Code: 201},
			{At: 5 * time.Second, Client: me, Verb: "update", Resource: pods, Code: 409},
		},
		Changes: []record.Change{
			{At: 3 * time.Second, By: me, Type: watch.Added, Resource: pods, Key: "a/b"},
			{At: 3200 * time.Millisecond, By: record.ByLifecycle, Type: watch.Modified, Resource: pods, Key: "a/b"},
			{At: 3400 * time.Millisecond, By: record.ByLifecycle, Type: watch.Modified, Resource: pods, Key: "a/b"},
			{At: 4 * time.Second, By: record.ByWorkload, Type: watch.Modified, Resource: jobs, Key: "a/c"},
			{At: 5 * time.Second, By: record.ByWorkload, Type: watch.Modified, Resource: jobs, Key: "a/c"},
			{At: 5500 * time.Millisecond, By: record.ByWorkload, Type: watch.Modified, Resource: jobs, Key: "a/b", Object: terminating},
			{At: 6 * time.Second, By: me, Type: watch.Deleted, Resource: jobs, Key: "a/b"},
			{At: 7 * time.Second, By: record.ByWorkload, Type: watch.Added, Resource: jobs, Key: "a/b"},
		},
	}
	golden.Check(t, "explored.txt", strings.Join(controller.Explored(p), "\n")+"\n")
}
