package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
)

// admit does what kube-apiserver v1.37.2 does by default with a new pod or a changed one (the plugins
// DefaultTolerationSeconds, Priority and ServiceAccount), and allocates the addresses and ports of services.
func (s *Server) admit(_ *resources.Resource, obj, old resources.Object) error {
	switch o := obj.(type) {
	case *v1.Pod:
		for _, key := range []string{v1.TaintNodeNotReady, v1.TaintNodeUnreachable} {
			if !slices.ContainsFunc(o.Spec.Tolerations, func(t v1.Toleration) bool {
				return (t.Key == key || t.Key == "") && (t.Effect == v1.TaintEffectNoExecute || t.Effect == "")
			}) {
				o.Spec.Tolerations = append(o.Spec.Tolerations, v1.Toleration{
					Key: key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
				})
			}
		}
		if old == nil {
			o.Spec.ServiceAccountName = cmp.Or(o.Spec.ServiceAccountName, "default")
			o.Spec.DeprecatedServiceAccount = o.Spec.ServiceAccountName
			name := o.Spec.ServiceAccountName
			found, _ := s.builtin(v1.SchemeGroupVersion.WithResource("serviceaccounts")).log.Get(o.Namespace + "/" + name)
			account, ok := found.(*v1.ServiceAccount)
			if !ok {
				account = &v1.ServiceAccount{}
			}
			if !ok && name != "default" { // which a controller makes
				return apierrors.NewForbidden(podResource.GroupResource(), o.Name, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", o.Namespace, name, name))
			}
			if ptr.Deref(cmp.Or(o.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken), true) {
				mountToken(&o.Spec, s.editor.Suffix())
			}
			return s.prioritize(o)
		}
	case *v1.PersistentVolumeClaim:
		was, ok := old.(*v1.PersistentVolumeClaim)
		if !ok || was.Status.Phase != v1.ClaimBound || o.Spec.Resources.Requests.Storage().Cmp(*was.Spec.Resources.Requests.Storage()) <= 0 {
			return nil
		}
		expands := func(c *storagev1.StorageClass) bool {
			return c.Name == ptr.Deref(o.Spec.StorageClassName, "") && ptr.Deref(c.AllowVolumeExpansion, false)
		}
		if !slices.ContainsFunc(stored[*storagev1.StorageClass](s, storagev1.GroupName, "storageclasses", ""), expands) {
			return apierrors.NewForbidden(v1.Resource("persistentvolumeclaims"), o.Name, errors.New("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"))
		}
	case *v1.Service:
		was, _ := old.(*v1.Service)
		return s.allocate(o, was)
	}
	return nil
}

// tokenPath is where the token of the service account is.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// mountToken gives the containers that have nothing at tokenPath the token's volume there, and the pod that volume.
func mountToken(spec *v1.PodSpec, suffix string) {
	const prefix = "kube-api-access-"
	name := prefix + suffix
	i := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return strings.HasPrefix(v.Name, prefix) })
	if i >= 0 {
		name = spec.Volumes[i].Name
	}
	mounted := false
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if c := &containers[i]; !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
				mounted = true
			}
		}
	}
	if i < 0 && mounted {
		spec.Volumes = append(spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			DefaultMode: new(v1.ProjectedVolumeSourceDefaultMode),
			Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
				{ConfigMap: &v1.ConfigMapProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
				{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
					{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
				}}},
			},
		}}})
	}
}

// stored returns the visible objects of a resource whose keys have a prefix.
func stored[T resources.Object](s *Server, group, resource, prefix string) (all []T) {
	res, ok := s.registry.Lookup(group, "v1", resource)
	if !ok {
		return nil
	}
	log := s.collection(res).log
	for _, it := range log.State(log.Visible(), prefix, "") {
		if o, ok := it.Object.(T); ok {
			all = append(all, o)
		}
	}
	return all
}

// prioritize sets the priority of a pod by its class or the global default.
func (s *Server) prioritize(pod *v1.Pod) error {
	name := pod.Spec.PriorityClassName
	forbidden := func(format string, args ...any) error {
		return apierrors.NewForbidden(podResource.GroupResource(), pod.Name, fmt.Errorf(format, args...))
	}
	class, found := &schedulingv1.PriorityClass{}, name == ""
	for _, c := range stored[*schedulingv1.PriorityClass](s, schedulingv1.GroupName, "priorityclasses", "") {
		if name == c.Name || name == "" && c.GlobalDefault && (class.Name == "" || c.Value < class.Value) {
			class, found = c, true
		}
	}
	policy, wrong := cmp.Or(class.PreemptionPolicy, new(v1.PreemptLowerPriority)), "must not be provided in pod spec; priority admission controller computed"
	switch p, q := pod.Spec.Priority, pod.Spec.PreemptionPolicy; {
	case !found:
		return forbidden("no PriorityClass with name %v was found", name)
	case p != nil && *p != class.Value:
		return forbidden("the integer value of priority (%d) %s %d from the given PriorityClass name", *p, wrong, class.Value)
	case q != nil && *q != *policy:
		return forbidden("the string value of PreemptionPolicy (%s) %s %s from the given PriorityClass name", *q, wrong, *policy)
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = class.Name, new(class.Value), policy
	return nil
}

// The addresses that services get are in 10.96.0.0/16, their ports in the range of kube-apiserver.
const firstAddress, addresses, firstNodePort, nodePorts = 10<<24 | 96<<16, 1 << 16, 30000, 2768

// free returns the next of n numbers that is not used, by its text.
func free(next *atomic.Int64, first, n int64, used map[string]bool, text func(int64) string) (int64, string) {
	for range n {
		if i := first + next.Add(1)%n; !used[text(i)] {
			used[text(i)] = true
			return i, text(i)
		}
	}
	return 0, ""
}

func address(n int64) string {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

func port(n int64) string { return strconv.FormatInt(n, 10) }

// allocate completes the addresses, families and ports of a service. It keeps those of old and drops those that the type
// does not need. A manifest of another cluster may have any address and family.
func (s *Server) allocate(o, old *v1.Service) error {
	spec, was := &o.Spec, &v1.ServiceSpec{Type: v1.ServiceTypeExternalName}
	if old != nil {
		was = &old.Spec
	}
	var errs field.ErrorList
	refuse := func(path string, value any, why string, args ...any) {
		errs = append(errs, field.Invalid(field.NewPath("spec").Child(path), value, fmt.Sprintf(why, args...)))
	}
	used := sync.OnceValue(func() map[string]bool {
		all := map[string]bool{address(firstAddress): true}
		for _, other := range stored[*v1.Service](s, "", "services", "") {
			if other.Namespace == o.Namespace && other.Name == o.Name {
				continue
			}
			for _, ip := range other.Spec.ClusterIPs {
				all[ip] = true
			}
			all[port(int64(other.Spec.HealthCheckNodePort))] = true
			for _, p := range other.Spec.Ports {
				all[port(int64(p.NodePort))] = true
			}
		}
		return all
	})
	addressed := spec.Type != v1.ServiceTypeExternalName
	if kept := was.Type != v1.ServiceTypeExternalName; !addressed {
		spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = "", nil, nil, nil
	} else if kept {
		if spec.ClusterIP = cmp.Or(spec.ClusterIP, was.ClusterIP); spec.ClusterIP == was.ClusterIP {
			spec.ClusterIPs = was.ClusterIPs
		} else {
			refuse("clusterIPs[0]", []string{spec.ClusterIP}, "may not change once set")
		}
		spec.IPFamilyPolicy = cmp.Or(spec.IPFamilyPolicy, was.IPFamilyPolicy)
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = was.IPFamilies
		}
	}
	if addressed && len(errs) == 0 {
		both := spec.ClusterIP == v1.ClusterIPNone && len(spec.Selector) == 0 // The endpoints may have any family.
		if policy := v1.IPFamilyPolicySingleStack; spec.IPFamilyPolicy == nil {
			if both {
				policy = v1.IPFamilyPolicyRequireDualStack
			}
			spec.IPFamilyPolicy = &policy
		}
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol}
		}
		if both && *spec.IPFamilyPolicy != v1.IPFamilyPolicySingleStack && !slices.Contains(spec.IPFamilies, v1.IPv6Protocol) {
			spec.IPFamilies = append(spec.IPFamilies, v1.IPv6Protocol)
		}
		switch ip := spec.ClusterIP; {
		case ip == v1.ClusterIPNone, ip == was.ClusterIP && ip != "":
		case ip == "":
			_, spec.ClusterIP = free(&s.addresses, firstAddress, addresses, used(), address)
		case used()[ip]:
			refuse("clusterIPs", []string{ip}, "failed to allocate IP %s: provided IP is already allocated", ip)
		}
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
	}
	balanced := spec.Type == v1.ServiceTypeLoadBalancer
	onNodes, off := balanced || spec.Type == v1.ServiceTypeNodePort, spec.AllocateLoadBalancerNodePorts
	for i := range spec.Ports {
		p := &spec.Ports[i]
		at := fmt.Sprintf("ports[%d].nodePort", i)
		if j := slices.IndexFunc(was.Ports, func(w v1.ServicePort) bool { return w.Name == p.Name }); j >= 0 && p.NodePort == 0 {
			p.NodePort = was.Ports[j].NodePort
		}
		switch {
		case !onNodes:
			p.NodePort = 0
		case p.NodePort == 0 && off != nil && !*off || len(errs) > 0:
		case p.NodePort == 0:
			n, _ := free(&s.nodePorts, firstNodePort, nodePorts, used(), port)
			p.NodePort = int32(n)
		case p.NodePort < firstNodePort || p.NodePort >= firstNodePort+nodePorts:
			refuse(at, p.NodePort, "provided port is not in the valid range. The range of valid ports is %d-%d", firstNodePort, firstNodePort+nodePorts-1)
		case used()[port(int64(p.NodePort))]:
			refuse(at, p.NodePort, "provided port is already allocated")
		}
	}
	switch {
	case !balanced || spec.ExternalTrafficPolicy != v1.ServiceExternalTrafficPolicyLocal:
		spec.HealthCheckNodePort = 0
	case spec.HealthCheckNodePort == 0 && was.HealthCheckNodePort == 0:
		n, _ := free(&s.nodePorts, firstNodePort, nodePorts, used(), port)
		spec.HealthCheckNodePort = int32(n)
	default:
		spec.HealthCheckNodePort = cmp.Or(spec.HealthCheckNodePort, was.HealthCheckNodePort)
	}
	if !onNodes && len(spec.ExternalIPs) == 0 && was.ExternalTrafficPolicy != "" {
		spec.ExternalTrafficPolicy = ""
	}
	if !balanced && was.Type == v1.ServiceTypeLoadBalancer {
		spec.AllocateLoadBalancerNodePorts, spec.LoadBalancerClass, o.Status.LoadBalancer = nil, nil, v1.LoadBalancerStatus{}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Service").GroupKind(), o.Name, errs)
	}
	return nil
}

// inUse reports whether pods need a volume.
func (s *Server) inUse(obj resources.Object) bool {
	switch o := obj.(type) {
	case *v1.PersistentVolume:
		return o.Status.Phase == v1.VolumeBound
	case *v1.PersistentVolumeClaim:
		mounts := func(v v1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == o.Name
		}
		return slices.ContainsFunc(stored[*v1.Pod](s, "", "pods", o.Namespace+"/"), func(p *v1.Pod) bool { return p.Spec.NodeName != "" && slices.ContainsFunc(p.Spec.Volumes, mounts) })
	}
	return false
}

// release deletes the claims of a namespace that waited for a pod.
func (s *Server) release(by store.Origin, namespace string) {
	for _, claim := range stored[*v1.PersistentVolumeClaim](s, "", "persistentvolumeclaims", namespace+"/") {
		if claim.DeletionTimestamp == nil {
			continue
		}
		c := s.builtin(v1.SchemeGroupVersion.WithResource("persistentvolumeclaims"))
		c.edit(by, namespace+"/"+claim.Name, func(current resources.Object) (watch.EventType, resources.Object) {
			if r, err := s.editor.Delete(c.stored, current, &metav1.DeleteOptions{}); err != nil || !r.Gone {
				return "", nil
			}
			return deleted(current)
		})
	}
}
