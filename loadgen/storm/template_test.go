package storm_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
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
	set, err := p.Set(1)
	if err != nil {
		t.Fatal(err)
	}
	s := set.Storms[0]
	templates := []v1.PodTemplateSpec{template("one", "c"), template("two", "a", "b")}
	got, err := s.WithPods(templates)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	byOwner, used := map[string]string{}, map[string]int{}
	for i := range s.Events {
		was, is := s.Events[i].Object.(*v1.Pod), got.Events[i].Object.(*v1.Pod)
		mine := is.Labels["mine"]
		used[mine]++
		if owner := string(is.OwnerReferences[0].UID); byOwner[owner] == "" {
			byOwner[owner] = mine
		} else if byOwner[owner] != mine {
			t.Fatalf("event %d: owner %s has pods of %s and of %s", i+1, owner, byOwner[owner], mine)
		}
		if is.Name != was.Name || is.UID != was.UID || is.ResourceVersion != was.ResourceVersion || is.Spec.NodeName != was.Spec.NodeName || is.Status.Phase != was.Status.Phase {
			t.Fatalf("event %d: %s on %q is now %s on %q", i+1, was.Name, was.Spec.NodeName, is.Name, is.Spec.NodeName)
		}
		if is.Labels["app"] != was.Labels["app"] || is.Annotations["note"] != mine {
			t.Fatalf("event %d: labels %v, annotations %v", i+1, is.Labels, is.Annotations)
		}
		want := map[string]int{"one": 1, "two": 2}[mine]
		if len(is.Spec.Containers) != want || len(was.Status.ContainerStatuses) > 0 && len(is.Status.ContainerStatuses) != want {
			t.Fatalf("event %d: %d containers, %d statuses, want %d", i+1, len(is.Spec.Containers), len(is.Status.ContainerStatuses), want)
		}
		for j, c := range is.Status.ContainerStatuses {
			if c.Name != is.Spec.Containers[j].Name || c.Ready != was.Status.ContainerStatuses[0].Ready {
				t.Fatalf("event %d: status %+v", i+1, c)
			}
		}
	}
	if used["one"] == 0 || used["two"] == 0 || len(used) != 2 {
		t.Errorf("templates were used %v times", used)
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
