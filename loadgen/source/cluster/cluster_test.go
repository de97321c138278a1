package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.New(nil)) // Reflectors log every broken watch.
	goleak.VerifyTestMain(m)
}

var podResource = Resource{
	GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
	Kind:                 schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespaced: true,
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: two, context: {cluster: c, user: u}}]
current-context: one
`

func TestConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "one"} {
		c, err := Connect(path, name)
		if err != nil || c.Context != "one" {
			t.Errorf("context %q: %+v, %v", name, c, err)
		}
	}
	for _, tt := range []struct {
		path, name string
		is         error
		want       []string
	}{
		{path, "three", ErrContext, []string{`"three"`, "one, two"}},
		{filepath.Join(t.TempDir(), "none"), "three", ErrKubeconfig, []string{"none"}},
	} {
		_, err := Connect(tt.path, tt.name)
		if !errors.Is(err, tt.is) {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %q", err, want)
			}
		}
	}
}

// TestDetached: a recorded pod keeps no reference that would make the cluster act on it.
func TestDetached(t *testing.T) {
	if testing.Short() {
		t.Skip("reading the recording takes long, and one goroutine does it")
	}
	s := must(trace.Load("recorded-nodeloss"))(t)
	w := must(NewWriter(&Cluster{}, podResource, "test"))(t)
	bound := 0
	// A sample of 2 %: the pods are similar.
	for i := 0; i < len(s.Events); i += 50 {
		original := s.Events[i].Object.(*v1.Pod)
		before := original.DeepCopy()
		u := must(w.object(original))(t)
		if original.Spec.NodeName != "" {
			bound++
		}
		var p v1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &p, true); err != nil {
			t.Fatal(err)
		}
		m := p.ObjectMeta
		switch {
		case p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) != 1 || p.Spec.Priority != nil || p.Spec.ServiceAccountName != "" || p.Status.QOSClass != "":
			t.Fatalf("event %d: the pod can be scheduled: %+v", i+1, p.Spec)
		case m.UID != "" || m.ResourceVersion != "" || len(m.OwnerReferences)+len(m.Finalizers)+len(m.ManagedFields) > 0 || m.DeletionTimestamp != nil:
			t.Fatalf("event %d: %+v", i+1, m)
		case m.Labels[RunLabel] != "test" || !strings.HasPrefix(m.Namespace, "watchlab-test-") || p.Kind != "Pod" || p.APIVersion != "v1":
			t.Fatalf("event %d: %s/%s of run %s, %s", i+1, m.Namespace, m.Name, m.Labels[RunLabel], p.Kind)
		}
		volumes := map[string]bool{}
		for _, v := range p.Spec.Volumes {
			volumes[v.Name] = true
		}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			for _, mount := range c.VolumeMounts {
				if !volumes[mount.Name] {
					t.Fatalf("event %d: a mount of missing volume %s", i+1, mount.Name)
				}
			}
		}
		if !equality.Semantic.DeepEqual(before, original) {
			t.Fatalf("event %d: the storm's object was changed", i+1)
		}
	}
	if bound == 0 {
		t.Error("no pod of the recording was bound to a node")
	}
}

func TestWriterErrors(t *testing.T) {
	if _, err := NewWriter(&Cluster{}, Resource{Kind: schema.GroupVersionKind{Kind: "Node"}}, "run"); !errors.Is(err, ErrNotWritable) {
		t.Errorf("nodes: %v", err)
	}
	for _, run := range []string{"", "Upper", "a-name-that-is-much-too-long", "-"} {
		if _, err := NewWriter(&Cluster{}, podResource, run); err == nil {
			t.Errorf("run %q was taken", run)
		}
	}
	w := must(NewWriter(&Cluster{}, podResource, "run"))(t)
	leases := &storm.Storm{Resource: schema.GroupVersionResource{Version: "v1", Resource: "leases"}}
	if _, err := w.Play(t.Context(), leases, nil); !errors.Is(err, ErrNotWritable) {
		t.Errorf("leases by a writer of pods: %v", err)
	}
	if name := w.namespace(strings.Repeat("x", 70)); len(name) != 63 {
		t.Errorf("a namespace of %d characters", len(name))
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
