// Package mergebench is the body of BenchmarkMerge, so that every module with
// contestants measures them by the same code.
//
// # What is measured
//
// A source sends updates through the merger's channel, and a goroutine takes
// what the merger sends. From one update to the next, one pod is replaced by a
// copy of its own that has another status or another image (change=status,
// change=spec), or none is (change=none).
//
//   - op=set: each update is a SET of all pods in random order. With list=shared,
//     what has not changed comes by the same pointers, as client-go's
//     UndeltaStore sends it after every change. With list=fresh, no two lists
//     share memory, as after a relist: each pod is a copy, with the
//     resourceVersion that it had.
//   - op=incremental: each update is an UPDATE with the one pod. To upstream's
//     own sources the same change is a SET of all (sent=set); that is what
//     baselines are measured with. What they make of an UPDATE, which none of
//     kubelet's sources sends, is measured too (sent=update).
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
// With handover=owned, what is told is the receiver's own, copied deeply, as
// with kubelet; with handover=shared the receiver promises not to write to it.
// With trust=generations, a spec whose generation is known is not compared
// ([merge.TrustGenerations]); the pods carry those that the API server gave them.
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
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls"
	"watchlab/impls/conformance/mergetest/pods"
	"watchlab/impls/merge"
)

// Change is what differs from one update to the next.
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

// Case is one measurement of a variant.
type Case struct {
	Incremental bool

	Fresh    bool
	Change   Change
	History  History
	HandOver impls.Ownership

	Trust merge.Trust

	AsSET bool
}

// Cases are what variants are measured by. Those with AsSET are for baselines,
// those with pods shared for others.
var Cases = []Case{
	{Change: Status, History: FirstSeen, HandOver: impls.Owned},
	{Change: Status, History: FirstSeen, HandOver: impls.Shared},
	{Change: Status, History: FirstSeen, HandOver: impls.Shared, Trust: merge.TrustGenerations},
	{Change: Status, History: Updated, HandOver: impls.Owned},
	{Change: Spec, History: Updated, HandOver: impls.Owned},
	{Change: None, History: Updated, HandOver: impls.Owned},
	{Fresh: true, Change: Status, History: FirstSeen, HandOver: impls.Owned},
	{Fresh: true, Change: Status, History: FirstSeen, HandOver: impls.Shared},
	{Incremental: true, AsSET: true, Change: Status, History: FirstSeen, HandOver: impls.Owned},
	{Incremental: true, Change: Status, History: FirstSeen, HandOver: impls.Owned},
	{Incremental: true, Change: Status, History: FirstSeen, HandOver: impls.Shared},
	{Incremental: true, Change: Status, History: FirstSeen, HandOver: impls.Shared, Trust: merge.TrustGenerations},
}

// For reports whether a variant is measured by the case.
func (c Case) For(v merge.Variant) bool {
	if v.Baseline() {
		return c.HandOver == impls.Owned
	}
	return !c.AsSET
}

// Name returns the case as a part of a benchmark's name.
func (c Case) Name() string {
	op, sent, list := "set", "set", "shared"
	if c.Incremental {
		op, sent = "incremental", "update"
	}
	if c.AsSET {
		sent = "set"
	}
	if c.Fresh {
		list = "fresh"
	}
	name := fmt.Sprintf("op=%s/sent=%s/list=%s/change=%s/history=%s/handover=%s", op, sent, list, c.Change, c.History, c.HandOver)
	if c.Trust != "" {
		name += "/trust=" + string(c.Trust)
	}
	return name
}

// Run measures the variants at 110 pods, kubelet's default limit, and at 500.
func Run(b *testing.B, variants []merge.Variant) {
	for _, v := range variants {
		for _, n := range []int{110, 500} {
			for _, c := range Cases {
				if c.For(v) {
					b.Run(fmt.Sprintf("impl=%s/pods=%d/%s", v.Name, n, c.Name()), func(b *testing.B) { c.measure(b, v, n) })
				}
			}
		}
	}
}

// changing is the number of the pod that changes.
const changing = 17

// patience is how long to wait for a notification before it counts as lost.
const patience = 10 * time.Second

func (c Case) measure(b *testing.B, v merge.Variant, n int) {
	m, err := v.New(merge.Options{HandOver: c.HandOver, Trust: c.Trust})
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
	before, cycle := c.updates(n)

	// What comes once is not measured: the pods are new, and the changing one
	// is then known by the version that comes before the first of the cycle.
	for _, update := range append(before, cycle[len(cycle)-1]) {
		in <- update
		drain(b, m, in)
	}

	done := make(chan outcome, 1)
	go count(m.Updates(), c.Change, done)
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
	if c.Change == None {
		want = 0
	}
	select {
	case got := <-done:
		if got.err != nil {
			b.Fatal(got.err)
		}
		if got.notifications != want {
			b.Fatalf("%d updates gave %d notifications, want %d", sent, got.notifications, want)
		}
	case <-time.After(patience):
		b.Fatalf("no state after %d updates", sent)
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
	name := pod(changing).Name
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
			b.Fatal("no state after the first updates")
		}
	}
}

// versions is how many copies of the changing pod there are: enough that one
// isn't known by the time it comes again, few enough to stay in a cache, as a
// pod that has just been decoded is. Of fresh lists there are fewer, as they
// take some 10 MB each.
const versions, freshVersions = 8, 4

// decoded are the pods that were decoded already.
var decoded struct {
	sync.Mutex
	pods []*v1.Pod
}

// pod returns a copy of pod number i of the node.
func pod(i int) *v1.Pod {
	decoded.Lock()
	defer decoded.Unlock()
	for len(decoded.pods) <= i {
		decoded.pods = append(decoded.pods, pods.Realistic(len(decoded.pods)))
	}
	return decoded.pods[i].DeepCopy()
}

// updates returns what is sent once for n pods, and a cycle of updates that
// follow it.
func (c Case) updates(n int) (before, cycle []merge.PodUpdate) {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	all := make([]*v1.Pod, n)
	for i := range all {
		all[i] = pod(i)
	}
	set := func() merge.PodUpdate {
		list := slices.Clone(all)
		random.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		return merge.PodUpdate{Op: merge.SET, Source: merge.APISource, Pods: list}
	}
	before = append(before, set())
	if c.History == Updated {
		for i := range all {
			all[i] = pod(i)
			all[i].ResourceVersion += "0"
		}
		before = append(before, set())
	}
	length := versions
	if c.Fresh {
		length = freshVersions
	}
	for i := range length {
		if c.Fresh {
			for j := range all {
				all[j] = pod(j)
			}
		}
		if c.Change != None {
			all[changing] = pod(changing)
		}
		if i%2 == 0 {
			switch c.Change {
			case Status:
				pods.ChangeStatus(all[changing])
			case Spec:
				pods.ChangeSpec(all[changing])
			}
		}
		if c.Incremental && !c.AsSET {
			cycle = append(cycle, merge.PodUpdate{Op: merge.UPDATE, Source: merge.APISource, Pods: []*v1.Pod{all[changing]}})
		} else {
			cycle = append(cycle, set())
		}
	}
	return before, cycle
}
