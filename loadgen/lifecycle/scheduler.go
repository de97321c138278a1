package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// This file has the filters of Kubernetes' scheduler (pkg/scheduler, v1.37), in its order and its words: taints, node
// affinity, resources, topology spread and pod affinity, and volume claims before them. It has no scores: the next node
// in turn that fits takes the pod. It does not preempt. A node that is not ready counts as tainted, since
// no node controller taints it, and one without allocatable resources has room for all pods.

// quantities are amounts: thousandths of cpu, whole numbers of all others.
type quantities map[corev1.ResourceName]int64

func amounts(list corev1.ResourceList) quantities {
	out := quantities{}
	for name, q := range list {
		if out[name] = q.Value(); name == corev1.ResourceCPU {
			out[name] = q.MilliValue()
		}
	}
	return out
}

func requests(pod *corev1.Pod) quantities {
	out := amounts(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	out[corev1.ResourcePods] = 1
	return out
}

// load is the pods of a node.
type load struct {
	pods map[*object]bool
	used quantities
}

var (
	definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition").GroupKind()
	namespaceKind  = corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
	claimKind      = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind()
	classKind      = storagev1.SchemeGroupVersion.WithKind("StorageClass").GroupKind()
)

// account learns from a change what the scheduler and the garbage collector have to know.
func (c *Cluster) account(o *object) {
	switch o.kind.GroupKind() {
	case definitionKind:
		c.redefine()
	case namespaceKind:
		c.spaces[o.meta.GetName()] = o.meta.GetLabels()
	case classKind:
		class, ok := o.object.(*storagev1.StorageClass)
		c.late[o.meta.GetName()] = ok && ptr.Deref(class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
		c.retry()
	case nodeKind:
		if n, ok := o.object.(*corev1.Node); ok {
			if o.takes = amounts(n.Status.Allocatable); len(o.takes) == 0 {
				o.takes = amounts(n.Status.Capacity)
			}
		}
		c.retry()
	case claimKind:
		c.retry()
	case podKind:
		pod, ok := o.object.(*corev1.Pod)
		if !ok {
			return
		}
		c.addresses.account(o, pod)
		ended := o.gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		switch {
		case ended:
			c.place(o, "")
		case pod.Spec.NodeName != "": // An older change may follow a binding.
			c.place(o, pod.Spec.NodeName)
		}
		if !ended {
			c.schedule(o, pod)
		}
	}
}

// place gives a pod room on a node, or on none. Other pods may have waited for its room.
func (c *Cluster) place(o *object, node string) {
	if o.node == node {
		return
	}
	if l := c.loads[o.node]; l != nil {
		delete(l.pods, o)
		delete(c.repellers, o)
		for name, n := range o.takes {
			l.used[name] -= n
		}
		c.retry()
	}
	if o.node = node; node == "" {
		return
	}
	if c.loads[node] == nil {
		c.loads[node] = &load{map[*object]bool{}, quantities{}}
	}
	c.loads[node].pods[o] = true
	pod, _ := o.object.(*corev1.Pod) // of account or schedule
	if _, repels := terms(pod); len(repels) > 0 {
		c.repellers[o] = true
	}
	if o.takes = nil; !o.storm { // The nodes of a storm may be full of its own pods.
		o.takes = requests(pod)
	}
	for name, n := range o.takes {
		c.loads[node].used[name] += n
	}
	if len(c.pending) > 0 {
		c.retry() // A pod may have waited for one that it has an affinity to.
	}
}

// retry schedules the pods again that fit nowhere.
func (c *Cluster) retry() {
	for o := range c.pending {
		if pod, ok := o.object.(*corev1.Pod); ok {
			c.schedule(o, pod)
		}
	}
}

// schedule binds a pod of the default scheduler, or says in its status why it fits nowhere.
func (c *Cluster) schedule(o *object, pod *corev1.Pod) {
	if o.storm || o.node != "" || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || c.off(Scheduler) ||
		cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName) != corev1.DefaultSchedulerName {
		delete(c.pending, o)
		return
	}
	delay := scheduling
	if c.pending[o] {
		delay = backoff
	}
	c.plan(o, "binding", c.about(delay), func(ctx context.Context) error {
		pod, ok := o.object.(*corev1.Pod)
		if !ok || o.node != "" || pod.DeletionTimestamp != nil {
			return nil
		}
		node, why, err := c.fit(ctx, pod)
		if err != nil {
			return err
		}
		if node == "" {
			c.pending[o] = true
			if changed, err := c.unscheduled(ctx, o, pod, why); !changed || err != nil {
				return err
			}
			return c.event(ctx, o, corev1.DefaultSchedulerName, corev1.EventTypeWarning, "FailedScheduling", why)
		}
		binding := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Binding",
			"metadata": map[string]any{"name": pod.Name, "namespace": pod.Namespace, "uid": string(pod.UID)},
			"target":   map[string]any{"kind": "Node", "name": node},
		}}
		if _, err := c.resource(o).Create(ctx, binding, metav1.CreateOptions{}, "binding"); err != nil {
			return err
		}
		delete(c.pending, o)
		c.place(o, node)
		return nil
	})
}

// unscheduled writes the condition PodScheduled, and reports whether it is another one than before.
func (c *Cluster) unscheduled(ctx context.Context, o *object, pod *corev1.Pod, message string) (bool, error) {
	now := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
		LastTransitionTime: metav1.Now(),
	}
	for _, old := range pod.Status.Conditions {
		if old.Type != now.Type || old.Status != now.Status {
			continue
		}
		if now.LastTransitionTime = old.LastTransitionTime; old.Reason == now.Reason && old.Message == message {
			return false, nil
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{now}},
	})
	if err == nil {
		_, err = c.resource(o).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return true, err
}

// rule is a filter. It returns why a pod does not fit on a node, and whether the end of other pods could not help.
type rule func(*corev1.Node, *object) (why []string, final bool)

// fit returns the node for a pod, or the message why there is none.
func (c *Cluster) fit(ctx context.Context, pod *corev1.Pod) (node, message string, err error) {
	total := len(c.nodes)
	if total == 0 {
		return "node-0", "", nil
	}
	reasons := map[string]int{}
	problem, err := c.claims(ctx, pod)
	if err != nil {
		return "", "", err
	}
	helpless := total
	if problem == "" {
		helpless = 0
		rules := c.rules(pod)
		at := c.turn
		for i := range c.nodes {
			o := c.nodes[(at+1+i)%total]
			n, ok := o.object.(*corev1.Node)
			if !ok {
				continue
			}
			var why []string
			final := false
			for _, r := range rules {
				if why, final = r(n, o); len(why) > 0 {
					break
				}
			}
			if len(why) == 0 {
				c.turn = (at + 1 + i) % total
				return n.Name, "", nil
			}
			for _, reason := range why {
				reasons[reason]++
			}
			if final {
				helpless++
			}
		}
	}
	preemption := unavailable(total, "", map[string]int{
		"Preemption is not helpful for scheduling": helpless, "No preemption victims found for incoming pod": total - helpless,
	})
	if ptr.Deref(pod.Spec.PreemptionPolicy, "") == corev1.PreemptNever {
		preemption = "not eligible due to preemptionPolicy=Never."
	}
	return "", unavailable(total, problem, reasons) + " preemption: " + preemption, nil
}

// unavailable is the scheduler's message: a problem of the pod, or the number of nodes for each reason.
func unavailable(total int, problem string, reasons map[string]int) string {
	var texts []string
	for reason, n := range reasons {
		if n > 0 {
			texts = append(texts, fmt.Sprint(n, " ", reason))
		}
	}
	slices.Sort(texts)
	return fmt.Sprintf("0/%d nodes are available: %s.", total, cmp.Or(problem, strings.Join(texts, ", ")))
}

func tolerates(pod *corev1.Pod, taints []corev1.Taint) bool {
	_, found := corehelpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, pod.Spec.Tolerations, nil, true)
	return !found
}

// rules are the filters for a pod, in the scheduler's order.
func (c *Cluster) rules(pod *corev1.Pod) []rule {
	only := func(reason string, final bool, fits func(*corev1.Node) bool) rule {
		return func(n *corev1.Node, _ *object) ([]string, bool) {
			if fits(n) {
				return nil, false
			}
			return []string{reason}, final
		}
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	matches := func(n *corev1.Node) bool { ok, err := affinity.Match(n); return ok && err == nil }
	asked := requests(pod)
	rules := []rule{
		only("node(s) were unschedulable", true, func(n *corev1.Node) bool {
			return !n.Spec.Unschedulable || tolerates(pod, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}})
		}),
		only("node(s) had untolerated taint(s)", true, func(n *corev1.Node) bool {
			taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule })
			if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
				taints = append(taints, corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule})
			}
			return tolerates(pod, taints)
		}),
		only("node(s) didn't match Pod's node affinity/selector", true, matches),
		func(_ *corev1.Node, o *object) ([]string, bool) { return c.room(o, asked) },
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		if t := &pod.Spec.TopologySpreadConstraints[i]; t.WhenUnsatisfiable == corev1.DoNotSchedule {
			rules = append(rules, c.spread(pod, t, func(n *corev1.Node) bool {
				return ptr.Deref(t.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyIgnore || matches(n)
			}))
		}
	}
	attracts, repels := terms(pod)
	for _, t := range attracts {
		match := c.matcher(pod, t)
		count := c.domains(t.TopologyKey, match, nil)
		// The first pod of a group that has an affinity to itself fits on any node.
		first := match(pod) && !slices.ContainsFunc(slices.Collect(maps.Values(count)), func(n int) bool { return n > 0 })
		rules = append(rules, only("node(s) didn't match pod affinity rules", true, func(n *corev1.Node) bool {
			value, has := n.Labels[t.TopologyKey]
			return has && (first || count[value] > 0)
		}))
	}
	for _, t := range repels {
		count := c.domains(t.TopologyKey, c.matcher(pod, t), nil)
		rules = append(rules, only("node(s) didn't match pod anti-affinity rules", false, func(n *corev1.Node) bool {
			return count[n.Labels[t.TopologyKey]] == 0
		}))
	}
	blocked := c.repelled(pod)
	return append(rules, only("node(s) didn't satisfy existing pods anti-affinity rules", false, func(n *corev1.Node) bool {
		for key, value := range n.Labels {
			if blocked[[2]string{key, value}] {
				return false
			}
		}
		return true
	}))
}

// room checks the resources of a node.
func (c *Cluster) room(node *object, asked quantities) (why []string, final bool) {
	have, l := node.takes, c.loads[node.meta.GetName()]
	for name, want := range asked {
		if len(have) == 0 && !strings.Contains(string(name), "/") {
			continue // It has room for all but extended resources.
		}
		used := int64(0)
		if l != nil {
			used = l.used[name]
		}
		if want == 0 || used+want <= have[name] {
			continue
		}
		if final = final || want > have[name] && name != corev1.ResourcePods; name == corev1.ResourcePods {
			why = append(why, "Too many pods")
		} else {
			why = append(why, "Insufficient "+string(name))
		}
	}
	return why, final
}

// terms are the required terms of a pod's affinity and anti-affinity.
func terms(pod *corev1.Pod) (attracts, repels []corev1.PodAffinityTerm) {
	a := ptr.Deref(pod.Spec.Affinity, corev1.Affinity{})
	to, anti := ptr.Deref(a.PodAffinity, corev1.PodAffinity{}), ptr.Deref(a.PodAntiAffinity, corev1.PodAntiAffinity{})
	return to.RequiredDuringSchedulingIgnoredDuringExecution, anti.RequiredDuringSchedulingIgnoredDuringExecution
}

// selects returns the selector of a term of a pod. Keys add the pod's own labels to it, others exclude them.
func selects(pod *corev1.Pod, s *metav1.LabelSelector, keys, others []string) labels.Selector {
	s = s.DeepCopy()
	for operator, names := range map[metav1.LabelSelectorOperator][]string{metav1.LabelSelectorOpIn: keys, metav1.LabelSelectorOpNotIn: others} {
		for _, name := range names {
			if value, ok := pod.Labels[name]; ok && s != nil {
				s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: name, Operator: operator, Values: []string{value}})
			}
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// matcher returns which pods a term of a pod means.
func (c *Cluster) matcher(pod *corev1.Pod, t corev1.PodAffinityTerm) func(*corev1.Pod) bool {
	selector := selects(pod, t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys)
	spaces := selects(pod, t.NamespaceSelector, nil, nil)
	return func(other *corev1.Pod) bool {
		in := slices.Contains(t.Namespaces, other.Namespace) || spaces.Matches(c.spaces[other.Namespace])
		if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
			in = other.Namespace == pod.Namespace
		}
		return in && selector.Matches(labels.Set(other.Labels))
	}
}

// domains counts the pods that match for each value of a label of nodes.
func (c *Cluster) domains(key string, match func(*corev1.Pod) bool, counts func(*corev1.Node) bool) map[string]int {
	out := map[string]int{}
	for _, o := range c.nodes {
		n, ok := o.object.(*corev1.Node)
		if !ok || counts != nil && !counts(n) {
			continue
		}
		value, has := n.Labels[key]
		if !has {
			continue
		}
		out[value] += 0
		if l := c.loads[n.Name]; l != nil {
			for o := range l.pods {
				if pod, ok := o.object.(*corev1.Pod); ok && match(pod) {
					out[value]++
				}
			}
		}
	}
	return out
}

// spread is the filter of a topology spread constraint.
func (c *Cluster) spread(pod *corev1.Pod, t *corev1.TopologySpreadConstraint, counts func(*corev1.Node) bool) rule {
	selector := selects(pod, t.LabelSelector, t.MatchLabelKeys, nil)
	count := c.domains(t.TopologyKey, func(p *corev1.Pod) bool {
		return p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels))
	}, counts)
	least := 0
	if len(count) > 0 && len(count) >= int(ptr.Deref(t.MinDomains, 1)) {
		least = slices.Min(slices.Collect(maps.Values(count)))
	}
	if selector.Matches(labels.Set(pod.Labels)) {
		least-- // The pod itself counts.
	}
	const reason = "node(s) didn't match pod topology spread constraints"
	return func(n *corev1.Node, _ *object) ([]string, bool) {
		value, has := n.Labels[t.TopologyKey]
		switch {
		case !has:
			return []string{reason + " (missing required label)"}, true
		case count[value]-least > int(t.MaxSkew):
			return []string{reason}, false
		}
		return nil, false
	}
}

// repelled are the labels of nodes where a pod has an anti-affinity to this one.
func (c *Cluster) repelled(pod *corev1.Pod) map[[2]string]bool {
	out := map[[2]string]bool{}
	for o := range c.repellers {
		other, _ := o.object.(*corev1.Pod)
		_, repels := terms(other)
		for _, t := range repels {
			if n := c.node(o.node); n != nil && n.Labels[t.TopologyKey] != "" && c.matcher(other, t)(pod) {
				out[[2]string{t.TopologyKey, n.Labels[t.TopologyKey]}] = true
			}
		}
	}
	return out
}

// node returns a node, or nil.
func (c *Cluster) node(name string) *corev1.Node {
	for _, o := range c.nodes {
		if n, ok := o.object.(*corev1.Node); ok && n.Name == name {
			return n
		}
	}
	return nil
}

// claims returns what keeps a pod from its volumes, in the words of the scheduler's volume binding.
func (c *Cluster) claims(ctx context.Context, pod *corev1.Pod) (problem string, err error) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			continue
		}
		name := pod.Name + "-" + v.Name
		if v.PersistentVolumeClaim != nil {
			name = v.PersistentVolumeClaim.ClaimName
		}
		claims := c.client.Resource(corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")).Namespace(pod.Namespace)
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && v.Ephemeral != nil:
			return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name), nil
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("persistentvolumeclaim %q not found", name), nil
		case err != nil:
			return "", err
		case claim.GetDeletionTimestamp() != nil:
			return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name), nil
		}
		volume, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
		class, _, _ := unstructured.NestedString(claim.Object, "spec", "storageClassName")
		if volume == "" && !c.late[class] {
			return "pod has unbound immediate PersistentVolumeClaims", nil
		}
	}
	return "", nil
}
