package storm

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// WithPods returns the storm with pods that are made from templates, such as
// one's own manifests: their spec, their labels and their annotations are a
// template's, besides those labels by which a controller finds its pods. What
// happens to them, and where they run, stays as it is: names, owners, node and
// status, but that the status is of the template's containers. Pods of one owner
// have one template, and owners have the templates in turn, in the order in
// which they appear.
//
// The result's name ends in +templates. The templates are shared by all its pods
// and must not be changed. It is valid where the storm is. It is an error wrapping [ErrNotPods] where the events
// are not of pods, and an error where there are no templates. O(events), in
// memory the structs of the pods.
func (s *Storm) WithPods(templates []v1.PodTemplateSpec) (*Storm, error) {
	if len(templates) == 0 {
		return nil, fmt.Errorf("storm %s: no templates of pods", s.Name)
	}
	d := dresser{templates: templates, owners: map[types.UID]int{}, labels: map[labelsOf]map[string]string{}, statuses: map[statusesOf][]v1.ContainerStatus{}}
	out := *s
	out.Name += "+templates"
	out.Events = slices.Clone(s.Events)
	for i := range out.Events {
		pod, ok := out.Events[i].Object.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("storm %s: %w: event %d has a %T", s.Name, ErrNotPods, s.Events[i].Seq, s.Events[i].Object)
		}
		out.Events[i].Object = d.dress(pod)
	}
	return &out, nil
}

// dresser makes pods look like templates. Maps and slices that are the same for
// many pods are made once.
type dresser struct {
	templates []v1.PodTemplateSpec

	owners   map[types.UID]int
	labels   map[labelsOf]map[string]string
	statuses map[statusesOf][]v1.ContainerStatus
}

type labelsOf struct {
	owner    types.UID
	template int
}

// statusesOf tells the statuses that pods share by where they lie.
type statusesOf struct {
	first    *v1.ContainerStatus
	template int
	init     bool
}

func (d *dresser) dress(pod *v1.Pod) *v1.Pod {
	owner := pod.UID
	if len(pod.OwnerReferences) > 0 {
		owner = pod.OwnerReferences[0].UID
	}
	n, known := d.owners[owner]
	if !known {
		n = len(d.owners) % len(d.templates)
		d.owners[owner] = n
	}
	t := &d.templates[n]
	p := *pod
	p.Spec = t.Spec
	p.Spec.NodeName = pod.Spec.NodeName
	if len(t.Annotations) > 0 {
		p.Annotations = t.Annotations
	}
	p.Labels = d.labelsOf(labelsOf{owner, n}, pod.Labels, t.Labels)
	p.Status.ContainerStatuses = d.statusesOf(n, false, pod.Status.ContainerStatuses, t.Spec.Containers)
	p.Status.InitContainerStatuses = d.statusesOf(n, true, pod.Status.InitContainerStatuses, t.Spec.InitContainers)
	return &p
}

// labelsOf returns the labels of a pod: a controller's own win.
func (d *dresser) labelsOf(key labelsOf, own, template map[string]string) map[string]string {
	if len(template) == 0 {
		return own
	}
	if have, ok := d.labels[key]; ok && covers(have, own) {
		return have
	}
	all := maps.Clone(template)
	maps.Copy(all, own)
	d.labels[key] = all
	return all
}

// covers reports whether have holds all of want.
func covers(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// statusesOf returns the statuses of the template's containers, each in the state
// that the pod's first container is in.
func (d *dresser) statusesOf(n int, init bool, own []v1.ContainerStatus, containers []v1.Container) []v1.ContainerStatus {
	if len(own) == 0 || len(containers) == 0 {
		return nil
	}
	key := statusesOf{&own[0], n, init}
	if have, ok := d.statuses[key]; ok {
		return have
	}
	all := make([]v1.ContainerStatus, len(containers))
	for i, c := range containers {
		all[i] = own[min(i, len(own)-1)]
		all[i].Name, all[i].Image = c.Name, c.Image
	}
	d.statuses[key] = all
	return all
}
