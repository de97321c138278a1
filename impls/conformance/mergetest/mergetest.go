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
//
// Every check runs in a bubble of testing/synctest: waiting is exact, the clock
// stands still unless a check moves it, and a goroutine that doesn't end fails
// the check. [Compare] holds variants against each other on random updates.
//
// The package imports no more than k8s.io/api and apimachinery, so that it can
// be linked with any release of them.
package mergetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/impls/merge"
)

// Suite is the suite with what a variant can't be held to. The zero value
// leaves nothing out.
type Suite struct {
	// WritesReceived: the variant writes its annotations into the pods that it
	// receives, as kubelet does.
	WritesReceived bool
	// FixedCapacity: the variant's channel has upstream's size and no other.
	FixedCapacity bool
}

// Run runs the whole suite on a variant.
func Run(t *testing.T, v merge.Variant) { Suite{}.Run(t, v) }

// Run runs the suite on a variant.
func (s Suite) Run(t *testing.T, v merge.Variant) {
	checks := []struct {
		name string
		run  func(*rig)
	}{
		{"Order", (*rig).order},
		{"FirstSET", (*rig).firstSET},
		{"FirstSETInSnapshots", (*rig).firstSETInSnapshots},
		{"Upsert", (*rig).upsert},
		{"Remove", (*rig).remove},
		{"SnapshotMode", (*rig).snapshotMode},
		{"SnapshotAndUpdatesMode", (*rig).snapshotAndUpdatesMode},
		{"Semantics", (*rig).semantics},
		{"FirstMetadataStays", (*rig).firstMetadataStays},
		{"Duplicates", (*rig).duplicates},
		{"DuplicatesByKnownPointers", (*rig).duplicatesByKnownPointers},
		{"DuplicateUIDs", (*rig).duplicateUIDs},
		{"NamesMove", (*rig).namesMove},
		{"Annotations", (*rig).annotations},
		{"MirrorAnnotation", (*rig).mirrorAnnotation},
		{"GracefulDelete", (*rig).gracefulDelete},
		{"Reconcile", (*rig).reconcile},
		{"KnownPointers", (*rig).knownPointers},
		{"DeliveredIsReceivers", (*rig).deliveredIsReceivers},
		{"SeenAllSources", (*rig).seenAllSources},
		{"Refused", (*rig).refused},
		{"RefusedOnChannel", (*rig).refusedOnChannel},
		{"SourcesApart", (*rig).sourcesApart},
		{"Channel", (*rig).channel},
		{"ConcurrentSources", (*rig).concurrentSources},
		{"GivenUpMerge", (*rig).givenUpMerge},
		{"GoroutinesEnd", (*rig).goroutinesEnd},
	}
	if !s.WritesReceived {
		checks = append(checks, struct {
			name string
			run  func(*rig)
		}{"ReceivedUnwritten", (*rig).receivedUnwritten})
	}
	if v.Guarantees[0].Unlocked {
		checks = append(checks, struct {
			name string
			run  func(*rig)
		}{"Unlocked", (*rig).unlocked})
	}
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				check.run(newRig(t, v, merge.Options{}))
			})
		})
	}
	t.Run("Options", func(t *testing.T) { s.options(t, v) })
}

// rig is a merger under test with what is around it.
type rig struct {
	*testing.T
	variant merge.Variant
	merge.Merger
	events *events
	ctx    context.Context
}

// newRig builds a merger; the recorder is the rig's.
func newRig(t *testing.T, v merge.Variant, opts merge.Options) *rig {
	t.Helper()
	r := &rig{T: t, variant: v, events: &events{}, ctx: t.Context()}
	opts.Recorder = r.events
	m, err := v.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Merger = m
	if c, ok := m.(interface{ Close() }); ok {
		t.Cleanup(c.Close)
	}
	return r
}

// with returns another rig of the same variant in another mode.
func (r *rig) with(mode merge.Mode) *rig {
	r.Helper()
	return newRig(r.T, r.variant, merge.Options{Mode: mode})
}

// events is a recorder that writes down what it is told.
type events struct{ lines []string }

// Eventf is [merge.EventRecorder].
func (e *events) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	name := ""
	if pod, ok := object.(*v1.Pod); ok {
		name = string(pod.UID)
	}
	e.lines = append(e.lines, fmt.Sprintf("%s %s %s: %s", name, eventtype, reason, fmt.Sprintf(format, args...)))
}

// merge merges an update of the api source and returns what was sent.
func (r *rig) merge(op merge.Op, pods ...*v1.Pod) []merge.PodUpdate {
	r.Helper()
	return r.mergeFrom(merge.APISource, op, pods...)
}

func (r *rig) mergeFrom(source string, op merge.Op, pods ...*v1.Pod) []merge.PodUpdate {
	r.Helper()
	if err := r.Merge(r.ctx, source, merge.PodUpdate{Op: op, Source: source, Pods: pods}); err != nil {
		r.Fatalf("%v from %s: %v", op, source, err)
	}
	return r.sent()
}

// sent returns what the merger has sent and nobody has taken yet.
func (r *rig) sent() []merge.PodUpdate {
	var all []merge.PodUpdate
	for {
		synctest.Wait()
		select {
		case update := <-r.Updates():
			all = append(all, update)
		default:
			return all
		}
	}
}

// state returns the pods that the merger holds, by source and UID.
func (r *rig) state() map[string]*v1.Pod {
	r.Helper()
	r.Sync()
	updates := r.sent()
	if len(updates) != 1 || updates[0].Op != merge.SET || updates[0].Source != merge.AllSource || updates[0].Pods == nil {
		r.Fatalf("Sync sent %s, want one SET of %q with pods that aren't nil", show(updates), merge.AllSource)
	}
	held := make(map[string]*v1.Pod)
	for _, pod := range updates[0].Pods {
		key := pod.Annotations[merge.ConfigSourceAnnotation] + "/" + string(pod.UID)
		if held[key] != nil {
			r.Errorf("%s is held twice", key)
		}
		held[key] = pod
	}
	return held
}

// expect compares what was sent with what show makes of it, one line a
// notification.
func (r *rig) expect(got []merge.PodUpdate, want ...string) {
	r.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), show(got)); diff != "" {
		r.Errorf("notifications (-want +got):\n%s", diff)
	}
	for _, update := range got {
		if update.Pods == nil {
			r.Errorf("the pods of a %v are nil", update.Op)
		}
	}
}

// expectHeld compares the keys of the held pods.
func (r *rig) expectHeld(want ...string) {
	r.Helper()
	got := r.state()
	for _, key := range want {
		if got[key] == nil {
			r.Errorf("%s isn't held", key)
		}
		delete(got, key)
	}
	for key := range got {
		r.Errorf("%s is held", key)
	}
}

// show returns updates as lines such as "ADD api a b". The pods of snapshots
// and removals, whose order isn't promised, are sorted.
func show(updates []merge.PodUpdate) string {
	lines := make([]string, len(updates))
	for i, update := range updates {
		sortUnordered(&update)
		var b strings.Builder
		fmt.Fprintf(&b, "%v %s", update.Op, update.Source)
		for _, pod := range update.Pods {
			fmt.Fprintf(&b, " %s", pod.UID)
		}
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}

// advance moves the bubble's clock.
func advance(d time.Duration) { <-time.After(d) }
