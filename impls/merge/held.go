package merge

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podPacker packs pods without their status.
var podPacker = newPacker[v1.Pod](mapsOf[v1.ResourceName, resource.Quantity]())

// held is a pod of the merger: pod with another status. Neither is written to once it is held, so
// that it can be read without a lock. They share memory with received pods, except annotations.
type held struct {
	pod    *v1.Pod
	status *v1.PodStatus
	body   *body
}

// body is a packed copy of a held pod without its status. A pod with one status change is likely to
// have more. From the second on, the rest of the pod is copied from the body, at a fraction of the
// cost. The body doubles the memory of the pod until another field changes.
//
// The sender owns it; there is one sender at a time.
type body struct {
	sent   int
	packed *packed[v1.Pod]
}

// copy returns a deep copy of the pod.
func (h held) copy() *v1.Pod {
	if h.body != nil {
		if h.body.sent++; h.body.sent == 2 {
			bare := *h.pod
			bare.Status = v1.PodStatus{}
			h.body.packed = podPacker.Pack(&bare)
		}
		if h.body.packed != nil {
			out := h.body.packed.Copy()
			h.status.DeepCopyInto(&out.Status)
			return out
		}
	}
	out := new(v1.Pod)
	out.TypeMeta = h.pod.TypeMeta
	h.pod.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	h.pod.Spec.DeepCopyInto(&out.Spec)
	h.status.DeepCopyInto(&out.Status)
	return out
}
