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
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
)

// fakeFleet returns a Fleet of a fake cluster without controllers.
func fakeFleet(t *testing.T, deployments ...string) (*Fleet, *batchv1.Job) {
	t.Helper()
	p := testPlan
	p.Deployments = deployments
	plan, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{RunLabel: "mine"}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "watchlab-mine", Namespace: "lab", Labels: labels}}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &Fleet{
		client: fake.NewClientset(job, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "watchlab-mine", Namespace: "lab", Labels: labels},
			Data:       map[string]string{planName: string(plan)},
		}),
		metadata: metadatafake.NewSimpleMetadataClient(scheme),
	}, job
}

// TestFollow: each change is shown once, and the end of the Job ends Follow. Ending ctx
// does not end the run.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job := fakeFleet(t)
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
		pods := f.client.CoreV1().Pods("lab")
		for i := range 4 {
			if _, err := pods.Create(t.Context(), podOf(i, 0, corev1.PodRunning), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		job.Status = batchv1.JobStatus{CompletedIndexes: "0-3", Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
		if _, err := f.client.BatchV1().Jobs("lab").UpdateStatus(t.Context(), job, metav1.UpdateOptions{}); err != nil {
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
		f, _ := fakeFleet(t)
		pods := f.client.CoreV1().Pods("lab")
		go func() {
			for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending} {
				pod := podOf(i, 0, corev1.PodPending)
				_, _ = pods.Create(t.Context(), pod, metav1.CreateOptions{})
				time.Sleep(50 * time.Second)
				pod.Status.Phase = phase
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "1 Insufficient cpu"}}
				_, _ = pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
			}
		}()
		began := time.Now()
		_, err := f.Follow(t.Context(), testRef, time.Minute, func(State) {}, func(err error) { t.Errorf("warned: %v", err) })
		const want = "pod watchlab-mine-1-0 has waited for 1m0s: Unschedulable: 1 Insufficient cpu"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if took := time.Since(began); took < 110*time.Second || took > 111*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// TestFollowDeployment: an observer without its image ends Follow, while the pods run; one whose
// image is being pulled does not.
func TestFollowDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := fakeFleet(t, "grafana", "tempo")
		for _, p := range []*corev1.Pod{podOf(0, 0, corev1.PodRunning), deployed("tempo", "ContainerCreating"), deployed("grafana", "ImagePullBackOff")} {
			if p.Labels[nameLabel] == "" {
				p.Labels[nameLabel] = appName
			}
			if _, err := f.client.CoreV1().Pods("lab").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
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
