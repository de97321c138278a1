package patch

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"watchlab/loadgen/apiserver/resources"
)

// rules are where resources differ in how they are written. They are
// kube-apiserver's of v1.36, see the strategies in its pkg/registry.
type rules struct {
	generation                  bool
	alsoLabels, alsoAnnotations bool
	createOnUpdate              bool
	insistOnVersion             bool
	statusKeeps                 string
	name                        apivalidation.ValidateNameFunc
}

// Values of rules.statusKeeps beside the empty one.
const (
	allMetadata = "metadata"
	labels      = "labels"
	owners      = "ownerReferences"
)

// custom are the rules of all custom resources.
var custom = &rules{generation: true, insistOnVersion: true, statusKeeps: allMetadata, name: apivalidation.NameIsDNSSubdomain}

// others are the rules of what the table doesn't have.
var others = &rules{name: apivalidation.NameIsDNSSubdomain}

func rulesOf(res *resources.Resource) *rules {
	if res.Custom != nil {
		return custom
	}
	if r, ok := table[res.GVR.GroupResource()]; ok {
		return r
	}
	return others
}

var table = func() map[schema.GroupResource]*rules {
	t := make(map[schema.GroupResource]*rules)
	set := func(group, names string, change func(*rules)) {
		for _, name := range strings.Fields(names) {
			gr := schema.GroupResource{Group: group, Resource: name}
			if t[gr] == nil {
				t[gr] = &rules{name: apivalidation.NameIsDNSSubdomain}
			}
			change(t[gr])
		}
	}
	generation := func(r *rules) { r.generation = true }
	set("", "pods podtemplates replicationcontrollers", generation)
	set("apps", "daemonsets deployments replicasets statefulsets", generation)
	set("batch", "cronjobs jobs", generation)
	set("discovery.k8s.io", "endpointslices", generation)
	set("networking.k8s.io", "ingresses ingressclasses networkpolicies", generation)
	set("policy", "poddisruptionbudgets", generation)
	set("scheduling.k8s.io", "priorityclasses", generation)
	set("resource.k8s.io", "resourceslices deviceclasses devicetaintrules", generation)
	set("flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations", generation)
	set("apiextensions.k8s.io", "customresourcedefinitions", generation)
	set("admissionregistration.k8s.io", "mutatingwebhookconfigurations validatingwebhookconfigurations "+
		"validatingadmissionpolicies validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings", generation)
	set("apps", "deployments", func(r *rules) { r.alsoAnnotations = true })
	set("discovery.k8s.io", "endpointslices", func(r *rules) { r.alsoLabels = true })

	creates := func(r *rules) { r.createOnUpdate = true }
	set("", "endpoints events limitranges services", creates)
	set("events.k8s.io", "events", creates)
	set("coordination.k8s.io", "leases leasecandidates", creates)
	set("node.k8s.io", "runtimeclasses", creates)
	set("rbac.authorization.k8s.io", "roles rolebindings clusterroles clusterrolebindings", creates)

	insists := func(r *rules) { r.insistOnVersion = true }
	set("coordination.k8s.io", "leases leasecandidates", insists)
	set("node.k8s.io", "runtimeclasses", insists)
	set("policy", "poddisruptionbudgets", insists)
	set("storage.k8s.io", "csidrivers csinodes csistoragecapacities volumeattachments", insists)
	set("certificates.k8s.io", "clustertrustbundles podcertificaterequests", insists)
	set("storagemigration.k8s.io", "storageversionmigrations", insists)
	set("internal.apiserver.k8s.io", "storageversions", insists)
	set("apiextensions.k8s.io", "customresourcedefinitions", insists)
	set("admissionregistration.k8s.io", "mutatingwebhookconfigurations validatingwebhookconfigurations "+
		"validatingadmissionpolicies validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings", insists)

	keepsMetadata := func(r *rules) { r.statusKeeps = allMetadata }
	set("flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations", keepsMetadata)
	set("networking.k8s.io", "servicecidrs", keepsMetadata)
	set("resource.k8s.io", "resourceclaims devicetaintrules", keepsMetadata)
	set("storage.k8s.io", "volumeattachments", keepsMetadata)
	set("storagemigration.k8s.io", "storageversionmigrations", keepsMetadata)
	set("admissionregistration.k8s.io", "validatingadmissionpolicies", keepsMetadata)
	set("apps", "deployments", func(r *rules) { r.statusKeeps = labels })
	set("", "pods", func(r *rules) { r.statusKeeps = owners })

	set("", "namespaces services", func(r *rules) { r.name = apivalidation.NameIsDNSLabel })
	set("rbac.authorization.k8s.io", "roles rolebindings clusterroles clusterrolebindings", func(r *rules) { r.name = isPathSegment })
	return t
}()

// isPathSegment is all that is asked of the names of roles: "system:node".
func isPathSegment(name string, _ bool) []string {
	switch {
	case name == "." || name == "..":
		return []string{"may not be '" + name + "'"}
	case strings.Contains(name, "/"):
		return []string{"may not contain '/'"}
	case strings.Contains(name, "%"):
		return []string{"may not contain '%'"}
	}
	return nil
}

// resetFields are the fields that a write to a resource or a subresource of
// it can't set, so that nobody manages them through it.
func resetFields(res *resources.Resource, subresource string) map[fieldpath.APIVersion]fieldpath.Filter {
	set := fieldpath.NewSet()
	switch {
	case subresource == resources.Status:
		set.Insert(fieldpath.MakePathOrDie("spec"))
		switch rulesOf(res).statusKeeps {
		case allMetadata:
			set.Insert(fieldpath.MakePathOrDie("metadata"))
		case labels:
			set.Insert(fieldpath.MakePathOrDie("metadata", "labels"))
		case owners:
			set.Insert(fieldpath.MakePathOrDie("metadata", "deletionTimestamp"))
			set.Insert(fieldpath.MakePathOrDie("metadata", "ownerReferences"))
		}
	case subresource == "" && res.HasStatus():
		set.Insert(fieldpath.MakePathOrDie("status"))
	default:
		return nil
	}
	return fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(res.GroupVersion().String()): set,
	})
}

// prepareForCreate drops what a new object can't have and gives it what each
// one has.
func prepareForCreate(res *resources.Resource, obj runtime.Object, m metav1.Object, now metav1.Time) {
	if res.HasStatus() {
		setStatus(obj, nil)
	}
	if rulesOf(res).generation {
		m.SetGeneration(1)
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
	case *corev1.Secret:
		// Of an apply; what a body leaves out is its sender's.
		canonical(o)
	case *corev1.Namespace:
		o.Status.Phase = corev1.NamespaceActive
		if o.Labels == nil {
			o.Labels = make(map[string]string)
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
	case *corev1.PersistentVolume:
		o.Status.Phase = corev1.VolumePending
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimPending
	}
}

// qosClass is Guaranteed for a pod whose containers have limits of CPU and
// memory and ask for no less, BestEffort if none of them has or asks for any,
// and Burstable in between.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	best, guaranteed := true, true
	for _, c := range slices.Concat(spec.Containers, spec.InitContainers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := c.Resources.Limits[name], c.Resources.Requests[name]
			if !limit.IsZero() || !request.IsZero() {
				best = false
			}
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case best:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// prepareForUpdate puts back what the request can't write and raises the
// generation if something else has changed than metadata and status.
func prepareForUpdate(res *resources.Resource, subresource string, obj, old runtime.Object) {
	switch {
	case subresource == resources.Status:
		keepAllButStatus(obj, old, rulesOf(res).statusKeeps)
		return
	case res.HasStatus():
		setStatus(obj, old)
	}
	r := rulesOf(res)
	if !r.generation {
		return
	}
	m, oldMeta := obj.(metav1.Object), old.(metav1.Object)
	changed := !sameSpec(obj, old, res.HasStatus()) ||
		r.alsoLabels && !apiequality.Semantic.DeepEqual(m.GetLabels(), oldMeta.GetLabels()) ||
		r.alsoAnnotations && !apiequality.Semantic.DeepEqual(m.GetAnnotations(), oldMeta.GetAnnotations())
	if changed {
		m.SetGeneration(oldMeta.GetGeneration() + 1)
	}
}

// setStatus gives an object the status of another one, which they share from
// then on, or none at all.
func setStatus(obj, from runtime.Object) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
		if from, ok := from.(*unstructured.Unstructured); ok {
			if status, ok := from.Object["status"]; ok {
				u.Object["status"] = status
			}
		}
		return
	}
	to := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !to.IsValid() {
		return
	}
	if from == nil {
		to.SetZero()
		return
	}
	to.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
}

// keepAllButStatus makes an object a copy of another one, except for the
// status, the managed fields, and as much of metadata as may be written beside
// a status.
func keepAllButStatus(obj, old runtime.Object, keeps string) {
	m := obj.(metav1.Object)
	oldCopy := old.DeepCopyObject()
	oldMeta := oldCopy.(metav1.Object)
	switch keeps {
	case labels:
		m.SetLabels(oldMeta.GetLabels())
	case owners:
		m.SetOwnerReferences(oldMeta.GetOwnerReferences())
		m.SetDeletionTimestamp(oldMeta.GetDeletionTimestamp())
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		status, has := u.Object["status"]
		metadata := u.Object["metadata"]
		managed := m.GetManagedFields()
		u.Object = oldCopy.(*unstructured.Unstructured).Object
		if delete(u.Object, "status"); has {
			u.Object["status"] = status
		}
		if keeps != allMetadata {
			u.Object["metadata"] = metadata
		}
		u.SetManagedFields(managed)
		return
	}
	if keeps == allMetadata {
		managed := m.GetManagedFields()
		setMetadata(obj, oldCopy)
		m.SetManagedFields(managed)
	}
	to, from := reflect.ValueOf(obj).Elem(), reflect.ValueOf(oldCopy).Elem()
	for i := range to.NumField() {
		if f := to.Type().Field(i); !f.Anonymous && f.Name != "Status" {
			to.Field(i).Set(from.Field(i))
		}
	}
}

func setMetadata(obj, from runtime.Object) {
	reflect.ValueOf(obj).Elem().FieldByName("ObjectMeta").Set(reflect.ValueOf(from).Elem().FieldByName("ObjectMeta"))
}

// sameSpec tells whether two objects differ in metadata and, if it is written
// elsewhere, in the status alone.
func sameSpec(a, b runtime.Object, butStatus bool) bool {
	if ua, ok := a.(*unstructured.Unstructured); ok {
		ub, ok := b.(*unstructured.Unstructured)
		return ok && covers(ua.Object, ub.Object, butStatus) && covers(ub.Object, ua.Object, butStatus)
	}
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		f := va.Type().Field(i)
		if f.Anonymous || butStatus && f.Name == "Status" {
			continue
		}
		if !apiequality.Semantic.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// covers tells whether b has all that a has, metadata apart.
func covers(a, b map[string]any, butStatus bool) bool {
	for k, v := range a {
		if k == "metadata" || k == "apiVersion" || butStatus && k == "status" {
			continue
		}
		if other, ok := b[k]; !ok || !apiequality.Semantic.DeepEqual(v, other) {
			return false
		}
	}
	return true
}

// standardFinalizers are those without a domain that built-in kinds may have.
var standardFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

// validateMeta returns what is wrong with the metadata of a new object, or of
// one that is to take old's place.
func validateMeta(res *resources.Resource, m, old metav1.Object) field.ErrorList {
	path := field.NewPath("metadata")
	name := rulesOf(res).name
	if old != nil {
		name = isPathSegment
	}
	errs := apivalidation.ValidateObjectMetaAccessor(m, res.Namespaced, name, path)
	if res.Typed {
		for i, f := range m.GetFinalizers() {
			if !strings.Contains(f, "/") && !slices.Contains(standardFinalizers, f) {
				errs = append(errs, field.Invalid(path.Child("finalizers").Index(i), f, "name is neither a standard finalizer name nor is it fully qualified"))
			}
		}
	}
	if old != nil {
		// A real server does it for all kinds and again for each, and so says twice
		// what is wrong.
		wrong := apivalidation.ValidateObjectMetaAccessorUpdate(m, old, path)
		errs = append(append(errs, wrong...), wrong...)
	}
	return errs
}
