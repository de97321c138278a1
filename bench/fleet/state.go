package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Phase is the state of one index of a Job.
type Phase string

// The phases.
const (
	Absent    Phase = "absent"    // the index has no pod, or none any more
	Waiting   Phase = "waiting"   // the pod waits for a node or for its image
	Running   Phase = "running"   // the pod runs
	Failed    Phase = "failed"    // the last pod failed; the Job may retry the index
	GivenUp   Phase = "given up"  // no retry: too many failures, or a permanent one
	Succeeded Phase = "succeeded" // a pod of the index uploaded its result and ended
)

// Pod is the state of one index of the run's Job.
type Pod struct {
	Index      int    // completion index of the Job
	Name, Node string // of the last pod
	Image      string // of its first container, or of the one that waits
	Phase      Phase  // of the index
	Reason     string // says why the pod waits or failed; empty otherwise
	Message    string // what a waiting pod lacks, of the kubelet or scheduler; empty otherwise
	Failures   int    // number of failed pods of the index
	Progress   string // from its Lease, such as "play 12 of 40, …"; empty if unknown
}

// State is the state of a run in the cluster.
type State struct {
	Ref
	Plan    Plan   // of the run
	Pods    []Pod  // by index
	Over    bool   // the Job has ended or was deleted
	Failure string // reason of a failed Job; empty otherwise
}

// Count returns the number of pods in a phase.
func (s State) Count(phase Phase) int {
	n := 0
	for _, p := range s.Pods {
		if p.Phase == phase {
			n++
		}
	}
	return n
}

type objects struct {
	plan   Plan
	jobs   []*batchv1.Job
	pods   []*corev1.Pod
	leases []*coordinationv1.Lease
}

func (o objects) state(ref Ref) State {
	s := State{Ref: ref, Plan: o.plan, Pods: make([]Pod, o.plan.Pods)}
	for i := range s.Pods {
		s.Pods[i] = Pod{Index: i, Phase: Absent}
	}
	name := ref.object()
	o.readPods(s.Pods, name)
	s.Over = true // without its Job
	if i := slices.IndexFunc(o.jobs, func(j *batchv1.Job) bool { return j.Name == name }); i >= 0 {
		readJob(s.Pods, o.jobs[i])
		s.Over, s.Failure = ended(o.jobs[i])
	}
	for _, l := range o.leases { // of the pods, which are the members of the barrier
		if m, p, ok := readProgress(l); ok && m < len(s.Pods) {
			s.Pods[m].Progress = p.String()
		}
	}
	return s
}

func ended(job *batchv1.Job) (over bool, failure string) {
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return true, ""
		case batchv1.JobFailed:
			return true, strings.TrimSpace(c.Reason + ": " + c.Message)
		}
	}
	return false, ""
}

// readPods fills in the last pod of each index and its failures.
func (o objects) readPods(pods []Pod, job string) {
	byIndex := make([][]*corev1.Pod, len(pods))
	for _, p := range o.pods {
		i, err := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation])
		if err == nil && i >= 0 && i < len(pods) && p.Labels[batchv1.JobNameLabel] == job {
			byIndex[i] = append(byIndex[i], p)
		}
	}
	for i, attempts := range byIndex {
		pods[i].read(attempts)
	}
}

// read fills in the last of several pods, and how many failed.
func (p *Pod) read(attempts []*corev1.Pod) {
	if len(attempts) == 0 {
		return
	}
	last := slices.MaxFunc(attempts, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(failures(a), failures(b)), cmp.Compare(a.Name, b.Name))
	})
	p.Name, p.Node = last.Name, last.Spec.NodeName
	if len(last.Spec.Containers) > 0 {
		p.Image = last.Spec.Containers[0].Image
	}
	p.phase(last)
	// The Job controller deletes failed pods and records their number on the next one.
	p.Failures = failures(last)
	if last.Status.Phase == corev1.PodFailed {
		p.Failures++
	}
}

// failures returns the number of pods of the index that failed before this one.
func failures(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Annotations[batchv1.JobIndexFailureCountAnnotation])
	return n // 0 without the annotation
}

// phase fills in the phase of a pod and what says why.
func (p *Pod) phase(of *corev1.Pod) {
	containers := slices.Concat(of.Status.InitContainerStatuses, of.Status.ContainerStatuses)
	switch of.Status.Phase {
	case corev1.PodSucceeded:
		p.Phase = Succeeded
	case corev1.PodFailed:
		p.Phase = Failed
		p.failure(of, containers)
	case corev1.PodRunning:
		p.Phase = Running
	default:
		p.Phase = Waiting
		p.waiting(of, containers)
	}
}

func (p *Pod) waiting(of *corev1.Pod, containers []corev1.ContainerStatus) {
	for _, c := range containers {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			p.Reason, p.Message, p.Image = w.Reason, w.Message, cmp.Or(c.Image, p.Image)
			return
		}
	}
	for _, c := range of.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			p.Reason, p.Message = c.Reason, strings.TrimSuffix(c.Message, ".")
			return
		}
	}
}

func (p *Pod) failure(of *corev1.Pod, containers []corev1.ContainerStatus) {
	p.Reason = of.Status.Reason
	for _, c := range containers {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			p.Reason = fmt.Sprintf("exit code %d", t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" {
				p.Reason += ", " + t.Reason
			}
			break
		}
	}
	for _, c := range of.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			p.Reason = c.Reason
		}
	}
}

// readJob fills in the final phases, which outlive the pods.
func readJob(pods []Pod, job *batchv1.Job) {
	for _, i := range indexes(job.Status.CompletedIndexes, len(pods)) {
		pods[i].Phase, pods[i].Reason = Succeeded, ""
	}
	if job.Status.FailedIndexes != nil {
		for _, i := range indexes(*job.Status.FailedIndexes, len(pods)) {
			pods[i].Phase = GivenUp
		}
	}
}

// indexes parses the indexes of a Job's status, such as "0-2,5". It ignores all that is none
// below n.
func indexes(text string, n int) []int {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, firstErr := strconv.Atoi(from)
		last, lastErr := strconv.Atoi(to)
		for i := max(first, 0); firstErr == nil && lastErr == nil && i <= min(last, n-1); i++ {
			all = append(all, i)
		}
	}
	return all
}
