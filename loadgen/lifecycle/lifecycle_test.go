package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// world is a server with a cluster, in a bubble of virtual time.
type world struct {
	*testing.T
	server  *apiserver.Server
	cluster *Cluster
	users   *kubernetes.Clientset
	dynamic dynamic.Interface // of users
	err     error             // of Run, after stop
	stop    func()
}

// inWorld runs a test in a world with a storm (or nil) and stages in YAML (or "" for the built-in ones).
func inWorld(t *testing.T, opts Options, s *storm.Storm, stages string, f func(*world)) {
	t.Helper()
	opts.Stages = readStages(t, stages)
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, cluster: New(opts)}
		var storms []*apiserver.Prepared
		if s != nil {
			p, err := apiserver.Prepare(s, wire.JSON, false)
			if err != nil {
				t.Fatal(err)
			}
			storms = append(storms, p)
		}
		var err error
		if w.server, err = apiserver.Open(apiserver.Options{Graceful: true, Changed: w.cluster.Observe}, storms...); err != nil {
			t.Fatal(err)
		}
		config := func(name string) *rest.Config {
			return &rest.Config{Host: "http://in.process", Transport: w.server.Transport(name), QPS: -1}
		}
		if w.users, err = kubernetes.NewForConfig(config("user")); err != nil {
			t.Fatal(err)
		}
		if w.dynamic, err = dynamic.NewForConfig(config("user")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		w.stop = func() { cancel(); <-ended }
		defer w.stop()
		go func() {
			defer close(ended)
			w.err = w.cluster.Run(ctx, config("lifecycle"))
		}()
		f(w)
	})
}

// readStages reads stages from YAML.
func readStages(t *testing.T, text string) []Stage {
	t.Helper()
	var files []string
	if text != "" {
		files = []string{filepath.Join(t.TempDir(), "stages.yaml")}
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stages, err := ReadStages(files...)
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

// settle waits until the cluster is quiet, up to a virtual hour, and returns how long that took.
func (w *world) settle() time.Duration {
	w.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		synctest.Wait()
		if w.cluster.Quiet() {
			return time.Since(began)
		}
		if time.Since(began) > time.Hour {
			w.Fatal("the cluster is not quiet after an hour")
		}
	}
}

func must[T any](w *world, v T, err error) T {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	return v
}

func (w *world) node(name string, ready corev1.ConditionStatus, unschedulable bool) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: unschedulable}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	created, err := w.users.CoreV1().Nodes().Create(w.Context(), n, metav1.CreateOptions{})
	n.ResourceVersion = must(w, created, err).ResourceVersion
	_, err = w.users.CoreV1().Nodes().UpdateStatus(w.Context(), n, metav1.UpdateOptions{})
	must(w, 0, err)
}

// pod creates a pod of two containers.
func (w *world) pod(p *corev1.Pod) *corev1.Pod {
	w.Helper()
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/main:1"}, {Name: "side", Image: "example.com/side:1"}}
	created, err := w.users.CoreV1().Pods("default").Create(w.Context(), p, metav1.CreateOptions{})
	return must(w, created, err)
}

// get returns a pod, or nil if it is gone.
func (w *world) get(name string) *corev1.Pod {
	w.Helper()
	p, err := w.users.CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return must(w, p, err)
}

func (w *world) patch(name, patch string) {
	w.Helper()
	_, err := w.users.CoreV1().Pods("default").Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(w, 0, err)
}

func (w *world) delete(name string) {
	w.Helper()
	must(w, 0, w.users.CoreV1().Pods("default").Delete(w.Context(), name, metav1.DeleteOptions{}))
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }

// TestPodRuns: a pod is bound to a node that is ready, runs, and ends some time after its deletion.
func TestPodRuns(t *testing.T) {
	inWorld(t, Options{}, nil, "", func(w *world) {
		w.node("down", corev1.ConditionFalse, false)
		w.node("cordoned", corev1.ConditionTrue, true)
		w.node("up", corev1.ConditionTrue, false)
		w.settle()
		w.pod(&corev1.Pod{ObjectMeta: named("a")})
		if took := w.settle(); took < time.Second || took > 2*time.Second+scheduling*5/4 {
			t.Errorf("it runs after %v, want 1 s to 2 s after its binding", took)
		}
		p := w.get("a")
		if p.Spec.NodeName != "up" || p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || p.Status.StartTime == nil {
			t.Errorf("on node %q: %+v", p.Spec.NodeName, p.Status)
		}
		if i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }); i < 0 ||
			p.Status.Conditions[i].Status != corev1.ConditionTrue {
			t.Errorf("conditions: %v, want Ready", p.Status.Conditions)
		}
		var containers []string
		for _, c := range p.Status.ContainerStatuses {
			containers = append(containers, fmt.Sprint(c.Name, " ", c.Ready, c.State.Running != nil))
		}
		if got := strings.Join(containers, ", "); got != "main true true, side true true" {
			t.Errorf("containers: %s", got)
		}
		w.delete("a")
		if p := w.get("a"); p == nil || p.DeletionTimestamp == nil {
			t.Fatalf("after the deletion: %v, want the pod with a deletionTimestamp", p)
		}
		if took := w.settle(); took < time.Second || took > 2*time.Second || w.get("a") != nil {
			t.Errorf("after %v: %v, want it gone after 1 s to 2 s", took, w.get("a"))
		}
	})
}

// TestPods plays changes and looks at the pods after each: name, node, phase, and a + while one is being deleted.
func TestPods(t *testing.T) {
	type step struct {
		do   func(w *world)
		want string
	}
	patch := func(name, text string) func(*world) { return func(w *world) { w.patch(name, text) } }
	create := func(meta metav1.ObjectMeta, spec corev1.PodSpec) func(*world) {
		return func(w *world) { w.pod(&corev1.Pod{ObjectMeta: meta, Spec: spec}) }
	}
	held, ofStorm := named("a"), named("child")
	held.Finalizers = []string{"example.com/hold"}
	ofStorm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "s", UID: "pod-of-the-storm"}}
	gated := corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/gate"}}}
	for name, c := range map[string]struct {
		storm *storm.Storm
		steps []step
	}{
		"scheduling gates hold up the binding, finalizers the end": {nil, []step{
			{create(held, gated), "a  Pending"},
			{patch("a", `{"spec":{"schedulingGates":null}}`), "a node-0 Running"},
			{func(w *world) { w.delete("a") }, "a node-0 Running+"},
			{patch("a", `{"metadata":{"finalizers":null}}`), ""},
		}},
		"pods of Jobs succeed": {nil, []step{{func(w *world) {
			meta := named("a")
			job, err := w.users.BatchV1().Jobs("default").Create(w.Context(), &batchv1.Job{ObjectMeta: named("j")}, metav1.CreateOptions{})
			meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: must(w, job, err).UID}}
			w.pod(&corev1.Pod{ObjectMeta: meta})
		}, "a node-0 Succeeded"}}},
		"pods of a storm are left alone until a client deletes them": {stormOf(), []step{
			{func(*world) {}, "s  "},
			{patch("s", `{"metadata":{"labels":{"a":"b"}}}`), "s  "},
			{func(w *world) { w.delete("s") }, ""},
		}},
		"dependents of a storm's pod go with it": {stormOf(), []step{
			{create(ofStorm, corev1.PodSpec{}), "child node-0 Running, s  "},
			{func(w *world) { w.delete("s") }, ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, c.storm, "", func(w *world) {
				for i, s := range c.steps {
					s.do(w)
					w.settle()
					list, err := w.users.CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{})
					var got []string
					for _, p := range must(w, list, err).Items {
						text := fmt.Sprint(p.Name, " ", p.Spec.NodeName, " ", p.Status.Phase)
						if p.DeletionTimestamp != nil {
							text += "+"
						}
						got = append(got, text)
					}
					if text := strings.Join(got, ", "); text != s.want {
						t.Errorf("step %d: %q, want %q", i+1, text, s.want)
					}
				}
			})
		})
	}
}

// TestNodesInTurn: pods that come one by one go to all nodes alike; a node that is deleted gets none.
func TestNodesInTurn(t *testing.T) {
	inWorld(t, Options{}, nil, "", func(w *world) {
		for i := range 3 {
			w.node(fmt.Sprint("n", i), corev1.ConditionTrue, false)
		}
		w.settle()
		count := func(from, to int) string {
			got := map[string]int{}
			for i := from; i < to; i++ {
				w.pod(&corev1.Pod{ObjectMeta: named(fmt.Sprint("p", i))})
				w.settle()
				got[w.get(fmt.Sprint("p", i)).Spec.NodeName]++
			}
			return fmt.Sprint(got)
		}
		if got, want := count(0, 6), "map[n0:2 n1:2 n2:2]"; got != want {
			t.Errorf("pods: %s, want %s", got, want)
		}
		must(w, 0, w.users.CoreV1().Nodes().Delete(w.Context(), "n1", metav1.DeleteOptions{}))
		w.settle()
		if got, want := count(6, 10), "map[n0:2 n2:2]"; got != want {
			t.Errorf("pods without n1: %s, want %s", got, want)
		}
	})
}

// TestSpeed: all delays are divided by the speed.
func TestSpeed(t *testing.T) {
	inWorld(t, Options{Speed: 1000}, nil, "", func(w *world) {
		w.pod(&corev1.Pod{ObjectMeta: named("a")})
		if took := w.settle(); took > 5*time.Millisecond || w.get("a").Status.Phase != corev1.PodRunning {
			t.Errorf("after %v: %s", took, w.get("a").Status.Phase)
		}
	})
}

// TestSeed: the same seed draws the same delays.
func TestSeed(t *testing.T) {
	times := map[int64][]time.Duration{}
	for _, seed := range []int64{1, 1, 2} {
		inWorld(t, Options{Seed: seed}, nil, "", func(w *world) {
			w.pod(&corev1.Pod{ObjectMeta: named("a")})
			times[seed] = append(times[seed], w.settle())
		})
	}
	if times[1][0] != times[1][1] || times[1][0] == times[2][0] {
		t.Errorf("it took %v with the seed 1 twice and %v with 2", times[1], times[2])
	}
}

// stormOf is a storm with one pod that has no node and an owner that is not in the storm.
func stormOf() *storm.Storm {
	p := &corev1.Pod{ObjectMeta: named("s")}
	p.UID, p.ResourceVersion = "pod-of-the-storm", "1"
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "elsewhere"}}
	return &storm.Storm{
		Name: "one", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: corev1.SchemeGroupVersion.WithKind("Pod"),
		Keys: 1, Initial: 1, Events: []storm.Event{{Type: watch.Added, Seq: 1, Key: "default/s", Object: p}},
	}
}

// TestRunFails: an action that no retry can mend ends Run, with the object in the error.
func TestRunFails(t *testing.T) {
	inWorld(t, Options{}, nil, stage("broken", "", "", `statusTemplate: "{{ .nothing | printf \"%d: [\" }}"`), func(w *world) {
		w.pod(&corev1.Pod{ObjectMeta: named("a")})
		time.Sleep(time.Minute)
		w.stop()
		if w.err == nil || !strings.Contains(w.err.Error(), "lifecycle: stage broken of Pod a: template: ") {
			t.Errorf("Run: %v", w.err)
		}
	})
	inWorld(t, Options{}, nil, "", func(w *world) {
		w.settle()
		w.stop()
		if !errors.Is(w.err, context.Canceled) {
			t.Errorf("Run: %v, want the error of its context", w.err)
		}
	})
}
