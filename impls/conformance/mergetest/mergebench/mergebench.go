// Package mergebench is the body of BenchmarkMerge, so that every module with
// contestants measures them by the same code.
//
// # What is measured
//
// A source sends SETs of all pods through the merger's channel, as
// client-go's UndeltaStore does after every change: the same pointers for what
// has not changed, in random order. From one SET to the next, one pod is
// replaced by a copy of its own that has another status or another image
// (change=status, change=spec), or none is (change=none). A goroutine takes
// what the merger sends.
//
// It is always the same pod that changes, as if its readiness flapped. What the
// others cost kubelet depends on their history, so both are measured:
//
//   - history=first-seen: they come by the pointers by which they were first
//     seen. This is kubelet's best case, for reflect.DeepEqual takes a slice or
//     map for equal when it is the same. So it is for pods that have not
//     changed at all since kubelet started.
//   - history=updated: each has been received anew once, equal but for its
//     resourceVersion, as happens to every pod with the first status that it
//     reports. kubelet goes on comparing what it first saw with what it gets,
//     and these share no memory.
//
// A merger that knows unchanged pods by the pointer received last makes no
// difference between the two.
//
// The updates are made before the clock starts. The versions of the changing
// pod share no memory, and the one that the merger gets first never comes
// again, for kubelet writes later versions into it.
//
// # What is checked
//
// Each notification is one pod of the expected operation and name, and there
// are as many as changes were sent: a lost or superfluous one fails the
// benchmark.
package mergebench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls/conformance/mergetest/pods"
	"watchlab/impls/merge"
)

// Change is what differs from one SET to the next.
type Change string

// The changes.
const (
	Status Change = "status"
	Spec   Change = "spec"
	None   Change = "none"
)

// History is what happened to the pods before those that are measured.
type History string

// The histories.
const (
	FirstSeen History = "first-seen"
	Updated   History = "updated"
)

// Run measures the variants at 110 pods, kubelet's default limit, and at 500.
func Run(b *testing.B, variants []merge.Variant) {
	for _, v := range variants {
		for _, n := range []int{110, 500} {
			for _, change := range []Change{Status, Spec, None} {
				for _, history := range []History{FirstSeen, Updated} {
					name := fmt.Sprintf("impl=%s/pods=%d/change=%s/history=%s", v.Name, n, change, history)
					b.Run(name, func(b *testing.B) { measure(b, v, n, change, history) })
				}
			}
		}
	}
}

// changing is the number of the pod that changes.
const changing = 17

// patience is how long to wait for a notification before it counts as lost.
const patience = 10 * time.Second

func measure(b *testing.B, v merge.Variant, n int, change Change, history History) {
	m, err := v.New(merge.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	in, err := m.Channel(ctx, merge.APISource)
	if err != nil {
		b.Fatal(err)
	}
	first, cycle := updates(n, change, history)

	// What comes once is not measured: the pods are new, and the changing one
	// is then known by the version that comes before the first of the cycle.
	in <- first
	in <- cycle[len(cycle)-1]
	drain(b, m, in)

	done := make(chan outcome, 1)
	go count(m.Updates(), change, done)
	sent := 0
	b.ReportAllocs()
	for b.Loop() {
		in <- cycle[sent%len(cycle)]
		sent++
	}
	elapsed := b.Elapsed()
	// The next update is taken when the last has been merged and told.
	in <- merge.PodUpdate{Op: merge.REMOVE, Source: merge.APISource}
	m.Sync()

	want := sent
	if change == None {
		want = 0
	}
	select {
	case got := <-done:
		if got.err != nil {
			b.Fatal(got.err)
		}
		if got.notifications != want {
			b.Fatalf("%d SETs gave %d notifications, want %d", sent, got.notifications, want)
		}
	case <-time.After(patience):
		b.Fatalf("no state after %d SETs", sent)
	}
	b.ReportMetric(float64(sent)/elapsed.Seconds(), "events/s")
}

// outcome is what came out.
type outcome struct {
	notifications int
	err           error
}

// count takes notifications up to the state that Sync sends.
func count(from <-chan merge.PodUpdate, change Change, done chan<- outcome) {
	want := merge.RECONCILE
	if change == Spec {
		want = merge.UPDATE
	}
	name := pods.Realistic(changing).Name
	var got outcome
	for update := range from {
		if update.Source == merge.AllSource {
			break
		}
		if got.err == nil && (update.Op != want || len(update.Pods) != 1 || update.Pods[0].Name != name) {
			got.err = fmt.Errorf("notification %d is a %v of %d pods, want a %v of %s",
				got.notifications, update.Op, len(update.Pods), want, name)
		}
		got.notifications++
	}
	done <- got
}

// drain takes everything that the updates sent so far have to say.
func drain(b *testing.B, m merge.Merger, in chan<- merge.PodUpdate) {
	b.Helper()
	in <- merge.PodUpdate{Op: merge.REMOVE, Source: merge.APISource}
	go m.Sync()
	timeout := time.After(patience)
	for {
		select {
		case update := <-m.Updates():
			if update.Source == merge.AllSource {
				return
			}
		case <-timeout:
			b.Fatal("no state after the first SETs")
		}
	}
}

// versions is how many copies of the changing pod there are: enough that one
// isn't known by the time it comes again, few enough to stay in a cache, as a
// pod that has just been decoded is.
const versions = 8

// updates returns the first SET of n pods and a cycle of SETs that follow it.
func updates(n int, change Change, history History) (first merge.PodUpdate, cycle []merge.PodUpdate) {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	all := make([]*v1.Pod, n)
	for i := range all {
		all[i] = pods.Realistic(i)
	}
	set := func() merge.PodUpdate {
		list := append([]*v1.Pod(nil), all...)
		random.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		return merge.PodUpdate{Op: merge.SET, Source: merge.APISource, Pods: list}
	}
	first = set()
	if history == Updated {
		for i := range all {
			all[i] = pods.Realistic(i)
			all[i].ResourceVersion += "0"
		}
	}
	for i := range versions {
		if change != None {
			all[changing] = pods.Realistic(changing)
		}
		if i%2 == 0 {
			switch change {
			case Status:
				pods.ChangeStatus(all[changing])
			case Spec:
				pods.ChangeSpec(all[changing])
			}
		}
		cycle = append(cycle, set())
	}
	return first, cycle
}
