package fleet

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	testRef  = Ref{Namespace: "lab", Run: "mine"}
	testPlan = Plan{Run: "mine", Pods: 4}
)

// podOf returns the n-th pod of an index.
func podOf(index, nth int, phase corev1.PodPhase) *corev1.Pod {
	name := "watchlab-mine-" + strconv.Itoa(index) + "-" + strconv.Itoa(nth)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "lab", CreationTimestamp: metav1.NewTime(time.Unix(int64(nth), 0)),
			Labels: map[string]string{
				RunLabel: "mine", batchv1.JobNameLabel: "watchlab-mine", batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index),
			},
			Annotations: map[string]string{batchv1.JobIndexFailureCountAnnotation: strconv.Itoa(nth)},
		},
		Spec:   corev1.PodSpec{NodeName: "n" + strconv.Itoa(index)},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func exited(p *corev1.Pod, code int32, reason string) *corev1.Pod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
	}}}
	return p
}

func TestState(t *testing.T) {
	pulling := podOf(3, 0, corev1.PodPending)
	pulling.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"},
	}}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "watchlab-mine"}}
	v := objects{
		plan: testPlan, jobs: []*batchv1.Job{job},
		pods: []*corev1.Pod{
			podOf(1, 1, corev1.PodRunning), exited(podOf(1, 0, corev1.PodFailed), 137, "OOMKilled"),
			exited(podOf(0, 0, corev1.PodSucceeded), 0, "Completed"), pulling,
			exited(podOf(2, 0, corev1.PodFailed), 1, "Error"),
		},
	}
	got := v.state(testRef)
	want := []Pod{
		{Index: 0, Name: "watchlab-mine-0-0", Node: "n0", Phase: Succeeded},

		{Index: 1, Name: "watchlab-mine-1-1", Node: "n1", Phase: Running, Failures: 1},
		{Index: 2, Name: "watchlab-mine-2-0", Node: "n2", Phase: Failed, Reason: "exit code 1", Failures: 1},
		{Index: 3, Name: "watchlab-mine-3-0", Node: "n3", Phase: Waiting, Reason: "ImagePullBackOff"},
	}
	if d := cmp.Diff(want, got.Pods); d != "" || got.Over || got.Failure != "" {
		t.Errorf("%+v (-want +got):\n%s", got, d)
	}
	if got.Count(Running) != 1 || got.Count(Absent) != 0 {
		t.Errorf("%d run, %d absent", got.Count(Running), got.Count(Absent))
	}

	// The Job keeps the final phases after the pods are deleted.
	failed := "2"
	job.Status = batchv1.JobStatus{
		CompletedIndexes: "0-1,3", FailedIndexes: &failed,
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "FailedIndexes", Message: "Job has failed indexes"}},
	}
	v.pods = nil
	got = v.state(testRef)
	if !got.Over || got.Failure != "FailedIndexes: Job has failed indexes" || got.Count(Succeeded) != 3 || got.Pods[2].Phase != GivenUp {
		t.Errorf("over: %+v", got)
	}
	v.jobs = nil
	if got = v.state(testRef); !got.Over || got.Count(Absent) != 4 {
		t.Errorf("gone: %+v", got)
	}
}

func TestWhy(t *testing.T) {
	evicted := exited(podOf(0, 0, corev1.PodFailed), 143, "Error")
	evicted.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
	noNode := podOf(0, 0, corev1.PodPending)
	noNode.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no cpu."}}
	noImage := podOf(0, 0, corev1.PodPending)
	noImage.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no host"},
	}}}
	noImage.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"},
	}}}
	lost := podOf(0, 0, corev1.PodFailed)
	lost.Status.Reason = "NodeLost"
	for _, tt := range []struct {
		pod             *corev1.Pod
		phase           Phase
		reason, message string
	}{
		{evicted, Failed, "EvictionByEvictionAPI", ""},
		{noNode, Waiting, "Unschedulable", "no cpu"},
		{noImage, Waiting, "ErrImagePull", "no host"},
		{lost, Failed, "NodeLost", ""},
		{exited(podOf(0, 0, corev1.PodFailed), 2, "Error"), Failed, "exit code 2", ""},
		{exited(podOf(0, 0, corev1.PodFailed), 137, "OOMKilled"), Failed, "exit code 137, OOMKilled", ""},
		{podOf(0, 0, corev1.PodPending), Waiting, "", ""},
	} {
		var p Pod
		if p.phase(tt.pod); p.Phase != tt.phase || p.Reason != tt.reason || p.Message != tt.message {
			t.Errorf("%+v, want %s (%s: %s)", p, tt.phase, tt.reason, tt.message)
		}
	}
}

func TestIndexes(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "0": {0}, "1-3": {1, 2, 3}, "0,2-3": {0, 2, 3}, "2-9": {2, 3}, "x,1,2-y": {1}, "7": nil, "-3": nil,
	} {
		if got := indexes(text, 4); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
