package apiserver

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/storm"
)

// changes collects what a server reports.
type changes struct {
	mu  sync.Mutex
	all []Change
}

func (c *changes) add(n Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, n)
}

// of returns the changes of a resource.
func (c *changes) of(resource string) []Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(n Change) bool { return n.Resource.Resource != resource })
}

// inProcessClient returns a client of a server without a connection.
func inProcessClient(t testing.TB, s *Server, name string) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: "http://in.process", Transport: s.Transport(name), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// churn is pods with one pod at first.
func churn(n int) *storm.Storm {
	s := pods(n)
	s.Initial = 1
	return s
}

type reported struct {
	Type    watch.EventType
	Key, By string
	Before  bool
}

func short(all []Change) []reported {
	var out []reported
	for _, c := range all {
		out = append(out, reported{c.Type, c.Key, c.By, c.Before != nil})
	}
	return out
}

// TestChanged: released events, writes of clients and those of the server itself are reported in the order
// of their versions, with their origin and both objects.
func TestChanged(t *testing.T) {
	var seen changes
	s := churn(20)
	srv, err := New(s, Options{Changed: seen.add})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(seen.of("pods")); got != s.Initial {
		t.Errorf("Open reported %d events, want the initial %d", got, s.Initial)
	}
	if got := short(seen.of("namespaces")); !slices.Contains(got, reported{watch.Added, "kube-system", "manifest", false}) {
		t.Errorf("Open reported the namespaces %v", got)
	}
	srv.Release(20) // more than what each cluster has
	ctx, due := context.Background(), time.Now().Add(-time.Second)
	users, controller := inProcessClient(t, srv, "workload"), inProcessClient(t, srv, "replica-1")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if _, err := users.CoreV1().Pods("default").Create(WithIntended(ctx, due), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	note := []byte(`{"metadata":{"labels":{"a":"b"}}}`)
	for range 2 { // the second one changes nothing
		if _, err := controller.CoreV1().Pods("default").Patch(ctx, "mine", types.MergePatchType, note, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := controller.CoreV1().Pods("default").Patch(ctx, "mine", types.MergePatchType, note, metav1.PatchOptions{DryRun: []string{"All"}}); err != nil {
		t.Fatal(err)
	}
	if err := users.CoreV1().Pods("default").Delete(ctx, "mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	srv.Release(uint64(len(s.Events)))

	all := seen.of("pods")
	if len(all) != len(s.Events)+3 {
		t.Fatalf("%d changes of pods, want %d of the storm and 3 of clients", len(all), len(s.Events))
	}
	want := []reported{
		{watch.Added, "default/mine", "workload", false},
		{watch.Modified, "default/mine", "replica-1", true},
		{watch.Deleted, "default/mine", "workload", true},
	}
	if diff := cmp.Diff(want, short(all[20:23])); diff != "" {
		t.Errorf("changes of clients (-want +got):\n%s", diff)
	}
	if c := all[20]; !c.Intended.Equal(due) {
		t.Errorf("the creation was due %v before it, want %v", c.At.Sub(c.Intended), c.At.Sub(due))
	}
	for i, c := range all {
		if c.Version != uint64(i+1) || c.Object.(*v1.Pod).ResourceVersion != strconv.Itoa(i+1) {
			t.Errorf("change %d has the version %d of the object %s", i+1, c.Version, c.Object.(*v1.Pod).ResourceVersion)
		}
		if i == 20 {
			continue
		}
		if !c.Intended.Equal(c.At) {
			t.Errorf("change %d was due %v before it became visible, want 0", i+1, c.At.Sub(c.Intended))
		}
	}
	// Before is the object of the previous change of the key.
	last := map[string]Change{}
	for i, c := range all {
		var want any
		if was, ok := last[c.Key]; ok && was.Type != watch.Deleted {
			want = was.Object
		}
		if c.Before == nil && want != nil || c.Before != nil && any(c.Before) != want {
			t.Errorf("change %d (%s %s) has another object before it than the change before", i+1, c.Type, c.Key)
		}
		last[c.Key] = c
	}
}

// TestChangedIsOrdered: concurrent writes and releases are reported in the order of their versions, and
// before their requests are answered.
func TestChangedIsOrdered(t *testing.T) {
	var seen changes
	s := churn(300)
	srv, err := New(s, Options{Changed: seen.add})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for w := range 4 {
		c := inProcessClient(t, srv, "c"+strconv.Itoa(w)).CoreV1().Pods("default")
		all.Go(func() {
			for i := range 30 {
				pod, err := c.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(w) + "-" + strconv.Itoa(i)}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if !slices.ContainsFunc(seen.of("pods"), func(c Change) bool { return strconv.Itoa(int(c.Version)) == pod.ResourceVersion }) {
					t.Errorf("version %s was answered and not reported", pod.ResourceVersion)
				}
			}
		})
	}
	all.Go(func() {
		for i := range s.Events {
			srv.Release(uint64(i + 1))
		}
	})
	all.Wait()
	last := uint64(0)
	for i, c := range seen.of("pods") {
		if c.Version <= last {
			t.Fatalf("change %d has the version %d, after %d", i+1, c.Version, last)
		}
		last = c.Version
	}
}
