package merge

import (
	"runtime"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These functions compare the fields that make a pod differ, with the results of
// reflect.DeepEqual. API equality would be weaker than kubelet's: it treats nil
// and empty as equal. They take pointers into pods, so that they do not allocate.
var (
	specsEqual    = equalOf[v1.PodSpec]()
	statusesEqual = equalOf[v1.PodStatus]()
	labelsEqual   = equalOf[map[string]string]()
	timesEqual    = equalOf[*metav1.Time]()
	periodsEqual  = equalOf[*int64]()
)

// sameMetadata reports whether the compared metadata of two pods is equal,
// without kubelet's own annotations.
func sameMetadata(held, received *v1.Pod) bool {
	return timesEqual(&held.DeletionTimestamp, &received.DeletionTimestamp) &&
		periodsEqual(&held.DeletionGracePeriodSeconds, &received.DeletionGracePeriodSeconds) &&
		labelsEqual(&held.Labels, &received.Labels) &&
		!annotationsDiffer(held.Annotations, received.Annotations)
}

// comparison of a received pod with a held one. It is valid while the entry holds
// the same pod, which is never written to.
type comparison struct {
	pod        *v1.Pod
	status     *v1.PodStatus
	same       bool // the pods are equal, apart from their status
	sameStatus bool // the pods are equal
}

// compare compares number i of the update with its held pod, or returns the earlier result.
func (s *source) compare(e *entry, pod *v1.Pod, i int) comparison {
	if i < len(s.comparisons) {
		if c := s.comparisons[i]; c.pod == e.pod && c.status == e.status {
			return c
		}
	}
	c := comparison{pod: e.pod, status: e.status, same: sameMetadata(e.pod, pod) && specsEqual(&e.pod.Spec, &pod.Spec)}
	c.sameStatus = c.same && statusesEqual(e.status, &pod.Status)
	return c
}

const podsPerWorker = 32 // the minimum number of pods per goroutine

// compareAhead compares the pods of an update with the held ones on all cores, if
// most of them must be compared.
func (s *source) compareAhead(update PodUpdate) {
	s.comparisons = s.comparisons[:0]
	workers := min(runtime.GOMAXPROCS(0), len(update.Pods)/podsPerWorker)
	if workers < 2 || update.Op == REMOVE || !s.unknown(update.Pods) {
		return
	}
	results := slices.Grow(s.comparisons, len(update.Pods))[:len(update.Pods)]
	compare := func(from, to int) {
		for i := from; i < min(to, len(results)); i++ {
			results[i] = comparison{}
			if e := s.toCompare(update.Pods[i]); e != nil {
				results[i] = s.compare(e, update.Pods[i], i)
			}
		}
	}
	chunk := (len(update.Pods) + workers - 1) / workers
	var others sync.WaitGroup
	for from := chunk; from < len(update.Pods); from += chunk {
		others.Go(func() { compare(from, from+chunk) })
	}
	compare(0, chunk)
	others.Wait()
	// Set it last: until here the goroutines write the results.
	s.comparisons = results
}

// forgetComparisons drops the references to the compared pods.
func (s *source) forgetComparisons() {
	clear(s.comparisons)
	s.comparisons = s.comparisons[:0]
}

// unknown reports whether most of the pods must be compared. It samples a few: a
// sender that decodes one pod anew decodes all of them.
func (s *source) unknown(pods []*v1.Pod) bool {
	const few = 8
	n := 0
	for _, pod := range pods[:few] {
		if s.toCompare(pod) != nil {
			n++
		}
	}
	return n > few/2
}

// toCompare returns the entry that a pod must be compared with, or nil.
func (s *source) toCompare(pod *v1.Pod) *entry {
	if s.byPointer.get(pod) != nil {
		return nil
	}
	e := s.byUID[pod.UID]
	if e == nil || sameName(e.received, pod) && s.sameVersion(e.received, pod) {
		return nil
	}
	return e
}
