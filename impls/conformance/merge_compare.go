package conformance

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"watchlab/impls/merge"
)

// randomUpdates compares a variant with the variant reference. The same random updates must give the
// same notifications, events and states, with all operations, sources and options, slow receivers and
// canceled calls. On failure, rapid prints the seed and the shortest failing updates.
//
// Pods are sorted where their order is not guaranteed (in a REMOVE and in a
// snapshot). Each variant gets its own pods, with equal pointers where the
// updates have equal pointers. A pointer is not sent again after another pointer
// of its UID: kubelet writes later versions to the pod that it received first.
//
// The receiver overwrites each pod before it looks at the next one. So a sent pod that shares writable
// memory with another one, or with what the merger holds, differs from that of reference.
func (s MergeSuite) randomUpdates(t *testing.T, v merge.Variant) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			s.compare(t, drawScript(rapidDice{t}), v)
		})
	})
}

// CompareMerge compares variants with reference on the updates that bytes encode, for fuzz tests.
func CompareMerge(t *testing.T, bytes []byte, variants ...merge.Variant) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		MergeSuite{}.compare(t, drawScript(&byteDice{bytes}), variants...)
	})
}

func (s MergeSuite) compare(t TB, calls script, variants ...merge.Variant) {
	t.Helper()
	reference, err := merge.Lookup("reference")
	if err != nil {
		t.Fatalf("%v", err)
	}
	wanted := MergeSuite{}.play(t, reference, calls)
	for _, v := range variants {
		got := s.play(t, v, calls)
		for i := range wanted {
			if !reflect.DeepEqual(wanted[i], got[i]) {
				t.Fatalf("reference and %s differ (-reference +%s) at step %d of\n%s\n%s", v.Name, v.Name,
					wanted[i].Step, calls, cmp.Diff(wanted[i], got[i]))
			}
		}
	}
}

// result is the outcome of a step, including earlier steps without a receiver.
type result struct {
	Step          int               // index of the step
	Notifications []merge.PodUpdate // sent during the step
	State         []*v1.Pod         // pods of the merger after the step
	Events        []string          // recorded during the step
}

// play runs a script on one merger and returns the result of each step.
func (s MergeSuite) play(t TB, v merge.Variant, calls script) []result {
	t.Helper()
	var opts merge.Options
	if !v.Baseline() {
		opts.Capacity = calls.capacity
	}
	r := newRig(t, setup{s, v, opts})
	defer r.finish()
	start := time.Now()
	own := make(map[*v1.Pod]*v1.Pod)
	merged := func(ctx context.Context, source string, update merge.PodUpdate) {
		if err := r.Merge(ctx, source, update); err != nil && !errors.Is(err, ctx.Err()) {
			t.Fatalf("%s: %v", v.Name, err)
		}
	}
	var results []result
	var lists [][]*v1.Pod // what the merger received
	var notifications []merge.PodUpdate
	for i, st := range calls.steps {
		// Advance by the minimum: rapid measures its shrink time with this clock.
		advance(time.Microsecond)
		update := merge.PodUpdate{Op: st.op, Source: st.source}
		for _, pod := range st.pods {
			if own[pod] == nil {
				own[pod] = pod.DeepCopy()
			}
			update.Pods = append(update.Pods, own[pod])
		}
		lists = append(lists, update.Pods)
		if st.alone && unlocked(r.setup) {
			ctx, cancel := context.WithCancel(r.ctx)
			if i%2 == 0 {
				cancel() // Its update takes effect all the same.
			}
			call := Async(func() error { merged(ctx, st.source, update); return nil })
			synctest.Wait()
			cancel()
			_ = call.Wait()
			continue
		}
		if calls.channel {
			notifications = append(notifications, r.push(r.open(r.ctx, st.source), update)...)
		} else {
			notifications = append(notifications, r.collect(func() { merged(r.ctx, st.source, update) })...)
		}
		if st.alone {
			continue
		}
		res := result{Step: i, Notifications: normalized(notifications, start), Events: r.events.take()}
		notifications = nil
		for _, last := range normalized(r.collect(r.Sync), start) {
			res.State = last.Pods
		}
		results = append(results, res)
	}
	for i, list := range lists {
		for j, pod := range calls.steps[i].pods {
			if !s.WritesReceived && (list[j] != own[pod] || !reflect.DeepEqual(own[pod], pod)) {
				t.Fatalf("%s wrote to pod %d or its place in the list of step %d of\n%s\n%s", v.Name, j, i, calls, cmp.Diff(pod, list[j]))
			}
		}
	}
	return results
}

// normalized returns updates with pods in a defined order and with times since the start.
func normalized(updates []merge.PodUpdate, start time.Time) []merge.PodUpdate {
	for i := range updates {
		sortUnordered(&updates[i])
		for j, pod := range updates[i].Pods {
			seen := pod.Annotations[merge.ConfigFirstSeenAnnotation]
			if at, err := time.Parse(time.RFC3339Nano, seen); err == nil {
				// Copy, because the receiver compares the received pod.
				pod = pod.DeepCopy()
				pod.Annotations[merge.ConfigFirstSeenAnnotation] = at.Sub(start).String()
				updates[i].Pods[j] = pod
			}
		}
	}
	return updates
}
