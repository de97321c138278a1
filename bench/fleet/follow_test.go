package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/source/cluster"
)

// fakeCluster stores what controllers and the kubelet write.
type fakeCluster struct {
	clienttesting.ObjectTracker
	job *batchv1.Job
}

// ListerWatcher ignores the selector.
func (c fakeCluster) ListerWatcher(r cluster.Resource, in cluster.Scope) (cache.ListerWatcher, error) {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return c.List(r.GroupVersionResource, r.Kind, in.Namespace)
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(r.GroupVersionResource, in.Namespace)
		},
	}, c.ObjectTracker), nil
}

// fakeFleet returns a Fleet of a fake cluster without controllers.
func fakeFleet(t *testing.T, deployments ...string) (*Fleet, fakeCluster) {
	t.Helper()
	p := testPlan
	p.Deployments = deployments
	plan, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{RunLabel: "mine"}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "watchlab-mine", Namespace: "lab", Labels: labels}}
	ofMetadata := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(ofMetadata); err != nil {
		t.Fatal(err)
	}
	c := fakeCluster{clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()), job}
	if err := c.Create(jobs, job, "lab"); err != nil {
		t.Fatal(err)
	}
	return &Fleet{
		typed: c.ListerWatcher,
		dynamic: dynamicfake.NewSimpleDynamicClient(scheme.Scheme, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "watchlab-mine", Namespace: "lab", Labels: labels},
			Data:       map[string]string{planName: string(plan)},
		}),
		metadata: metadatafake.NewSimpleMetadataClient(ofMetadata),
	}, c
}

// TestFollow: each change is shown once, and the end of the Job ends Follow. Ending ctx
// does not end the run.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := fakeFleet(t)
		var shown []State
		type result struct {
			State
			error
		}
		done := make(chan result)
		warn := func(err error) { t.Errorf("warned: %v", err) }
		go func() {
			s, err := f.Follow(t.Context(), testRef, time.Minute, func(s State) { shown = append(shown, s) }, warn)
			done <- result{s, err}
		}()
		time.Sleep(time.Second) // On the bubble's clock: until it has listed.
		for i := range 4 {
			if err := c.Create(pods, podOf(i, 0, corev1.PodRunning), "lab"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		c.job.Status = batchv1.JobStatus{CompletedIndexes: "0-3", Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
		if err := c.Update(jobs, c.job, "lab"); err != nil {
			t.Fatal(err)
		}
		r := <-done
		if r.error != nil || !r.Over || r.Count(Succeeded) != 4 {
			t.Errorf("Follow returned %+v, %v", r.State, r.error)
		}
		if len(shown) != 3 || shown[0].Count(Absent) != 4 || shown[1].Count(Running) != 4 || !shown[2].Over {
			t.Errorf("shown: %+v", shown)
		}
	})
}

// TestFollowWaits: a pod that never starts ends Follow; one that starts in time does not.
func TestFollowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := fakeFleet(t)
		go func() {
			for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending} {
				pod := podOf(i, 0, corev1.PodPending)
				_ = c.Create(pods, pod, "lab")
				time.Sleep(50 * time.Second)
				pod.Status.Phase = phase
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "1 Insufficient cpu"}}
				_ = c.Update(pods, pod, "lab")
			}
		}()
		began := time.Now()
		_, err := f.Follow(t.Context(), testRef, time.Minute, func(State) {}, func(err error) { t.Errorf("warned: %v", err) })
		const want = "pod watchlab-mine-1-0 has waited for 1m0s: Unschedulable: 1 Insufficient cpu"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if took := time.Since(began); took < 110*time.Second || took > 114*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// TestFollowDeployment: an observer without its image ends Follow, while the pods run; one whose
// image is being pulled does not.
func TestFollowDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := fakeFleet(t, "grafana", "tempo")
		for _, p := range []*corev1.Pod{podOf(0, 0, corev1.PodRunning), deployed("tempo", "ContainerCreating"), deployed("grafana", "ImagePullBackOff")} {
			if p.Labels[nameLabel] == "" {
				p.Labels[nameLabel] = appName
			}
			if err := c.Create(pods, p, "lab"); err != nil {
				t.Fatal(err)
			}
		}
		var shown State
		_, err := f.Follow(t.Context(), testRef, time.Minute, func(s State) { shown = s }, func(err error) { t.Errorf("warned: %v", err) })
		var waits *WaitError
		if !errors.As(err, &waits) || waits.Pod.Deployment != "grafana" || waits.Pod.Image != "grafana:1" {
			t.Errorf("%v", err)
		}
		if shown.Count(Running) != 1 {
			t.Errorf("shown: %+v", shown)
		}
	})
}

func TestFollowCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := fakeFleet(t)
		ctx, cancel := context.WithCancel(t.Context())
		shown := 0
		s, err := f.Follow(ctx, testRef, time.Minute, func(State) { shown++; cancel() }, func(err error) { t.Errorf("warned: %v", err) })
		if !errors.Is(err, context.Canceled) || s.Over || shown != 1 {
			t.Errorf("%+v, %v, shown %d times", s, err, shown)
		}
	})
}

func TestNoRun(t *testing.T) {
	f, _ := fakeFleet(t)
	for _, err := range []error{
		f.Clean(t.Context(), Ref{"lab", "other"}),
		func() error { _, err := f.Status(t.Context(), Ref{"lab", "other"}); return err }(),
		f.CleanAll(t.Context(), "other"),
	} {
		if !errors.Is(err, ErrNoRun) {
			t.Errorf("%v", err)
		}
	}
	s, err := f.Status(t.Context(), testRef)
	if err != nil || s.Count(Absent) != 4 || s.Over {
		t.Errorf("%+v, %v", s, err)
	}
}
