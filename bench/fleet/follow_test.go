package fleet

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
)

// fakeFleet returns a Fleet of a fake cluster without controllers, and its Job.
func fakeFleet(t *testing.T) (*Fleet, *batchv1.Job) {
	t.Helper()
	plan, err := testPlan.YAML()
	if err != nil {
		t.Fatal(err)
	}
	ofMetadata := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(ofMetadata); err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "watchlab-mine", Namespace: "lab", Labels: map[string]string{RunLabel: "mine", nameLabel: appName}}
	job := &batchv1.Job{ObjectMeta: meta}
	return &Fleet{
		dynamic:  dynamicfake.NewSimpleDynamicClient(scheme.Scheme, job, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{planName: string(plan)}}),
		metadata: metadatafake.NewSimpleMetadataClient(ofMetadata),
	}, job
}

// put writes an object as controllers and the kubelet do.
func (f *Fleet) put(t *testing.T, r schema.GroupVersionResource, o runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Error(err)
		return
	}
	u := &unstructured.Unstructured{Object: content}
	client := f.dynamic.Resource(r).Namespace("lab")
	if _, err = client.Create(t.Context(), u, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = client.Update(t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// noHint is advice for no pod.
func noHint(Pod) string { return "" }

// TestFollow: each change is shown once, and the end of the Job ends Follow.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job := fakeFleet(t)
		go func() {
			time.Sleep(time.Second) // On the bubble's clock: until it has looked.
			for i := range 4 {
				f.put(t, pods, podOf(i, 0, corev1.PodRunning))
			}
			time.Sleep(2 * time.Second)
			job.Status = batchv1.JobStatus{CompletedIndexes: "0-3", Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
			f.put(t, jobs, job)
		}()
		var said []string
		s, err := f.Follow(t.Context(), testRef, time.Minute, noHint, func(text string) { said = append(said, text) })
		if err != nil || !s.Over || s.Count(Succeeded) != 4 {
			t.Errorf("Follow returned %+v, %v", s, err)
		}
		if want := []string{"4 pods: 4 absent", "4 pods: 4 running", "4 pods: 4 succeeded"}; !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	})
}

// TestFollowWaits: a pod that never starts ends Follow; one that starts in time does not.
func TestFollowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := fakeFleet(t)
		go func() {
			for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending} {
				pod := podOf(i, 0, corev1.PodPending)
				f.put(t, pods, pod)
				time.Sleep(50 * time.Second)
				pod.Status.Phase = phase
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "1 Insufficient cpu"}}
				f.put(t, pods, pod)
			}
		}()
		began := time.Now()
		hint := func(p Pod) string { return StartHint(p, "kind-lab", "kind", "lab") }
		var said []string
		_, err := f.Follow(t.Context(), testRef, time.Minute, hint, func(text string) { said = append(said, text) })
		const waits = "Unschedulable: 1 Insufficient cpu; overlay kind asks for more than the nodes have"
		if !slices.Contains(said, "pod 1 waits: "+waits) || len(slices.Compact(slices.Sorted(slices.Values(said)))) != len(said) {
			t.Errorf("said %q", said)
		}
		const want = "pod watchlab-mine-1-0 has waited for 1m0s: " + waits
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if took := time.Since(began); took < 110*time.Second || took > 114*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

func TestFollowCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := fakeFleet(t)
		ctx, cancel := context.WithCancel(t.Context())
		shown := 0
		s, err := f.Follow(ctx, testRef, time.Minute, noHint, func(string) { shown++; cancel() })
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
