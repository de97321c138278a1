package conformance

import (
	"reflect"
	"slices"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"watchlab/impls/merge"
)

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
		merged := Async(func() error {
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
