package conformance

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls/merge"
)

// knownVersions: a version says nothing about a pod of another UID or source, and it is the version
// received last that counts.
func (r *rig) knownVersions() {
	for _, source := range []string{merge.APISource, merge.FileSource} {
		pod := newPod("a")
		before := pod.DeepCopy()
		r.expect(r.mergeFrom(source, merge.SET, pod, newPod("b")), "ADD "+source+" a b")
		other := newPod("c")
		other.ResourceVersion = pod.ResourceVersion
		r.expect(r.mergeFrom(source, merge.ADD, other), "ADD "+source+" c")
		r.expect(r.mergeFrom(source, merge.ADD, changed(pod, newImage)), "UPDATE "+source+" a")
		r.expect(r.mergeFrom(source, merge.ADD, before), "UPDATE "+source+" a")
	}
	pod := newPod("d")
	r.merge(merge.SET, pod)
	r.expect(r.mergeFrom("http", merge.SET, pod.DeepCopy()), "ADD http d")
}

// bigFreshLists: lists with unknown pointers, with the same and another version,
// with changes and duplicates.
func (r *rig) bigFreshLists() {
	const n = 150
	for _, source := range []string{merge.APISource, merge.FileSource} {
		pods := make([]*v1.Pod, n)
		for i := range pods {
			pods[i] = newPod(fmt.Sprintf("%03d", i))
		}
		r.mergeFrom(source, merge.SET, pods...)
		fresh := func(change func(*v1.Pod, ...func(*v1.Pod)) *v1.Pod) []*v1.Pod {
			for i := range pods {
				pods[i] = change(pods[i])
			}
			return slices.Clone(pods)
		}
		copied := func(pod *v1.Pod, _ ...func(*v1.Pod)) *v1.Pod { return pod.DeepCopy() }
		r.expect(r.mergeFrom(source, merge.SET, fresh(copied)...))
		r.expect(r.mergeFrom(source, merge.SET, fresh(changed)...))
		fresh(changed)
		pods[3], pods[140] = changed(pods[3], newMessage), changed(pods[140], newMessage)
		pods[77], pods[90] = changed(pods[77], newImage), changed(pods[90], markDeleted)
		r.expect(r.mergeFrom(source, merge.SET, pods...),
			"UPDATE "+source+" 077", "DELETE "+source+" 090", "RECONCILE "+source+" 003 140")
		// One of a UID that came before by another name, with another status.
		twice := append(fresh(changed), changed(pods[5], named("twin"), newMessage))
		r.expect(r.mergeFrom(source, merge.UPDATE, twice...), "RECONCILE "+source+" 005")
		pods[5] = changed(twice[n], newImage)
		r.expect(r.mergeFrom(source, merge.SET, fresh(changed)[1:]...), "REMOVE "+source+" 000", "UPDATE "+source+" 005")
	}
}
