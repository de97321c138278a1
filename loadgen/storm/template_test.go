package storm_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/storm"
)

func template(name string, containers ...string) v1.PodTemplateSpec {
	t := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"mine": name, "app": "theirs"}, Annotations: map[string]string{"note": name},
	}}
	for _, c := range containers {
		t.Spec.Containers = append(t.Spec.Containers, v1.Container{Name: c, Image: name + ":" + c})
	}
	return t
}

func TestWithPods(t *testing.T) {
	p := profile(t, "rollout")
	p.Resize(5, 0, 0)
	set := must(p.Set(1))(t)
	s := set.Storms[0]
	templates := []v1.PodTemplateSpec{template("one", "c"), template("two", "a", "b")}
	got := must(s.WithPods(templates))(t)
	noError(t, got.Validate())
	byOwner := map[string]string{}
	for i := range s.Events {
		was, is := s.Events[i].Object.(*v1.Pod), got.Events[i].Object.(*v1.Pod)
		mine, owner := is.Labels["mine"], string(is.OwnerReferences[0].UID)
		if byOwner[owner] == "" {
			byOwner[owner] = mine
		}
		want := was.DeepCopy()
		want.Spec, want.Annotations = templates[map[string]int{"one": 0, "two": 1}[byOwner[owner]]].Spec, map[string]string{"note": byOwner[owner]}
		want.Spec.NodeName = was.Spec.NodeName
		want.Labels["mine"] = byOwner[owner]
		want.Status.ContainerStatuses, want.Status.InitContainerStatuses = nil, nil
		for _, c := range want.Spec.Containers {
			if len(was.Status.ContainerStatuses) > 0 {
				status := was.Status.ContainerStatuses[min(len(want.Status.ContainerStatuses), len(was.Status.ContainerStatuses)-1)]
				status.Name, status.Image = c.Name, c.Image
				want.Status.ContainerStatuses = append(want.Status.ContainerStatuses, status)
			}
		}
		if !equality.Semantic.DeepEqual(want, is) {
			t.Fatalf("event %d: %s", i+1, cmp.Diff(want, is))
		}
	}
	if used := slices.Sorted(maps.Values(byOwner)); used[0] != "one" || used[len(used)-1] != "two" {
		t.Errorf("the owners have the templates %v", used)
	}
	// The templates and the storm are unchanged.
	if diff := cmp.Diff([]v1.PodTemplateSpec{template("one", "c"), template("two", "a", "b")}, templates); diff != "" {
		t.Errorf("templates (-want +got):\n%s", diff)
	}
	if s.Events[0].Object.(*v1.Pod).Labels["mine"] != "" {
		t.Error("the storm was changed")
	}
}

func TestWithPodsErrors(t *testing.T) {
	nodes := &storm.Storm{Name: "nodes", Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Events: []storm.Event{{Seq: 1, Object: &v1.Node{}}}}
	if _, err := nodes.WithPods([]v1.PodTemplateSpec{{}}); !errors.Is(err, storm.ErrNotPods) {
		t.Errorf("nodes: %v", err)
	}
	if _, err := (&storm.Storm{}).WithPods(nil); err == nil {
		t.Error("no templates: no error")
	}
}
