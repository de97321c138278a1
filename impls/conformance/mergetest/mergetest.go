// Package mergetest is the conformance suite of the merge family. Every
// variant runs it, upstream's own included: where a baseline fails a check, the
// check is wrong, or stands behind a field of [Suite] that says why.
//
//	func TestConformance(t *testing.T) {
//		for _, v := range merge.Variants() {
//			t.Run(v.Name, func(t *testing.T) { mergetest.Run(t, v) })
//		}
//	}
//
// A pod that was sent is not sent again once it has changed, not even as a copy,
// and no two sources get the same one: kubelet writes into what it receives.
// Whatever changes gets a resourceVersion that was never used before, as from an
// API server.
//
// Every check runs in a bubble of testing/synctest: waiting is exact, the clock
// stands still unless a check moves it, and a goroutine that doesn't end, or
// spins, fails the check. It runs for each capacity, and for each way to hand
// pods over; those about concurrency run with 1, 2 and 8 processors. In every
// check, all that is told is written over where it is the receiver's own, and
// must stay as it is where it is shared.
//
// [Compare] holds variants against each other on random updates, [CompareBytes]
// on those that a fuzzer makes up.
//
// The package imports no more than k8s.io/api and apimachinery, so that it can
// be linked with any release of them.
package mergetest

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"watchlab/impls"
	"watchlab/impls/merge"
)

// Suite is the suite with what a variant can't be held to. The zero value
// leaves nothing out.
type Suite struct {
	WritesReceived bool

	FixedCapacity bool

	OwnedOnly bool
}

// Run runs the whole suite on a variant. Baselines, which are as upstream is,
// are not asked to share what they hand over.
func Run(t *testing.T, v merge.Variant) { Suite{OwnedOnly: v.Baseline()}.Run(t, v) }

// check is something that is promised.
type check struct {
	name string
	run  func(*rig)

	applies func(arrangement) bool

	parallel bool
}

// arrangement is what a check runs with.
type arrangement struct {
	Suite
	variant merge.Variant
	options merge.Options
}

func unlocked(a arrangement) bool       { return a.variant.Guarantees[0].Unlocked }
func sharing(a arrangement) bool        { return a.options.HandOver == impls.Shared }
func owningOnce(a arrangement) bool     { return !sharing(a) && a.options.Capacity == 0 }
func sharingOnce(a arrangement) bool    { return sharing(a) && a.options.Capacity == 0 }
func leavesReceived(a arrangement) bool { return !a.WritesReceived }
func trusting(a arrangement) bool       { return a.options.Trust == merge.TrustGenerations }
func comparing(a arrangement) bool      { return !trusting(a) }
func ownChannel(a arrangement) bool     { return !a.FixedCapacity }

var checks = []check{
	{name: "Order", run: (*rig).order},
	{name: "FirstSET", run: (*rig).firstSET},
	{name: "FirstSETInSnapshots", run: (*rig).firstSETInSnapshots},
	{name: "Upsert", run: (*rig).upsert},
	{name: "Remove", run: (*rig).remove},
	{name: "SnapshotMode", run: (*rig).snapshotMode},
	{name: "SnapshotAndUpdatesMode", run: (*rig).snapshotAndUpdatesMode},
	{name: "Semantics", run: (*rig).semantics},
	{name: "FirstMetadataStays", run: (*rig).firstMetadataStays},
	{name: "Duplicates", run: (*rig).duplicates},
	{name: "DuplicatesByKnownPointers", run: (*rig).duplicatesByKnownPointers},
	{name: "DuplicateUIDs", run: (*rig).duplicateUIDs},
	{name: "NamesMove", run: (*rig).namesMove},
	{name: "Annotations", run: (*rig).annotations},
	{name: "MirrorAnnotation", run: (*rig).mirrorAnnotation},
	{name: "GracefulDelete", run: (*rig).gracefulDelete},
	{name: "Reconcile", run: (*rig).reconcile},
	{name: "KnownPointers", run: (*rig).knownPointers},
	{name: "KnownVersions", run: (*rig).knownVersions},
	{name: "GenerationsLookedAt", run: (*rig).generationsLookedAt, applies: comparing},
	{name: "GenerationsTrusted", run: (*rig).generationsTrusted, applies: trusting},
	{name: "BigFreshLists", run: (*rig).bigFreshLists},
	{name: "OftenCompared", run: (*rig).oftenCompared},
	{name: "RemovedAndBack", run: (*rig).removedAndBack},
	{name: "DeliveredIsReceivers", run: (*rig).deliveredIsReceivers},
	{name: "NoSharedMemory", run: (*rig).noSharedMemory, applies: owningOnce},
	{name: "NothingCopied", run: (*rig).nothingCopied, applies: sharingOnce},
	{name: "ReceivedUnwritten", run: (*rig).receivedUnwritten, applies: leavesReceived},
	{name: "SeenAllSources", run: (*rig).seenAllSources},
	{name: "Refused", run: (*rig).refused},
	{name: "RefusedOnChannel", run: (*rig).refusedOnChannel},
	{name: "SourcesApart", run: (*rig).sourcesApart},
	{name: "Channel", run: (*rig).channel},
	{name: "Capacity", run: (*rig).capacity, applies: ownChannel},
	{name: "Idle", run: (*rig).idle},
	{name: "GoroutinesEnd", run: (*rig).goroutinesEnd},
	{name: "Closed", run: (*rig).closed},
	{name: "GivenUpMerge", run: (*rig).givenUpMerge},
	{name: "GivenUpBeforehand", run: (*rig).givenUpBeforehand, applies: unlocked},
	{name: "Unlocked", run: (*rig).unlocked, applies: unlocked},
	{name: "ConcurrentSources", run: (*rig).concurrentSources, parallel: true},
	{name: "StallingReceiver", run: (*rig).stallingReceiver, applies: unlocked, parallel: true},
	{name: "ImpatientCallers", run: (*rig).impatientCallers, applies: unlocked, parallel: true},
	{name: "SnapshotsAmidUpdates", run: (*rig).snapshotsAmidUpdates, parallel: true},
	{name: "CloseAmidCalls", run: (*rig).closeAmidCalls, parallel: true},
}

// Run runs the suite on a variant.
func (s Suite) Run(t *testing.T, v merge.Variant) {
	capacities := []int{0, 1, 7, 1024}
	if s.FixedCapacity {
		capacities = capacities[:1]
	}
	handovers := []impls.Ownership{impls.Owned, impls.Shared}
	if s.OwnedOnly {
		handovers = handovers[:1]
	}
	for _, handover := range handovers {
		for _, capacity := range capacities {
			a := arrangement{s, v, merge.Options{Capacity: capacity, HandOver: handover}}
			t.Run(fmt.Sprintf("handover=%s/capacity=%d", handover, capacity), a.run)
		}
	}
	if !s.OwnedOnly {
		a := arrangement{s, v, merge.Options{HandOver: impls.Shared, Trust: merge.TrustGenerations}}
		t.Run("handover=shared/trust=generations", a.run)
	}
	t.Run("Options", func(t *testing.T) { s.options(t, v) })
}

func (a arrangement) run(t *testing.T) {
	for _, c := range checks {
		if c.applies != nil && !c.applies(a) {
			continue
		}
		if !c.parallel {
			t.Run(c.name, func(t *testing.T) { a.inBubble(t, c.run) })
			continue
		}
		for _, procs := range []int{1, 2, 8} {
			t.Run(fmt.Sprintf("%s/procs=%d", c.name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				a.inBubble(t, c.run)
			})
		}
	}
}

func (a arrangement) inBubble(t *testing.T, run func(*rig)) {
	synctest.Test(t, func(t *testing.T) { run(newRig(t, a)) })
}
