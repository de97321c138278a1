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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/loadgen/share"
)

// Phase is how far a shard is.
type Phase string

// The phases.
const (
	// Absent: there is no pod of it, or none any more.
	Absent Phase = "absent"
	// Waiting: its pod waits for a node, or its image.
	Waiting Phase = "waiting"
	// Running: its pod runs.
	Running Phase = "running"
	// Failed: its last pod failed; unless the Job gives it up, another follows.
	Failed Phase = "failed"
	// GivenUp: it failed too often, or for bad input.
	GivenUp Phase = "given up"
	// Succeeded: it has come to its end.
	Succeeded Phase = "succeeded"
)

// Shard is what the cluster knows of one.
type Shard struct {
	Writer bool
	Index  int

	Pod, Node string
	Phase     Phase

	Reason string

	Failures int

	Where string

	Delivered bool
}

// State is what the cluster knows of a run.
type State struct {
	Ref
	Plan share.Plan

	Shards []Shard

	Over bool

	Failure string
}

// Count returns how many of the shards that play, not of those that write, have a
// phase.
func (s State) Count(p Phase) int {
	n := 0
	for _, sh := range s.Shards {
		if !sh.Writer && sh.Phase == p {
			n++
		}
	}
	return n
}

// Delivered returns how many results are there. Only those in ConfigMaps are seen.
func (s State) Delivered() int {
	n := 0
	for _, sh := range s.Shards {
		if sh.Delivered {
			n++
		}
	}
	return n
}

// seen is what was seen of a run, in no order.
type seen struct {
	plan   share.Plan
	jobs   []*batchv1.Job
	pods   []*corev1.Pod
	leases []*coordinationv1.Lease
	maps   []*metav1.PartialObjectMetadata
}

// state makes of it what can be told.
func (v seen) state(ref Ref) State {
	s := State{Ref: ref, Plan: v.plan}
	for _, role := range []struct {
		writer bool
		n      int
		job    string
	}{{false, v.plan.Shards, ref.object("")}, {true, v.plan.Writers, ref.object(writerSuffix)}} {
		at := slices.IndexFunc(v.jobs, func(j *batchv1.Job) bool { return j.Name == role.job })
		var job *batchv1.Job
		if at >= 0 {
			job = v.jobs[at]
		}
		shards := make([]Shard, role.n)
		for i := range shards {
			shards[i] = Shard{Writer: role.writer, Index: i, Phase: Absent}
		}
		v.fromPods(shards, role.job)
		if job != nil {
			fromJob(shards, job)
		}
		if !role.writer {
			v.delivered(shards)
			s.Over, s.Failure = ended(job)
		}
		v.where(shards)
		s.Shards = append(s.Shards, shards...)
	}
	return s
}

// ended reports whether a Job has, and why it failed.
func ended(job *batchv1.Job) (over bool, failure string) {
	if job == nil {
		return true, ""
	}
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

// fromPods tells of the last pod of each shard, and of how many failed.
func (v seen) fromPods(shards []Shard, job string) {
	pods := make([][]*corev1.Pod, len(shards))
	for _, p := range v.pods {
		i, err := strconv.Atoi(p.Labels[batchv1.JobCompletionIndexAnnotation])
		if err == nil && i >= 0 && i < len(shards) && p.Labels[batchv1.JobNameLabel] == job {
			pods[i] = append(pods[i], p)
		}
	}
	for i, of := range pods {
		if len(of) == 0 {
			continue
		}
		last := slices.MaxFunc(of, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(failures(a), failures(b)), cmp.Compare(a.Name, b.Name))
		})
		sh := &shards[i]
		sh.Pod, sh.Node = last.Name, last.Spec.NodeName
		sh.Phase, sh.Reason = phase(last)
		for _, p := range of {
			if p.Status.Phase == corev1.PodFailed {
				sh.Failures++
			}
		}
		// A failed pod may be gone; the Job controller notes on each pod how many there
		// were before it.
		before := failures(last)
		if last.Status.Phase == corev1.PodFailed {
			before++
		}
		sh.Failures = max(sh.Failures, before)
	}
}

// failures is how many pods of its index had failed before the pod was made.
func failures(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[batchv1.JobIndexFailureCountAnnotation])
	if err != nil {
		return 0
	}
	return n
}

// phase tells how far a pod is, and why no further.
func phase(p *corev1.Pod) (is Phase, reason string) {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return Succeeded, ""
	case corev1.PodFailed:
		return Failed, why(p)
	case corev1.PodRunning:
		return Running, ""
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
			return Waiting, w.Reason
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return Waiting, c.Reason
		}
	}
	return Waiting, ""
}

// why a pod failed.
func why(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c.Reason
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			if t.Reason == "" || t.Reason == "Error" {
				return fmt.Sprintf("exit code %d", t.ExitCode)
			}
			return fmt.Sprintf("exit code %d, %s", t.ExitCode, t.Reason)
		}
	}
	return p.Status.Reason
}

// fromJob tells what the Job knows for good, when pods are gone, too.
func fromJob(shards []Shard, job *batchv1.Job) {
	for _, i := range indexes(job.Status.CompletedIndexes, len(shards)) {
		shards[i].Phase, shards[i].Reason = Succeeded, ""
	}
	if job.Status.FailedIndexes != nil {
		for _, i := range indexes(*job.Status.FailedIndexes, len(shards)) {
			shards[i].Phase = GivenUp
		}
	}
}

// indexes reads what a Job's status has of them, such as 0-2,5. What is no index below
// n is left out.
func indexes(text string, n int) []int {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, many := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		last := first
		if many {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		for i := max(first, 0); i <= min(last, n-1); i++ {
			all = append(all, i)
		}
	}
	return all
}
