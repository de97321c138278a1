package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/loadgen/trace"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.New(nil)) // Reflectors tell of every watch that breaks.
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
		want       []string
	}{
		{path, "three", []string{`"three"`, "one, two"}},
		{filepath.Join(t.TempDir(), "none"), "", []string{"none"}},
	} {
		_, err := Connect(tt.path, tt.name)
		if !errors.Is(err, ErrContext) {
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

// scripted answers lists one after the other, and each watch until it is told
// that its version is gone.
type scripted struct {
	mu    sync.Mutex
	lists []*v1.PodList
	// watching has a token for each watch.
	watching chan *watch.FakeWatcher
}

func (s *scripted) List(metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lists[0]
	if len(s.lists) > 1 {
		s.lists = s.lists[1:]
	}
	return l.DeepCopy(), nil
}

func (s *scripted) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "sendInitialEvents", nil)
	}
	w := watch.NewFakeWithChanSize(10, false)
	s.watching <- w
	return w, nil
}

func (s *scripted) IsWatchListSemanticsUnSupported() bool { return true }

func pod(name, version string) v1.Pod {
	return v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
}

func podList(version string, pods ...v1.Pod) *v1.PodList {
	return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: pods}
}

// TestTeeCatchesUp: what was missed while the watch was broken shows as what is
// left of it, and a follower sees all of it in order.
func TestTeeCatchesUp(t *testing.T) {
	s := &scripted{
		lists: []*v1.PodList{
			podList("10", pod("a", "1"), pod("b", "2")),
			podList("30", pod("b", "2"), pod("c", "25")),
		},
		watching: make(chan *watch.FakeWatcher, 10),
	}
	tee, err := FollowListerWatcher(podResource, s, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer tee.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := tee.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	w := <-s.watching
	changed := pod("a", "11")
	w.Modify(&changed)
	gone := metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	w.Error(&gone)
	w.Stop()
	<-s.watching

	got := tee.Storm(tee.Seal())
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	var events []string
	for _, e := range got.Events {
		events = append(events, string(e.Type)+" "+e.Key)
	}
	want := "ADDED ns/a,ADDED ns/b,MODIFIED ns/a,MODIFIED ns/b,ADDED ns/c,DELETED ns/a"
	if strings.Join(events, ",") != want || got.Initial != 2 || tee.Relists() != 1 {
		t.Errorf("initial %d, %d relists, %s; want %s", got.Initial, tee.Relists(), events, want)
	}

	// What is shown can be listed and watched by any number.
	src := tee.Source()
	defer func() { _ = src.Close() }()
	list, err := cache.ToListerWatcherWithContext(src.ListerWatcher()).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pods := list.(*v1.PodList); len(pods.Items) != 2 || pods.ResourceVersion != "6" {
		t.Errorf("listed %d pods at %s", len(pods.Items), pods.ResourceVersion)
	}
}

// TestDetached: nothing is left of where a recorded pod came from that would have
// the cluster act on it.
func TestDetached(t *testing.T) {
	s, err := trace.Load("recorded-nodeloss")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{}
	w, err := NewWriter(c, podResource, "test")
	if err != nil {
		t.Fatal(err)
	}
	bound := 0
	// One in fifty: they are much alike.
	for i := 0; i < len(s.Events); i += 50 {
		before := s.Events[i].Object.DeepCopyObject()
		u, err := w.object(s.Events[i].Object)
		if err != nil {
			t.Fatal(err)
		}
		if original := before.(*v1.Pod); original.Spec.NodeName != "" {
			bound++
		}
		var p v1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &p, true); err != nil {
			t.Fatal(err)
		}
		m := p.ObjectMeta
		switch {
		case p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) != 1 || p.Spec.Priority != nil || p.Spec.ServiceAccountName != "":
			t.Fatalf("event %d: it could run: %+v", i+1, p.Spec)
		case m.UID != "" || m.ResourceVersion != "" || len(m.OwnerReferences)+len(m.Finalizers)+len(m.ManagedFields) > 0 || m.DeletionTimestamp != nil:
			t.Fatalf("event %d: %+v", i+1, m)
		case m.Labels[RunLabel] != "test" || !strings.HasPrefix(m.Namespace, "watchlab-test-") || p.Kind != "Pod" || p.APIVersion != "v1":
			t.Fatalf("event %d: %s/%s of run %s, %s", i+1, m.Namespace, m.Name, m.Labels[RunLabel], p.Kind)
		}
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			for _, mount := range c.VolumeMounts {
				found := false
				for _, v := range p.Spec.Volumes {
					found = found || v.Name == mount.Name
				}
				if !found {
					t.Fatalf("event %d: a mount of volume %s, which is gone", i+1, mount.Name)
				}
			}
		}
		if again, _ := w.object(before); !strings.EqualFold(again.GetName(), u.GetName()) {
			t.Fatalf("event %d: the storm's object was changed", i+1)
		}
	}
	if bound == 0 {
		t.Error("no pod of the recording was bound to a node: nothing was shown")
	}
}

func TestWriterRefuses(t *testing.T) {
	if _, err := NewWriter(&Cluster{}, Resource{Kind: schema.GroupVersionKind{Kind: "Node"}}, "run"); !errors.Is(err, ErrNotWritable) {
		t.Errorf("nodes: %v", err)
	}
	for _, run := range []string{"", "Upper", "a-name-that-is-much-too-long", "-"} {
		if _, err := NewWriter(&Cluster{}, podResource, run); err == nil {
			t.Errorf("run %q was taken", run)
		}
	}
	w, err := NewWriter(&Cluster{}, podResource, "run")
	if err != nil {
		t.Fatal(err)
	}
	leases, err := trace.Load("recorded-nodeloss-leases")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Play(t.Context(), leases, nil); !errors.Is(err, ErrNotWritable) {
		t.Errorf("leases by a writer of pods: %v", err)
	}
	if name := w.namespace(strings.Repeat("x", 70)); len(name) != 63 {
		t.Errorf("a namespace of %d characters", len(name))
	}
}
