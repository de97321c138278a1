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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"watchlab/loadgen/apiserver/resources"
)

// rules are the write rules that differ between resources, from the strategies in
// pkg/registry of kube-apiserver v1.36.
type rules struct {
	// generation: objects have a generation, which rises with every change outside
	// metadata and status.
	generation bool
	// alsoLabels and alsoAnnotations: a change of labels or annotations raises it, too.
	alsoLabels, alsoAnnotations bool
	// createOnUpdate: PUT creates a missing object.
	createOnUpdate bool
	// insistOnVersion: PUT requires a resourceVersion.
	insistOnVersion bool
	// statusKeeps is the part of metadata that a status write does not change.
	statusKeeps string
	// name validates names.
	name apivalidation.ValidateNameFunc
}

// Values of rules.statusKeeps; it may be empty.
const (
	allMetadata = "metadata"
	labels      = "labels"
	owners      = "ownerReferences"
)

// custom are the rules of custom resources.
var custom = &rules{generation: true, insistOnVersion: true, statusKeeps: allMetadata, name: apivalidation.NameIsDNSSubdomain}

// others are the rules of resources that the table lacks.
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

// isPathSegment validates the names of roles, such as "system:node".
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

// resetFields returns the fields that a write to a resource or subresource cannot
// set and whose managers it therefore does not record.
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

// prepareForCreate clears the status of a new object and sets its initial fields.
func prepareForCreate(res *resources.Resource, obj object, now metav1.Time) {
	if res.HasStatus() {
		setStatus(obj, nil)
	}
	if rulesOf(res).generation {
		obj.SetGeneration(1)
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
		// For an apply; the defaults of a body belong to its field manager.
		canonical(o)
	case *corev1.Namespace:
		o.Status.Phase = corev1.NamespaceActive
		canonical(o)
	case *corev1.PersistentVolume:
		o.Status.Phase = corev1.VolumePending
	case *corev1.PersistentVolumeClaim:
		o.Status.Phase = corev1.ClaimPending
	}
}

// qosClass returns Guaranteed if all containers have limits of CPU and memory equal to
// their requests, BestEffort if none has limits or requests, else Burstable.
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

// prepareForUpdate restores fields that the request must not write. It raises the
// generation if anything but metadata and status changed.
func prepareForUpdate(res *resources.Resource, subresource string, obj, old object) {
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
	if !sameSpec(obj, old, res.HasStatus()) ||
		r.alsoLabels && !apiequality.Semantic.DeepEqual(obj.GetLabels(), old.GetLabels()) ||
		r.alsoAnnotations && !apiequality.Semantic.DeepEqual(obj.GetAnnotations(), old.GetAnnotations()) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}

// setStatus sets an object's status to that of another object, shared, or clears it.
func setStatus(obj, from object) {
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

// keepAllButStatus restores everything from the old object except the status, the
// managed fields, and the metadata that a status write may change.
func keepAllButStatus(obj, old object, keeps string) {
	old = old.DeepCopyObject().(object) // of the same type
	managed := obj.GetManagedFields()
	switch keeps {
	case labels:
		obj.SetLabels(old.GetLabels())
	case owners:
		obj.SetOwnerReferences(old.GetOwnerReferences())
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		status, has := u.Object["status"]
		metadata := u.Object["metadata"]
		u.Object = old.(*unstructured.Unstructured).Object
		if delete(u.Object, "status"); has {
			u.Object["status"] = status
		}
		if keeps != allMetadata {
			u.Object["metadata"] = metadata
		}
		u.SetManagedFields(managed)
		return
	}
	to, from := reflect.ValueOf(obj).Elem(), reflect.ValueOf(old).Elem()
	if keeps == allMetadata {
		to.FieldByName("ObjectMeta").Set(from.FieldByName("ObjectMeta"))
		obj.SetManagedFields(managed)
	}
	for i := range to.NumField() {
		if f := to.Type().Field(i); !f.Anonymous && f.Name != "Status" {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// sameSpec compares two objects without metadata and, with butStatus, without status.
func sameSpec(a, b object, butStatus bool) bool {
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

// covers reports whether b has all fields of a, except metadata.
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

// standardFinalizers are the finalizers without a domain that built-in kinds accept.
var standardFinalizers = []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}

// validateMeta returns the errors in the metadata of an object that is new or replaces
// old.
func validateMeta(res *resources.Resource, m, old object) field.ErrorList {
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
		// A real server validates twice, for all kinds and for each, and repeats errors.
		wrong := apivalidation.ValidateObjectMetaAccessorUpdate(m, old, path)
		errs = append(append(errs, wrong...), wrong...)
	}
	return errs
}
