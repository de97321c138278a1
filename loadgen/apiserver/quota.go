package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	podresource "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
)

// byStorageClass is in the names of quotas' resources that count the claims of one storage class.
const byStorageClass = ".storageclass.storage.k8s.io/"

// charge adds what an object takes to the quotas of its namespace, or refuses the object, as the plugin ResourceQuota of
// kube-apiserver v1.37.2 does; was is the position of the object that it replaces, 0 for none. A quota limits nothing until a
// controller has written its status. A write that fails later stays charged, until that controller counts again. A dry run
// charges nothing.
func (s *Server) charge(req *request, obj resources.Object, key string, was uint64, dry bool) error {
	if req.http.Method == http.MethodDelete {
		return nil // which may mark the object
	}
	var old resources.Object
	if was > 0 {
		pod, isPod := obj.(*v1.Pod)
		_, isService := obj.(*v1.Service)
		_, isClaim := obj.(*v1.PersistentVolumeClaim)
		if resize := isPod && req.subresource == resources.Resize; !resize && (req.subresource != "" || !isPod && !isService && !isClaim) {
			return nil
		}
		if old, _ = req.log.Get(key); old == nil {
			return nil // It was deleted meanwhile: the write fails.
		}
		if isPod && req.subresource == "" && terminates(pod) == terminates(old.(*v1.Pod)) {
			return nil
		}
	}
	quotas := stored[*v1.ResourceQuota](s, "", "resourcequotas", req.namespace+"/")
	if len(quotas) == 0 {
		return nil
	}
	kind := req.resource.GVR.GroupResource().String()
	add := func(q *v1.ResourceQuota) error {
		if !covers(q, kind, obj) {
			return nil
		}
		taken := usage(kind, obj)
		if old != nil && covers(q, kind, old) {
			before := usage(kind, old)
			for name, n := range taken {
				n.Sub(before[name])
				taken[name] = n
			}
		}
		if err := take(q, kind, obj, taken); err != nil {
			return apierrors.NewForbidden(req.resource.GVR.GroupResource(), obj.GetName(), err)
		}
		return nil
	}
	for _, q := range quotas { // No quota is charged if another refuses.
		if err := add(q.DeepCopy()); err != nil {
			return err
		}
	}
	for _, q := range quotas {
		if dry {
			break
		}
		if err := s.editStatus(q, add); err != nil {
			return err
		}
	}
	return nil
}

// editStatus edits the status of a quota, unless it was deleted meanwhile.
func (s *Server) editStatus(q *v1.ResourceQuota, edit func(*v1.ResourceQuota) error) (err error) {
	c := s.builtin(v1.SchemeGroupVersion.WithResource("resourcequotas"))
	c.edit(store.Origin{By: byAdmission}, q.Namespace+"/"+q.Name, func(current resources.Object) (watch.EventType, resources.Object) {
		changed := current.(*v1.ResourceQuota).DeepCopy()
		changed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}
		if err = edit(changed); err != nil {
			return "", nil
		}
		var body []byte
		if body, err = json.Marshal(changed); err != nil {
			return "", nil
		}
		var r patch.Result
		r, err = s.editor.Update(c.stored, current, body, patch.Request{
			Namespace: q.Namespace, Name: q.Name, Subresource: resources.Status, UserAgent: byAdmission,
		})
		if err != nil || r.Unchanged {
			return "", nil
		}
		return watch.Modified, withoutKind(r.Object)
	})
	return err
}

// take adds usage to the status of a quota, or says why the quota refuses it.
func take(q *v1.ResourceQuota, kind string, obj resources.Object, taken v1.ResourceList) error {
	var unknown, missing, requested, used, limited []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		if !counts(kind, name) {
			continue
		}
		if lacking := without(obj, name); len(lacking) > 0 {
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(lacking, ",")))
		}
		n, hard := taken[name], q.Status.Hard[name]
		was, known := q.Status.Used[name]
		if !known {
			unknown = append(unknown, string(name))
		}
		if n.Sign() <= 0 || !known {
			continue
		}
		now := was.DeepCopy()
		if now.Add(n); now.Cmp(hard) > 0 {
			requested = append(requested, fmt.Sprintf("%s=%s", name, n.String()))
			used = append(used, fmt.Sprintf("%s=%s", name, was.String()))
			limited = append(limited, fmt.Sprintf("%s=%s", name, hard.String()))
		}
		q.Status.Used[name] = now
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("failed quota: %s: must specify %s", q.Name, strings.Join(missing, "; "))
	case len(unknown) > 0:
		return fmt.Errorf("status unknown for quota: %s, resources: %s", q.Name, strings.Join(unknown, ","))
	case len(requested) > 0:
		return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s", q.Name, strings.Join(requested, ","), strings.Join(used, ","), strings.Join(limited, ","))
	}
	return nil
}

// plainNames are the kinds that a quota counts also by the name of the resource.
var plainNames = []string{"pods", "services", "persistentvolumeclaims", "configmaps", "resourcequotas", "replicationcontrollers", "secrets"}

// mandatory are the resources that each container must name if a quota limits them.
var mandatory = []v1.ResourceName{
	v1.ResourceCPU, v1.ResourceMemory, v1.ResourceRequestsCPU, v1.ResourceRequestsMemory, v1.ResourceLimitsCPU, v1.ResourceLimitsMemory,
}

// counts reports whether a quota's resource is one of objects of a kind, by its resource and group.
func counts(kind string, name v1.ResourceName) bool {
	n, own := string(name), false
	switch kind {
	case "pods":
		requests, is := strings.CutPrefix(n, v1.DefaultResourceRequestsPrefix)
		extended := is && strings.Contains(n, "/") && !strings.Contains(n, v1.ResourceDefaultNamespacePrefix)
		ephemeral := name == v1.ResourceEphemeralStorage || name == v1.ResourceRequestsEphemeralStorage || name == v1.ResourceLimitsEphemeralStorage
		huge := strings.HasPrefix(requests, v1.ResourceHugePagesPrefix) // with the prefix and without
		own = ephemeral || extended || huge || slices.Contains(mandatory, name)
	case "services":
		own = name == v1.ResourceServicesNodePorts || name == v1.ResourceServicesLoadBalancers
	case "persistentvolumeclaims":
		_, of, _ := strings.Cut(n, byStorageClass)
		own = name == v1.ResourceRequestsStorage || of == kind || of == string(v1.ResourceRequestsStorage)
	}
	return own || n == "count/"+kind || n == kind && slices.Contains(plainNames, kind)
}

// usage is what an object takes of all resources of quotas.
func usage(kind string, obj resources.Object) v1.ResourceList {
	number := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	all := v1.ResourceList{v1.ResourceName("count/" + kind): number(1), v1.ResourceName(kind): number(1)}
	switch o := obj.(type) {
	case *v1.Pod:
		if o.Status.Phase == v1.PodSucceeded || o.Status.Phase == v1.PodFailed {
			delete(all, v1.ResourcePods)
			break
		}
		options := podresource.PodResourcesOptions{UseStatusResources: true}
		for prefix, list := range map[string]v1.ResourceList{"requests.": podresource.PodRequests(o, options), "limits.": podresource.PodLimits(o, options)} {
			for name, n := range list {
				all[v1.ResourceName(prefix)+name] = n
				if prefix == v1.DefaultResourceRequestsPrefix {
					all[name] = n
				}
			}
		}
	case *v1.Service:
		ports := len(o.Spec.Ports)
		if o.Spec.Type == v1.ServiceTypeLoadBalancer {
			all[v1.ResourceServicesLoadBalancers] = number(1)
			if off := o.Spec.AllocateLoadBalancerNodePorts; off != nil && !*off {
				ports = len(slices.DeleteFunc(slices.Clone(o.Spec.Ports), func(p v1.ServicePort) bool { return p.NodePort == 0 }))
			}
		} else if o.Spec.Type != v1.ServiceTypeNodePort {
			ports = 0
		}
		all[v1.ResourceServicesNodePorts] = number(ports)
	case *v1.PersistentVolumeClaim:
		storage, ok := o.Spec.Resources.Requests[v1.ResourceStorage]
		if granted := o.Status.AllocatedResources[v1.ResourceStorage]; granted.Cmp(storage) > 0 {
			storage = granted
		}
		if storage = storage.DeepCopy(); ok { // It is the object's.
			storage.RoundUp(0)
			all[v1.ResourceRequestsStorage] = storage
		}
		if class := ptr.Deref(o.Spec.StorageClassName, o.Annotations[v1.BetaStorageClassAnnotation]); class != "" {
			for _, name := range []v1.ResourceName{v1.ResourcePersistentVolumeClaims, v1.ResourceRequestsStorage} {
				if n, ok := all[name]; ok {
					all[v1.ResourceName(class+byStorageClass)+name] = n
				}
			}
		}
	}
	return all.DeepCopy() // Two names may share a quantity.
}

// without returns the containers of a pod that do not say how much they need of a resource, and must.
func without(obj resources.Object, name v1.ResourceName) (names []string) {
	pod, ok := obj.(*v1.Pod)
	if !ok || !slices.Contains(mandatory, name) || podresource.IsPodLevelResourcesSet(pod) {
		return nil
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		list := c.Resources.Requests
		plain, limit := strings.CutPrefix(string(name), "limits.")
		if limit {
			list = c.Resources.Limits
		}
		if _, ok := list[v1.ResourceName(strings.TrimPrefix(plain, v1.DefaultResourceRequestsPrefix))]; !ok {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// covers reports whether a quota limits something of a kind, and the object is in all of its scopes.
func covers(q *v1.ResourceQuota, kind string, obj resources.Object) bool {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(q.Spec.Hard)), func(name v1.ResourceName) bool { return counts(kind, name) }) {
		return false
	}
	for _, scope := range q.Spec.Scopes {
		if !within(v1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: v1.ScopeSelectorOpExists}, obj) {
			return false
		}
	}
	return q.Spec.ScopeSelector == nil || !slices.ContainsFunc(q.Spec.ScopeSelector.MatchExpressions, func(r v1.ScopedResourceSelectorRequirement) bool { return !within(r, obj) })
}

func terminates(p *v1.Pod) bool { return p.Spec.ActiveDeadlineSeconds != nil }

// within reports whether an object is in a scope. Only pods and claims have scopes.
func within(r v1.ScopedResourceSelectorRequirement, obj resources.Object) bool {
	var classes []string // of the object
	switch o := obj.(type) {
	case *v1.Pod:
		switch r.ScopeName {
		case v1.ResourceQuotaScopeTerminating:
			return terminates(o)
		case v1.ResourceQuotaScopeNotTerminating:
			return !terminates(o)
		case v1.ResourceQuotaScopeBestEffort:
			return o.Status.QOSClass == v1.PodQOSBestEffort
		case v1.ResourceQuotaScopeNotBestEffort:
			return o.Status.QOSClass != v1.PodQOSBestEffort
		case v1.ResourceQuotaScopeCrossNamespacePodAffinity:
			return crossesNamespaces(o.Spec.Affinity)
		case v1.ResourceQuotaScopePriorityClass:
			classes = append(classes, o.Spec.PriorityClassName)
		}
	case *v1.PersistentVolumeClaim:
		if r.ScopeName == v1.ResourceQuotaScopeVolumeAttributesClass {
			classes = append(classes, ptr.Deref(o.Spec.VolumeAttributesClassName, ""), ptr.Deref(o.Status.CurrentVolumeAttributesClassName, ""))
			if m := o.Status.ModifyVolumeStatus; m != nil {
				classes = append(classes, m.TargetVolumeAttributesClassName)
			}
		}
	}
	const label = "class"
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: label, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values},
	}})
	if classes == nil || err != nil {
		return false
	}
	if classes = slices.DeleteFunc(classes, func(name string) bool { return name == "" }); len(classes) == 0 {
		return selector.Matches(labels.Set{})
	}
	return slices.ContainsFunc(classes, func(name string) bool { return selector.Matches(labels.Set{label: name}) })
}

// crossesNamespaces reports whether a term of a pod's affinity to pods names namespaces.
func crossesNamespaces(a *v1.Affinity) bool {
	if a == nil {
		return false
	}
	to, anti := ptr.Deref(a.PodAffinity, v1.PodAffinity{}), ptr.Deref(a.PodAntiAffinity, v1.PodAntiAffinity{})
	terms := slices.Concat(to.RequiredDuringSchedulingIgnoredDuringExecution, anti.RequiredDuringSchedulingIgnoredDuringExecution)
	for _, w := range slices.Concat(to.PreferredDuringSchedulingIgnoredDuringExecution, anti.PreferredDuringSchedulingIgnoredDuringExecution) {
		terms = append(terms, w.PodAffinityTerm)
	}
	return slices.ContainsFunc(terms, func(t v1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
