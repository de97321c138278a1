package conformance

import (
	"fmt"
	"testing"
	"testing/synctest"

	"watchlab/impls/merge"
)

// The suite of family merge never sends a pod again after it was changed, not even as a copy, and
// never sends one pod from two sources: kubelet writes to received pods. A changed pod has a new
// resourceVersion, as from an API server.
//
// Each check runs in a bubble of testing/synctest. Waiting is exact, and the clock stands still
// unless a check advances it. A goroutine that spins or does not end fails the check. The receiver
// writes to each pod. Each check runs for each capacity.

// MergeSuite is the suite without the checks that a variant cannot pass. The zero value excludes none.
type MergeSuite struct {
	// WritesReceived: the variant writes its annotations to received pods, as kubelet does.
	WritesReceived bool
	// FixedCapacity: the channel has upstream's capacity, and Options.Capacity cannot be set.
	FixedCapacity bool
}

// RunMerge tests a variant of family merge.
func RunMerge(t *testing.T, v merge.Variant) { MergeSuite{}.Run(t, v) }

// setup is a variant with one set of options.
type setup struct {
	MergeSuite
	variant merge.Variant
	options merge.Options
}

func unlocked(s setup) bool   { return s.variant.Guarantees[0].Unlocked }
func ownChannel(s setup) bool { return !s.FixedCapacity }

var mergeChecks = []Check[setup]{
	{Name: "SeenAllSources", Run: bubble((*rig).seenAllSources)},
	{Name: "invalid updates are refused", Run: bubble((*rig).refused)},
	{Name: "invalid updates on a channel", Run: bubble((*rig).refusedOnChannel)},
	{Name: "one channel per source", Run: bubble((*rig).channel)},
	{Name: "capacity is exact", For: ownChannel, Run: bubble((*rig).capacity)},
	{Name: "an idle merger sleeps", Run: bubble((*rig).idle)},
	{Name: "goroutines end with their context", Run: bubble((*rig).goroutinesEnd)},
	{Name: "Close", Run: bubble((*rig).closed)},
	{Name: "a slow receiver does not block other sources", For: unlocked, Run: bubble((*rig).unlocked)},
	{Name: "concurrent sources", Concurrent: true, Run: bubble((*rig).concurrentSources)},
	{Name: "stalling receiver, impatient callers", For: unlocked, Concurrent: true, Run: bubble((*rig).stallingReceiver)},
	{Name: "Close during calls", Concurrent: true, Run: bubble((*rig).closeDuringCalls)},
}

// bubble runs a check with a merger in a bubble.
func bubble(check func(*rig)) func(*testing.T, setup) {
	return func(t *testing.T, s setup) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, s)
			defer r.finish()
			check(r)
		})
	}
}

// Run runs the suite on a variant, with several capacities.
func (s MergeSuite) Run(t *testing.T, v merge.Variant) {
	capacities := []int{0, 1, 7, 1024}
	if s.FixedCapacity {
		capacities = capacities[:1]
	}
	for _, capacity := range capacities {
		t.Run(fmt.Sprintf("capacity=%d", capacity), func(t *testing.T) {
			Run(t, setup{s, v, merge.Options{Capacity: capacity}}, mergeChecks)
		})
	}
	t.Run("options", func(t *testing.T) { s.testOptions(t, v) })
	t.Run("random updates", func(t *testing.T) { s.randomUpdates(t, v) })
}
