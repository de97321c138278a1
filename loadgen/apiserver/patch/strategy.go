package patch

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"watchlab/loadgen/apiserver/resources"
)

// What the strategies of pkg/registry do beside the rules of all kinds, in kube-apiserver v1.37.2.

// protection returns the finalizer that admission gives to a volume, or "".
func protection(res *resources.Resource) string {
	for _, word := range rulesOf(res) {
		if f, ok := strings.CutPrefix(word, "protected:"); ok {
			return f
		}
	}
	return ""
}

// createBuiltin sets the initial fields of a new object of a built-in kind.
func (x *edit) createBuiltin(obj object, now metav1.Time) {
	if f := protection(x.res); f != "" && x.InUse != nil && !slices.Contains(obj.GetFinalizers(), f) {
		obj.SetFinalizers(append(obj.GetFinalizers(), f))
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClass(&o.Spec)}
		if len(o.Spec.SchedulingGates) > 0 {
			o.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, LastTransitionTime: now,
				Reason: corev1.PodReasonSchedulingGated, Message: "Scheduling is blocked due to non-empty scheduling gates",
			}}
		}
	case *corev1.Namespace:
		if !slices.Contains(o.Spec.Finalizers, corev1.FinalizerKubernetes) {
			o.Spec.Finalizers = append(o.Spec.Finalizers, corev1.FinalizerKubernetes)
		}
		o.Status.Phase = corev1.NamespaceActive
		canonical(o)
	case *corev1.PersistentVolume:
		o.Status.Phase, o.Status.LastPhaseTransitionTime = corev1.VolumePending, &now
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimPending
	case *appsv1.DaemonSet:
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, appsv1.DeprecatedTemplateGeneration, "1")
	case *batchv1.Job:
		if !ptr.Deref(o.Spec.ManualSelector, false) {
			selectJob(o)
		}
	case *certificatesv1.CertificateSigningRequest:
		if o.Spec.Username, o.Spec.UID, o.Spec.Groups, o.Spec.Extra = "", "", nil, nil; x.User != nil {
			o.Spec.Username, o.Spec.UID, o.Spec.Groups = x.User.Username, x.User.UID, x.User.Groups
		}
	}
}

// selectJob makes a job select the pods of its template by its uid.
func selectJob(o *batchv1.Job) {
	for key, value := range map[string]string{
		"job-name": o.Name, batchv1.JobNameLabel: o.Name, "controller-uid": string(o.UID), batchv1.ControllerUidLabel: string(o.UID),
	} {
		if o.Spec.Template.Labels[key] == "" {
			metav1.SetMetaDataLabel(&o.Spec.Template.ObjectMeta, key, value)
		}
	}
	pointTo(&o.Spec.Selector, metav1.LabelSelector{})
	if labels := o.Spec.Selector.MatchLabels; labels[batchv1.ControllerUidLabel] == "" {
		metav1.AddLabelToSelector(o.Spec.Selector, batchv1.ControllerUidLabel, string(o.UID))
	}
}

// updateBuiltin restores what the request must not write, by the subresource.
func updateBuiltin(subresource string, obj, old object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		was := old.(*corev1.Pod)
		if subresource == resources.Status || subresource == "" {
			byDefault(&o.Status.QOSClass, was.Status.QOSClass)
			o.Spec.Priority, o.Spec.PreemptionPolicy = cmp.Or(o.Spec.Priority, was.Spec.Priority), cmp.Or(o.Spec.PreemptionPolicy, was.Spec.PreemptionPolicy)
			return
		}
		was = was.DeepCopy()
		was.ManagedFields, was.ResourceVersion, was.UID = o.ManagedFields, o.ResourceVersion, o.UID
		o.ObjectMeta = was.ObjectMeta
		if subresource == resources.Ephemeral {
			was.Spec.EphemeralContainers = o.Spec.EphemeralContainers
		} else {
			resize(was.Spec.Containers, o.Spec.Containers)
			resize(was.Spec.InitContainers, o.Spec.InitContainers)
			was.Spec.Resources = cmp.Or(o.Spec.Resources, was.Spec.Resources)
		}
		o.Spec = was.Spec
	case *corev1.Namespace:
		if subresource != resources.Finalize {
			o.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
		}
	case *corev1.PersistentVolume:
		was, at := &old.(*corev1.PersistentVolume).Status, &o.Status.LastPhaseTransitionTime
		if *at = cmp.Or(*at, was.LastPhaseTransitionTime); o.Status.Phase != was.Phase && (*at).Equal(was.LastPhaseTransitionTime) {
			*at = new(metav1.Now().Rfc3339Copy())
		}
	case *appsv1.DaemonSet:
		was := old.(*appsv1.DaemonSet)
		n, _ := strconv.Atoi(was.Annotations[appsv1.DeprecatedTemplateGeneration])
		if !apiequality.Semantic.DeepEqual(o.Spec.Template, was.Spec.Template) {
			n++
		}
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, appsv1.DeprecatedTemplateGeneration, strconv.Itoa(n))
	case *certificatesv1.CertificateSigningRequest:
		was := old.(*certificatesv1.CertificateSigningRequest).DeepCopy()
		if o.Spec = was.Spec; subresource == resources.Approval {
			was.Status.Conditions = o.Status.Conditions
			o.Status = was.Status
		}
		for i := range o.Status.Conditions {
			c, now := &o.Status.Conditions[i], metav1.Now().Rfc3339Copy()
			c.LastUpdateTime, c.LastTransitionTime = cmp.Or(c.LastUpdateTime, now), cmp.Or(c.LastTransitionTime, now)
		}
	}
}

// resize takes the resources of containers.
func resize(to, from []corev1.Container) {
	for i := range to {
		for _, c := range from {
			if c.Name == to[i].Name {
				to[i].Resources, to[i].ResizePolicy = c.Resources, c.ResizePolicy
			}
		}
	}
}

// validateBuiltin returns the errors of changes that a built-in kind forbids.
func validateBuiltin(res *resources.Resource, subresource string, obj, old object) (errs field.ErrorList) {
	forbid := func(path, why string, args ...any) {
		errs = append(errs, field.Forbidden(field.NewPath(path), fmt.Sprintf(why, args...)))
	}
	if o, ok := obj.(*certificatesv1.CertificateSigningRequest); ok {
		decided := 0
		for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
			is := func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t }
			was, has := slices.ContainsFunc(old.(*certificatesv1.CertificateSigningRequest).Status.Conditions, is), slices.ContainsFunc(o.Status.Conditions, is)
			if has && t != certificatesv1.CertificateFailed {
				decided++
			}
			if was && !has {
				forbid("status.conditions", "updates may not remove a condition of type %q", t)
			} else if has && !was && subresource != resources.Approval && t != certificatesv1.CertificateFailed {
				forbid("status.conditions", "updates may not add a condition of type %q", t)
			}
		}
		if decided > 1 {
			const approved, denied = `conditions[{"type": "Approved"}]`, `conditions[{"type": "Denied"}]`
			errs = append(errs, field.Invalid(field.NewPath("status", "conditions"), "{"+approved+", "+denied+"}", "must specify at most one of: `"+approved+"`, `"+denied+"`"))
		}
	}
	if ns, ok := obj.(*corev1.Namespace); ok && subresource == resources.Status && ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceActive {
		errs = append(errs, field.Invalid(field.NewPath("status", "Phase"), ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty"))
	}
	if pod, ok := obj.(*corev1.Pod); ok && subresource == resources.Resize && qosClass(&pod.Spec) != old.(*corev1.Pod).Status.QOSClass {
		errs = append(errs, field.Invalid(field.NewPath("spec"), qosClass(&pod.Spec), "Pod QOS Class may not change as a result of resizing"))
	}
	if subresource != "" {
		return errs
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		errs = validatePod(o, old.(*corev1.Pod))
	case *corev1.Node:
		was := &old.(*corev1.Node).Spec
		if was.ProviderID != "" && o.Spec.ProviderID != was.ProviderID {
			errs = append(errs, field.Invalid(field.NewPath("spec", "providerID"), nil, "field cannot be modified once set"))
		}
		if was.PodCIDR != "" && o.Spec.PodCIDR != was.PodCIDR {
			forbid("spec.podCIDRs", `node updates may not change podCIDR except from "" to valid`)
		}
	case *schedulingv1.PriorityClass:
		if o.Value != old.(*schedulingv1.PriorityClass).Value {
			forbid("value", "may not be changed in an update.")
		}
	case *corev1.PersistentVolumeClaim:
		is, was := o.DeepCopy(), old.(*corev1.PersistentVolumeClaim)
		if was.Spec.VolumeName == "" {
			is.Spec.VolumeName = ""
		}
		if was.Status.Phase == corev1.ClaimBound {
			is.Spec.VolumeAttributesClassName, is.Spec.Resources.Requests = was.Spec.VolumeAttributesClassName, was.Spec.Resources.Requests
		}
		now, before, got := o.Spec.Resources.Requests.Storage(), was.Spec.Resources.Requests.Storage(), was.Status.Capacity.Storage()
		if now.Cmp(*before) < 0 && now.Cmp(*got) < 0 {
			forbid("spec.resources.requests.storage", "field can not be less than status.capacity")
		}
		if !apiequality.Semantic.DeepEqual(is.Spec, was.Spec) {
			forbid("spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims")
		}
	}
	for _, word := range rulesOf(res) {
		rule, path, _ := strings.Cut(word, ":")
		if rule != "immutable" && rule != "sealed" {
			continue
		}
		is, was := valueAt(obj, path), valueAt(old, path)
		job, isJob := old.(*batchv1.Job)
		switch {
		case apiequality.Semantic.DeepEqual(is, was):
		case isJob && (path == "spec.template" && *job.Spec.Suspend || path == "spec.completions" && *job.Spec.CompletionMode == batchv1.IndexedCompletion):
		case rule == "immutable":
			errs = append(errs, field.Invalid(field.NewPath(path), is, apivalidation.FieldImmutableErrorMsg))
		case ptr.Deref(valueAt(old, "immutable").(*bool), false):
			forbid(path, "field is immutable when `immutable` is set")
		}
	}
	return errs
}

// valueAt returns the field of a typed object at a path in JSON, or nil in a version that has none.
func valueAt(obj object, path string) any {
	v := reflect.ValueOf(obj)
	if index := fieldAt(v.Type(), path); index != nil {
		return follow(v, index).Interface()
	}
	return nil
}

// validatePod returns the errors of an update of a pod. Kube-apiserver adds a difference to the last one.
func validatePod(pod, old *corev1.Pod) (errs field.ErrorList) {
	if apiequality.Semantic.DeepEqual(&pod.Spec, &old.Spec) {
		return nil
	}
	spec, is, was := field.NewPath("spec"), pod.Spec.DeepCopy(), &old.Spec
	if len(is.Containers) != len(was.Containers) || len(is.InitContainers) != len(was.InitContainers) {
		return append(errs, field.Forbidden(spec.Child("containers"), "pod updates may not add or remove containers"))
	}
	for i := range is.Containers {
		is.Containers[i].Image = was.Containers[i].Image
	}
	for i := range is.InitContainers {
		is.InitContainers[i].Image = was.InitContainers[i].Image
	}
	for _, t := range was.Tolerations {
		if !slices.ContainsFunc(is.Tolerations, func(n corev1.Toleration) bool { n.TolerationSeconds = t.TolerationSeconds; return n == t }) {
			errs = append(errs, field.Forbidden(spec.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"))
		}
	}
	if at := spec.Child("activeDeadlineSeconds"); was.ActiveDeadlineSeconds != nil && is.ActiveDeadlineSeconds == nil {
		return append(errs, field.Invalid(at, nil, "must not update from a positive integer to nil value"))
	} else if was.ActiveDeadlineSeconds != nil && *is.ActiveDeadlineSeconds > *was.ActiveDeadlineSeconds {
		return append(errs, field.Invalid(at, *is.ActiveDeadlineSeconds, "must be less than or equal to previous value"))
	}
	is.ActiveDeadlineSeconds = was.ActiveDeadlineSeconds
	is.SchedulingGates, is.Tolerations = was.SchedulingGates, was.Tolerations
	if len(was.SchedulingGates) > 0 { // A gated pod may become more selective, which is not checked.
		is.NodeSelector, is.Affinity = was.NodeSelector, was.Affinity
	}
	if !apiequality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"))
	}
	return errs
}
