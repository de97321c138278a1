package merge

import v1 "k8s.io/api/core/v1"

// held is a pod of the merger: pod with another status. Neither is written to once it is held, so
// that it can be read without a lock. They share memory with received pods, except annotations.
type held struct {
	pod    *v1.Pod
	status *v1.PodStatus
}

// copy returns a deep copy of the pod.
func (h held) copy() *v1.Pod {
	out := new(v1.Pod)
	out.TypeMeta = h.pod.TypeMeta
	h.pod.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	h.pod.Spec.DeepCopyInto(&out.Spec)
	h.status.DeepCopyInto(&out.Status)
	return out
}
