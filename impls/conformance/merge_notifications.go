package conformance

import (
	"time"

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

// mirrorAnnotation: the annotation is kept once set, and added with the first compared change.
func (r *rig) mirrorAnnotation() {
	mirror := func() (string, bool) {
		value, ok := r.state()["api/a"].Annotations[merge.ConfigMirrorAnnotation]
		return value, ok
	}
	pod := newPod("a")
	r.merge(merge.SET, pod)
	pod = changed(pod, annotated(merge.ConfigMirrorAnnotation, "one"))
	r.expect(r.merge(merge.SET, pod))
	if value, ok := mirror(); ok {
		r.Errorf("mirror annotation %q came without a change", value)
	}
	pod = changed(pod, newImage)
	r.expect(r.merge(merge.SET, pod), "UPDATE api a")
	if value, _ := mirror(); value != "one" {
		r.Errorf("mirror annotation %q, want one", value)
	}
	pod = changed(pod, newImage, annotated(merge.ConfigMirrorAnnotation, "two"))
	r.expect(r.merge(merge.SET, pod), "UPDATE api a")
	pod = changed(pod, newImage, unannotated(merge.ConfigMirrorAnnotation))
	r.expect(r.merge(merge.SET, pod), "UPDATE api a")
	if value, _ := mirror(); value != "one" {
		r.Errorf("mirror annotation %q, want the first", value)
	}
}
