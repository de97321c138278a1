package mergetest

import (
	"reflect"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/impls/merge"
)

// order: one SET with each kind of change.
func (r *rig) order() {
	gone, same, updated, deleted, status := newPod("gone"), newPod("same"), newPod("updated"), newPod("deleted"), newPod("status")
	r.expect(r.merge(merge.SET, gone, same, updated, deleted, status),
		"ADD api gone same updated deleted status")
	r.expect(r.merge(merge.SET,
		changed(status, newMessage), changed(deleted, markDeleted), changed(updated, newImage), same, newPod("new")),
		"REMOVE api gone",
		"ADD api new",
		"UPDATE api updated",
		"DELETE api deleted",
		"RECONCILE api status")
	r.expectHeld("api/same", "api/updated", "api/deleted", "api/status", "api/new")
}

// firstSET: the first SET of a source marks it as ready once, with an empty ADD if needed.
func (r *rig) firstSET() {
	r.expect(r.merge(merge.SET), "ADD api")
	r.expect(r.merge(merge.SET))

	r.expect(r.mergeFrom("file", merge.ADD, newPod("a")), "ADD file a")
	r.expect(r.mergeFrom("file", merge.SET, changed(newPod("a"), newMessage)), "ADD file", "RECONCILE file a")
	r.expect(r.mergeFrom("file", merge.SET, changed(newPod("a"), newMessage)))

	r.expect(r.mergeFrom("http", merge.ADD, newPod("b")), "ADD http b")
	r.expect(r.mergeFrom("http", merge.SET), "REMOVE http b", "ADD http")

	r.expect(r.mergeFrom("other", merge.ADD, newPod("c")), "ADD other c")
	r.expect(r.mergeFrom("other", merge.SET, changed(newPod("c"), newImage)), "UPDATE other c")
}

// upsert: ADD, UPDATE, DELETE and SET insert or update; the change determines the notification.
func (r *rig) upsert() {
	for _, op := range []merge.Op{merge.ADD, merge.UPDATE, merge.DELETE, merge.SET} {
		source := op.String()
		pod := newPod("a")
		r.expect(r.mergeFrom(source, op, pod), "ADD "+source+" a")
		r.expect(r.mergeFrom(source, op, newPod("a")))
		pod = changed(pod, newMessage)
		r.expect(r.mergeFrom(source, op, pod), "RECONCILE "+source+" a")
		pod = changed(pod, newImage)
		r.expect(r.mergeFrom(source, op, pod), "UPDATE "+source+" a")
		pod = changed(pod, markDeleted)
		r.expect(r.mergeFrom(source, op, pod), "DELETE "+source+" a")
		r.expect(r.mergeFrom(source, op, changed(pod)))
		got := r.mergeFrom(source, op, newPod("b"), newPod("c"))
		if op == merge.SET {
			r.expect(got, "REMOVE SET a", "ADD SET b c")
		} else {
			r.expect(got, "ADD "+source+" b c")
		}
	}
}

// remove: REMOVE uses the UID and ignores unknown pods.
func (r *rig) remove() {
	r.merge(merge.SET, newPod("a"), newPod("b"), newPod("c"))
	bare := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b"}}
	got := r.merge(merge.REMOVE, bare, newPod("unknown"), bare)
	r.expect(got, "REMOVE api b")
	if got[0].Pods[0].Name != "b" || len(got[0].Pods[0].Spec.Containers) != 1 {
		r.Errorf("the removed pod is not sent as it was held: %v", got[0].Pods[0])
	}
	r.expect(r.merge(merge.REMOVE, bare))
	r.expect(r.merge(merge.REMOVE))
	r.expect(r.mergeFrom("file", merge.REMOVE, newPod("a")))
	r.expectHeld("api/a", "api/c")
	r.expect(r.merge(merge.ADD, newPod("b")), "ADD api b")
	r.expect(r.merge(merge.REMOVE, newPod("c"), newPod("a")), "REMOVE api a c")
	r.expectHeld("api/b")
}

// semantics: the fields that make a pod differ, and those that do not.
func (r *rig) semantics() {
	set := annotated
	tests := []struct {
		name   string
		before func(*v1.Pod)
		after  func(*v1.Pod)
		want   string // empty for nothing
	}{
		{"spec, a string", nil, newImage, "UPDATE"},
		{"spec, deep", nil, func(p *v1.Pod) { p.Spec.Containers[0].Env[0].Value = "W" }, "UPDATE"},
		{"spec, a pointer", nil, func(p *v1.Pod) { *p.Spec.TerminationGracePeriodSeconds = 1 }, "UPDATE"},
		{"spec, a map", nil, func(p *v1.Pod) { p.Spec.NodeSelector["pool"] = "b" }, "UPDATE"},
		{"spec, a quantity", nil, func(p *v1.Pod) {
			delete(p.Spec.Containers[0].Resources.Requests, v1.ResourceCPU)
		}, "UPDATE"},
		{"spec, nil and empty", nil, func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{} }, "UPDATE"},
		{"labels, value", nil, func(p *v1.Pod) { p.Labels["app"] = "y" }, "UPDATE"},
		{"labels, key", nil, func(p *v1.Pod) { p.Labels["new"] = "" }, "UPDATE"},
		{"labels, gone", nil, func(p *v1.Pod) { p.Labels = nil }, "UPDATE"},
		{"labels, nil and empty", func(p *v1.Pod) { p.Labels = nil }, func(p *v1.Pod) { p.Labels = map[string]string{} }, "UPDATE"},
		{"deletionTimestamp", nil, markDeleted, "DELETE"},
		{"deletionTimestamp, other", markDeleted, func(p *v1.Pod) { p.DeletionTimestamp.Time = p.DeletionTimestamp.Add(time.Second) }, "DELETE"},
		{"deletionTimestamp, gone", markDeleted, func(p *v1.Pod) { p.DeletionTimestamp = nil }, "UPDATE"},
		{"deletionGracePeriodSeconds", nil, func(p *v1.Pod) { p.DeletionGracePeriodSeconds = new(int64) }, "UPDATE"},
		{"annotation, value", nil, set("note", "other"), "UPDATE"},
		{"annotation, new", nil, set("more", ""), "UPDATE"},
		{"annotation, gone", set("more", ""), unannotated("more"), "UPDATE"},
		{"annotation, renamed", set("more", ""), func(p *v1.Pod) { unannotated("more")(p); set("less", "")(p) }, "UPDATE"},
		{"annotations, nil and empty", func(p *v1.Pod) { p.Annotations = nil }, func(p *v1.Pod) { p.Annotations = map[string]string{} }, ""},
		{"annotation config.source", nil, set(merge.ConfigSourceAnnotation, "elsewhere"), ""},
		{"annotation config.seen", nil, set(merge.ConfigFirstSeenAnnotation, "yesterday"), ""},
		{"annotation mirror", nil, set(merge.ConfigMirrorAnnotation, "m"), ""},
		{"status", nil, newMessage, "RECONCILE"},
		{"status, nil and empty", nil, func(p *v1.Pod) { p.Status.PodIPs = []v1.PodIP{} }, "RECONCILE"},
		{"status, gone", nil, noStatus, "RECONCILE"},
		{"status and spec", nil, func(p *v1.Pod) { newMessage(p); newImage(p) }, "UPDATE"},
		{"resourceVersion", nil, newVersion, ""},
		{"generation", nil, func(p *v1.Pod) { p.Generation = 7 }, ""},
		{"finalizers", nil, func(p *v1.Pod) { p.Finalizers = []string{"f"} }, ""},
		{"ownerReferences", nil, func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Name: "o"}} }, ""},
		{"managedFields", nil, func(p *v1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} }, ""},
		{"name", nil, named("renamed"), ""},
		{"namespace", nil, func(p *v1.Pod) { p.Namespace = "elsewhere" }, ""},
		{"nothing", nil, func(*v1.Pod) {}, ""},
	}
	for _, tt := range tests {
		before := newPod("a")
		if tt.before != nil {
			tt.before(before)
		}
		r.expect(r.mergeFrom(tt.name, merge.SET, before), "ADD "+tt.name+" a")
		got := r.mergeFrom(tt.name, merge.SET, changed(before, tt.after))
		if tt.want == "" {
			r.expect(got)
		} else {
			r.expect(got, tt.want+" "+tt.name+" a")
		}
		if r.Failed() {
			r.Fatalf("in case %q", tt.name)
		}
	}
}

// firstMetadataStays: an update changes spec, status, labels, annotations and
// deletion. Other metadata stays that of the first pod.
func (r *rig) firstMetadataStays() {
	first := newPod("a")
	r.merge(merge.SET, first)
	seen := r.state()["api/a"].Annotations[merge.ConfigFirstSeenAnnotation]
	second := changed(first, newVersion, newImage, newMessage, markDeleted, annotated("more", "x"), func(p *v1.Pod) {
		p.Labels["more"] = "x"
		p.Finalizers = []string{"f"}
		p.Generation = 2
		p.DeletionGracePeriodSeconds = new(int64)
	})
	got := r.merge(merge.SET, second)
	r.expect(got, "DELETE api a")

	want := withLocal(first, "api", seen)
	want.Spec, want.Status, want.Labels = second.Spec, second.Status, second.Labels
	want.DeletionTimestamp, want.DeletionGracePeriodSeconds = second.DeletionTimestamp, second.DeletionGracePeriodSeconds
	want.Annotations["more"] = "x"
	if diff := cmp.Diff(want, got[0].Pods[0]); diff != "" {
		r.Errorf("sent (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, r.state()["api/a"]); diff != "" {
		r.Errorf("held (-want +got):\n%s", diff)
	}

	third := changed(second, newMessage, newVersion, annotated(merge.ConfigMirrorAnnotation, "m"))
	got = r.merge(merge.SET, third)
	r.expect(got, "RECONCILE api a")
	want.Status = third.Status
	if diff := cmp.Diff(want, got[0].Pods[0]); diff != "" {
		r.Errorf("sent with a status (-want +got):\n%s", diff)
	}
}

// gracefulDelete: a deletion is sent once, and later changes of the pod are sent too.
func (r *rig) gracefulDelete() {
	pod := newPod("a")
	r.merge(merge.SET, pod)
	deleted := changed(pod, markDeleted)
	got := r.merge(merge.DELETE, deleted)
	r.expect(got, "DELETE api a")
	if !reflect.DeepEqual(got[0].Pods[0].DeletionTimestamp, deleted.DeletionTimestamp) {
		r.Errorf("deletionTimestamp %v, want %v", got[0].Pods[0].DeletionTimestamp, deleted.DeletionTimestamp)
	}
	r.expect(r.merge(merge.SET, deleted))
	r.expect(r.merge(merge.SET, changed(deleted, newMessage)), "RECONCILE api a")
	r.expect(r.merge(merge.SET, changed(deleted, newMessage, newImage)), "DELETE api a")
	r.expect(r.merge(merge.SET), "REMOVE api a")
	r.expect(r.merge(merge.ADD, deleted), "ADD api a")
}

// reconcile: a change of the status alone is sent as RECONCILE, in both directions.
func (r *rig) reconcile() {
	pod := newPod("a")
	r.merge(merge.SET, pod, newPod("b"))
	other := changed(pod, newMessage)
	got := r.merge(merge.SET, newPod("b"), other)
	r.expect(got, "RECONCILE api a")
	if !reflect.DeepEqual(got[0].Pods[0].Status, other.Status) {
		r.Errorf("status %v, want %v", got[0].Pods[0].Status, other.Status)
	}
	r.expect(r.merge(merge.SET, newPod("b"), newPod("a")), "RECONCILE api a")
	if got, want := r.state()["api/a"].Status, newPod("a").Status; !reflect.DeepEqual(got, want) {
		r.Errorf("held status %v, want %v", got, want)
	}
}
