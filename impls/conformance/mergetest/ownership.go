package mergetest

import (
	"reflect"
	"slices"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"watchlab/impls/conformance"
	"watchlab/impls/merge"
)

// receiverWrites: writes of the receiver to its own pods affect neither the state
// nor later notifications. (The rig's receiver overwrites all memory that it owns.)
func (r *rig) receiverWrites() {
	sources := []*v1.Pod{newPod("a"), newPod("b"), newPod("c")}
	r.merge(merge.SET, sources...)
	seen := make(map[string]string)
	for place, pod := range r.state() {
		seen[place] = pod.Annotations[merge.ConfigFirstSeenAnnotation]
	}
	first := slices.Clone(sources)
	// Change the status several times: a variant may prepare for the next one.
	for range 4 {
		sources[0] = changed(sources[0], newMessage)
		r.expect(r.merge(merge.SET, sources...), "RECONCILE api a")
	}
	sources[1] = changed(sources[1], newImage)
	r.expect(r.merge(merge.SET, sources...), "UPDATE api b")
	sources[2] = changed(sources[2], markDeleted)
	r.expect(r.merge(merge.SET, sources...), "DELETE api c")

	want := make(map[string]*v1.Pod)
	for i, pod := range sources {
		place := "api/" + string(pod.UID)
		held := withLocal(pod, "api", seen[place])
		held.ResourceVersion, held.Generation = first[i].ResourceVersion, first[i].Generation
		want[place] = held
	}
	for range 2 {
		if diff := cmp.Diff(want, r.state()); diff != "" {
			r.Errorf("held (-want +got):\n%s", diff)
		}
	}
	// By pointers, versions and contents.
	r.expect(r.merge(merge.SET, sources...))
	fresh := make([]*v1.Pod, len(sources))
	for i, pod := range sources {
		fresh[i] = pod.DeepCopy()
	}
	r.expect(r.merge(merge.SET, fresh...))
	for i, pod := range fresh {
		fresh[i] = changed(pod)
	}
	r.expect(r.merge(merge.SET, fresh...))

	fresh[0] = changed(fresh[0], newMessage)
	want["api/a"].Status = fresh[0].Status
	got := r.merge(merge.SET, fresh...)
	r.expect(got, "RECONCILE api a")
	if diff := cmp.Diff(want["api/a"], got[0].Pods[0]); diff != "" {
		r.Errorf("sent after the receiver wrote (-want +got):\n%s", diff)
	}
	got = r.merge(merge.SET)
	r.expect(got, "REMOVE api a b c")
	for _, pod := range got[0].Pods {
		if diff := cmp.Diff(want["api/"+string(pod.UID)], pod); diff != "" {
			r.Errorf("removed after the receiver wrote (-want +got):\n%s", diff)
		}
	}
}

// sendEverything makes the merger send realistic pods in every kind of notification. It passes each
// notification to check and returns the pods sent to the merger.
func (r *rig) sendEverything(check func(merge.PodUpdate)) (received []*v1.Pod) {
	list := []*v1.Pod{RealisticPod(1), RealisticPod(2), RealisticPod(3)}
	next := func(op merge.Op, i int, change func(*v1.Pod)) {
		if change != nil {
			list[i] = list[i].DeepCopy()
			change(list[i])
			newVersion(list[i])
		}
		received = append(received, list...)
		merged := conformance.Async(func() error {
			defer r.Sync()
			return r.Merge(r.ctx, merge.APISource, merge.PodUpdate{Op: op, Pods: list})
		})
		for update := range r.Updates() {
			check(update)
			if update.Source == merge.AllSource {
				break
			}
		}
		if err := merged.Wait(); err != nil {
			r.Error(err)
		}
	}
	next(merge.SET, 0, nil)
	for i := range 4 {
		next(merge.SET, i%2, func(pod *v1.Pod) { pod.Status.Message += "+" })
	}
	next(merge.UPDATE, 1, newImage)
	next(merge.UPDATE, 1, newMessage)
	next(merge.SET, 2, markDeleted)
	next(merge.REMOVE, 2, nil)
	return received
}

// noSharedMemory: two sent pods share no writable memory, nor do a sent and a
// received pod: none changes when another is overwritten.
func (r *rig) noSharedMemory() {
	var pods, before []*v1.Pod
	keep := func(list []*v1.Pod) {
		for _, pod := range list {
			pods, before = append(pods, pod), append(before, pod.DeepCopy())
		}
	}
	received := r.sendEverything(func(update merge.PodUpdate) { keep(update.Pods) })
	sent := len(pods)
	keep(received)
	for i, pod := range pods[:sent] {
		scribble(pod)
		before[i] = pod.DeepCopy()
		for j, other := range pods {
			if !reflect.DeepEqual(before[j], other) {
				r.Fatalf("%s, sent as number %d, shares memory with number %d (-before +after):\n%s",
					pod.UID, i, j, cmp.Diff(before[j], other))
			}
		}
	}
	if sent < 20 {
		r.Errorf("%d pods were sent", sent)
	}
}

// nothingCopied: a shared pod refers to the memory of a received pod, except its annotations.
func (r *rig) nothingCopied() {
	var sent []*v1.Pod
	received := r.sendEverything(func(update merge.PodUpdate) { sent = append(sent, update.Pods...) })
	addresses := func(pod *v1.Pod) []any {
		return []any{
			reflect.ValueOf(pod.Labels).Pointer(), &pod.ManagedFields[0], &pod.OwnerReferences[0],
			&pod.Spec.Containers[0], &pod.Spec.Volumes[0], pod.Spec.TerminationGracePeriodSeconds,
			&pod.Status.Conditions[0], &pod.Status.ContainerStatuses[0], pod.Status.StartTime,
		}
	}
	known := make(map[any]bool)
	for _, pod := range received {
		for _, at := range addresses(pod) {
			known[at] = true
		}
	}
	for _, pod := range sent {
		for i, at := range addresses(pod) {
			if !known[at] {
				r.Errorf("%s: address %d is that of a copy", pod.UID, i)
			}
		}
	}
	if len(sent) < 20 {
		r.Errorf("%d pods were sent", len(sent))
	}
}

// receivedUnwritten: the merger does not change received pods.
func (r *rig) receivedUnwritten() {
	bare := changed(newPod("bare"), func(p *v1.Pod) { p.Annotations = nil })
	versions := []*v1.Pod{
		newPod("a"), changed(newPod("a"), newMessage), changed(newPod("a"), newImage),
		changed(newPod("a"), annotated(merge.ConfigFirstSeenAnnotation, "x")), changed(newPod("a"), markDeleted),
	}
	for _, pod := range versions {
		before, bareBefore := pod.DeepCopy(), bare.DeepCopy()
		r.merge(merge.SET, pod, bare)
		if diff := cmp.Diff(before, pod); diff != "" {
			r.Errorf("a received pod was written to (-before +after):\n%s", diff)
		}
		if !reflect.DeepEqual(bareBefore, bare) {
			r.Error("a received pod without annotations was written to")
		}
	}
	list := []*v1.Pod{bare, versions[0]}
	before := slices.Clone(list)
	r.merge(merge.SET, list...)
	if !slices.Equal(before, list) {
		r.Error("a received list was written to")
	}
}
