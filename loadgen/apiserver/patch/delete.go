package patch

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"watchlab/loadgen/apiserver/resources"
)

// Delete deletes an object if its preconditions hold. An object with finalizers is marked instead,
// until an [Editor.Update] or [Editor.Patch] removes the last one, and so are a namespace and a definition, until the
// caller has deleted their objects. Else the object is gone at once, whatever its grace period and the
// propagation policy.
//
// With Graceful, a pod on a node that has not finished is marked, too, until a deletion with the grace
// period 0, and the propagation policies Foreground and Orphan add the finalizer on which a garbage
// collector acts.
func (e *Editor) Delete(res *resources.Resource, current runtime.Object, options *metav1.DeleteOptions) (Result, error) {
	obj, err := inVersion(res, current)
	if err != nil {
		return Result{}, asStatus(err)
	}
	if p := options.Preconditions; p != nil {
		mismatch := func(field string, want, have any, since string) (Result, error) {
			byKind := schema.GroupResource{Group: res.GVK.Group, Resource: res.GVK.Kind} // as a real server has it
			return Result{}, apierrors.NewConflict(byKind, obj.GetName(), fmt.Errorf("the %s in the precondition (%s) does not match the %s in record (%s). The object might have been %s", field, want, field, have, since))
		}
		if p.UID != nil && *p.UID != obj.GetUID() {
			return mismatch("UID", *p.UID, obj.GetUID(), "deleted and then recreated")
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion() {
			return mismatch("ResourceVersion", *p.ResourceVersion, obj.GetResourceVersion(), "modified")
		}
	}
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && crd.DeletionTimestamp == nil {
		crd.DeletionTimestamp = new(metav1.Now().Rfc3339Copy())
		crd.Finalizers = append(crd.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
		resources.SetCondition(crd, apiextensionsv1.Terminating, true, "InstanceDeletionPending", "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
		return Result{Object: crd}, nil
	}
	if f := protection(res); f != "" && e.InUse != nil && !e.InUse(obj) { // as the controller of the finalizer finds
		obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(has string) bool { return has == f }))
	}
	ns, isNamespace := obj.(*corev1.Namespace)
	if e.Graceful && !isNamespace {
		return deleteGracefully(res, obj, options), nil
	}
	switch {
	case len(obj.GetFinalizers()) == 0 && !isNamespace:
		return Result{Object: obj, Gone: true}, nil
	case obj.GetDeletionTimestamp() != nil:
		return Result{Object: obj, Unchanged: true}, nil
	}
	Mark(obj)
	if isNamespace {
		ns.DeletionGracePeriodSeconds = nil
		ns.Status.Phase = corev1.NamespaceTerminating
	}
	return Result{Object: obj}, nil
}

// deleteGracefully follows k8s.io/apiserver's registry and the strategy of pods (Kubernetes v1.36).
func deleteGracefully(res *resources.Resource, obj object, options *metav1.DeleteOptions) Result {
	marked, grace := obj.GetDeletionTimestamp(), int64(0)
	changed := marked == nil
	pod, isPod := obj.(*corev1.Pod)
	switch old := obj.GetDeletionGracePeriodSeconds(); {
	case !isPod:
	case marked == nil:
		grace = graceOf(pod, options)
	case old != nil:
		// The period can only become shorter.
		if options.GracePeriodSeconds == nil || *options.GracePeriodSeconds >= *old {
			return Result{Object: obj, Unchanged: true}
		}
		grace, changed = *options.GracePeriodSeconds, true
		at, now := marked.Add(time.Duration(grace-*old)*time.Second), time.Now()
		if at.Before(now) {
			at, grace = now, min(grace, 1)
		}
		obj.SetDeletionTimestamp(new(metav1.NewTime(at).Rfc3339Copy()))
		obj.SetDeletionGracePeriodSeconds(&grace)
	}
	if all := finalizersFor(res, obj, options); !sets.New(all...).Equal(sets.New(obj.GetFinalizers()...)) {
		obj.SetFinalizers(all)
		changed = true
	}
	gone := len(obj.GetFinalizers()) == 0 && grace == 0
	if marked == nil && (isPod || !gone) {
		mark(obj, grace)
	}
	if gone {
		return Result{Object: obj, Gone: true, Marked: isPod && changed}
	}
	return Result{Object: obj, Unchanged: !changed}
}

// graceOf returns the grace period of a pod: 0 if no kubelet has to stop it.
func graceOf(pod *corev1.Pod, options *metav1.DeleteOptions) int64 {
	period := pod.Spec.TerminationGracePeriodSeconds
	if options.GracePeriodSeconds != nil {
		period = options.GracePeriodSeconds
	}
	switch {
	case pod.Spec.NodeName == "", pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return 0
	case period == nil:
		return corev1.DefaultTerminationGracePeriodSeconds // which a real server sets on creation
	case *period < 0:
		return 1
	}
	return *period
}

// finalizersFor returns the finalizers of an object that is deleted with options: those for the garbage
// collector change by the options, else by the object, else by the default of its kind.
func finalizersFor(res *resources.Resource, obj object, options *metav1.DeleteOptions) []string {
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	own := ""
	var all []string
	for _, f := range obj.GetFinalizers() {
		if f != orphan && f != foreground {
			all = append(all, f)
		} else if own == "" {
			own = f
		}
	}
	add := own
	switch policy := options.PropagationPolicy; {
	case options.OrphanDependents != nil: //nolint:staticcheck // Clients may still send it.
		if add = ""; *options.OrphanDependents { //nolint:staticcheck // As above.
			add = orphan
		}
	case policy != nil:
		add = map[metav1.DeletionPropagation]string{metav1.DeletePropagationOrphan: orphan, metav1.DeletePropagationForeground: foreground}[*policy]
	case own == "" && rulesOf(res).has("orphans"):
		add = orphan
	}
	if add != "" && !rulesOf(res).has("uncollected") {
		all = append(all, add)
	}
	return all
}

// Mark marks an object as being deleted, now.
func Mark(m resources.Object) { mark(m, 0) }

func mark(m resources.Object, grace int64) {
	m.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second)).Rfc3339Copy()))
	m.SetDeletionGracePeriodSeconds(&grace)
	if m.GetGeneration() > 0 {
		m.SetGeneration(m.GetGeneration() + 1)
	}
}
