package conformance

import (
	"fmt"
	"testing"
	"testing/synctest"

	"watchlab/impls"
	"watchlab/impls/merge"
)

// The suite of family merge never sends a pod again after it was changed, not even as a copy, and
// never sends one pod from two sources: kubelet writes to received pods. A changed pod has a new
// resourceVersion, as from an API server.
//
// Each check runs in a bubble of testing/synctest. Waiting is exact, and the clock stands still
// unless a check advances it. A goroutine that spins or does not end fails the check. The receiver
// writes to each pod that it owns, and verifies that shared pods do not change. Each check runs for
// each capacity and each ownership.

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

func unlocked(s setup) bool       { return s.variant.Guarantees[0].Unlocked }
func sharing(s setup) bool        { return s.options.HandOver == impls.Shared }
func owningOnce(s setup) bool     { return !sharing(s) && s.options.Capacity == 0 }
func sharingOnce(s setup) bool    { return sharing(s) && s.options.Capacity == 0 }
func leavesReceived(s setup) bool { return !s.WritesReceived }
func ownChannel(s setup) bool     { return !s.FixedCapacity }

var mergeChecks = []Check[setup]{
	{Name: "known versions", Run: bubble((*rig).knownVersions)},
	{Name: "big lists of copies", Run: bubble((*rig).bigFreshLists)},
	{Name: "owned pods share no memory", For: owningOnce, Run: bubble((*rig).noSharedMemory)},
	{Name: "shared pods are not copied", For: sharingOnce, Run: bubble((*rig).nothingCopied)},
	{Name: "received pods are not written to", For: leavesReceived, Run: bubble((*rig).receivedUnwritten)},
	{Name: "SeenAllSources", Run: bubble((*rig).seenAllSources)},
	{Name: "invalid updates are refused", Run: bubble((*rig).refused)},
	{Name: "invalid updates on a channel", Run: bubble((*rig).refusedOnChannel)},
	{Name: "one channel per source", Run: bubble((*rig).channel)},
	{Name: "capacity is exact", For: ownChannel, Run: bubble((*rig).capacity)},
	{Name: "an idle merger sleeps", Run: bubble((*rig).idle)},
	{Name: "goroutines end with their context", Run: bubble((*rig).goroutinesEnd)},
	{Name: "Close", Run: bubble((*rig).closed)},
	{Name: "a Merge with a canceled context takes effect", For: unlocked, Run: bubble((*rig).canceledBeforehand)},
	{Name: "a slow receiver does not block other sources", For: unlocked, Run: bubble((*rig).unlocked)},
	{Name: "concurrent sources", Concurrent: true, Run: bubble((*rig).concurrentSources)},
	{Name: "stalling receiver", For: unlocked, Concurrent: true, Run: bubble((*rig).stallingReceiver)},
	{Name: "impatient callers", For: unlocked, Concurrent: true, Run: bubble((*rig).impatientCallers)},
	{Name: "snapshots during updates", Concurrent: true, Run: bubble((*rig).snapshotsDuringUpdates)},
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

// Run runs the suite on a variant, with several capacities and each supported ownership. Baselines
// copy and compare all pods: they must refuse to share them.
func (s MergeSuite) Run(t *testing.T, v merge.Variant) {
	capacities := []int{0, 1, 7, 1024}
	if s.FixedCapacity {
		capacities = capacities[:1]
	}
	owners := []impls.Ownership{impls.Owned, impls.Shared}
	if v.Baseline() {
		owners = owners[:1]
	}
	run := func(name string, o merge.Options) {
		t.Run(name, func(t *testing.T) { Run(t, setup{s, v, o}, mergeChecks) })
	}
	for _, owner := range owners {
		for _, capacity := range capacities {
			run(fmt.Sprintf("handover=%s/capacity=%d", owner, capacity), merge.Options{Capacity: capacity, HandOver: owner})
		}
	}
	t.Run("options", func(t *testing.T) { s.testOptions(t, v) })
	t.Run("random updates", func(t *testing.T) { randomUpdates(t, v) })
}
