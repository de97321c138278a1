package merge

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"watchlab/impls/internal/structural"
)

// podPacker packs pods without their status.
var podPacker = newPodPacker()

func newPodPacker() *structural.Packer[v1.Pod] {
	p, err := structural.NewPacker[v1.Pod](
		structural.PackMap[v1.ResourceName, resource.Quantity](),
		structural.Share[time.Time](),
	)
	if err != nil {
		// Met when the program starts, with a release of k8s.io/api whose pods
		// have something new in them.
		panic(fmt.Sprintf("merge: %v", err))
	}
	return p
}

// body is what stays of a pod while nothing but its status changes. A pod of
// which one status has been told is likely to have more of them; from the
// second on, its body is copied from a packed copy, at a fraction of the cost.
// That takes the pod's memory once more for as long as the body lasts.
//
// It belongs to whoever sends; there is one sender at a time.
type body struct {
	told   int
	packed *structural.Packed[v1.Pod]
}

// copyPod returns a deep copy of a held pod. The body may be nil.
func copyPod(pod *v1.Pod, b *body) *v1.Pod {
	if b == nil {
		return pod.DeepCopy()
	}
	if b.told++; b.told == 2 {
		bare := *pod
		bare.Status = v1.PodStatus{}
		b.packed = podPacker.Pack(&bare)
	}
	if b.packed == nil {
		return pod.DeepCopy()
	}
	out := b.packed.Copy()
	pod.Status.DeepCopyInto(&out.Status)
	return out
}
