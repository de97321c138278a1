package mergetest

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
	"watchlab/impls/merge"
)

// benchmark is one measurement. Its fields are parts of the benchmark's name:
//
//   - op=set: each update is a SET of all pods in random order. With
//     list=shared, pods that have not changed are the same pointers, as
//     client-go's UndeltaStore sends them after every change. With list=fresh no
//     two lists share memory, as after a relist.
//   - op=incremental: each update is an UPDATE with the one pod. Upstream's own
//     sources send a SET of all instead (sent=set), which baselines are measured
//     with too.
//   - change: what changes from one update to the next: status, spec or none. It
//     is always the same pod, as if its readiness flapped.
//   - history=first-seen: the other pods are the pointers that were first seen.
//     This is kubelet's best case, as reflect.DeepEqual takes a slice or map for
//     equal when it is the same. history=updated: each pod was received once more,
//     equal but for its resourceVersion, as happens to every pod with its first
//     status; kubelet goes on comparing with what it first saw.
//   - handover: who owns the notified pods.
//   - trust=generations: [merge.TrustGenerations].
type benchmark struct {
	op, sent, list, change, history string
	owner                           impls.Ownership
	trust                           merge.Trust
}

var benchmarks = []benchmark{
	{"set", "set", "shared", "status", "first-seen", impls.Owned, ""},
	{"set", "set", "shared", "status", "first-seen", impls.Shared, ""},
	{"set", "set", "shared", "status", "first-seen", impls.Shared, merge.TrustGenerations},
	{"set", "set", "shared", "status", "updated", impls.Owned, ""},
	{"set", "set", "shared", "spec", "updated", impls.Owned, ""},
	{"set", "set", "shared", "none", "updated", impls.Owned, ""},
	{"set", "set", "fresh", "status", "first-seen", impls.Owned, ""},
	{"set", "set", "fresh", "status", "first-seen", impls.Shared, ""},
	{"incremental", "set", "shared", "status", "first-seen", impls.Owned, ""},
	{"incremental", "update", "shared", "status", "first-seen", impls.Owned, ""},
	{"incremental", "update", "shared", "status", "first-seen", impls.Shared, ""},
	{"incremental", "update", "shared", "status", "first-seen", impls.Shared, merge.TrustGenerations},
}

// applies reports whether a variant is measured: baselines do not share pods,
// and only they get a SET for an incremental change.
func (c benchmark) applies(v merge.Variant) bool {
	if v.Baseline() {
		return c.owner == impls.Owned
	}
	return c.op == "set" || c.sent == "update"
}

func (c benchmark) String() string {
	name := fmt.Sprintf("op=%s/sent=%s/list=%s/change=%s/history=%s/handover=%s", c.op, c.sent, c.list, c.change, c.history, c.owner)
	if c.trust != "" {
		name += "/trust=" + string(c.trust)
	}
	return name
}

// Benchmark measures variants at 110 pods, kubelet's default limit, and at 500: a
// source sends updates through the merger's channel and a goroutine receives the
// notifications. Updates are made before the clock starts. The versions of the
// changing pod share no memory, and the first one is not sent again, because
// kubelet writes later versions to it. A lost or superfluous notification fails
// the benchmark.
func Benchmark(b *testing.B, variants []merge.Variant) {
	for _, v := range variants {
		for _, n := range []int{110, 500} {
			for _, c := range benchmarks {
				if c.applies(v) {
					b.Run(fmt.Sprintf("impl=%s/pods=%d/%v", v.Name, n, c), func(b *testing.B) { c.measure(b, v, n) })
				}
			}
		}
	}
}

// changing is the index of the changing pod.
const changing = 17

// patience is how long to wait for a notification before it counts as lost.
const patience = 10 * time.Second

func (c benchmark) measure(b *testing.B, v merge.Variant, n int) {
	m, err := v.New(merge.Options{HandOver: c.owner, Trust: c.trust})
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

	// The first notifications are not measured: the pods are new. The changing
	// pod then has the version that precedes the first of the cycle.
	for _, update := range append(before, cycle[len(cycle)-1]) {
		in <- update
		drain(b, m, in)
	}

	done := make(chan outcome, 1)
	go count(m.Updates(), c.change, done)
	sent := 0
	b.ReportAllocs()
	for b.Loop() {
		in <- cycle[sent%len(cycle)]
		sent++
	}
	elapsed := b.Elapsed()
	// The channel accepts this update when the previous one is merged and its
	// notifications are sent.
	in <- merge.PodUpdate{Op: merge.REMOVE, Source: merge.APISource}
	m.Sync()

	want := sent
	if c.change == "none" {
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

// outcome is the received notifications.
type outcome struct {
	notifications int
	err           error
}

// count counts notifications up to the snapshot of Sync.
func count(from <-chan merge.PodUpdate, change string, done chan<- outcome) {
	want := merge.RECONCILE
	if change == "spec" {
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

// drain receives the notifications of all updates sent so far.
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

// versions is the number of copies of the changing pod: enough that a copy is
// unknown when it is sent again, and few enough to stay in a cache, like a
// decoded pod. There are fewer fresh lists, because each takes about 10 MB.
const versions, freshVersions = 8, 4

// decoded caches the decoded pods.
var decoded struct {
	sync.Mutex
	pods []*v1.Pod
}

// pod returns a copy of pod number i of the node.
func pod(i int) *v1.Pod {
	decoded.Lock()
	defer decoded.Unlock()
	for len(decoded.pods) <= i {
		decoded.pods = append(decoded.pods, RealisticPod(len(decoded.pods)))
	}
	return decoded.pods[i].DeepCopy()
}

// updates returns the initial updates of n pods and the cycle of updates that
// follows.
func (c benchmark) updates(n int) (before, cycle []merge.PodUpdate) {
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
	if c.history == "updated" {
		for i := range all {
			all[i] = pod(i)
			all[i].ResourceVersion += "0"
		}
		before = append(before, set())
	}
	length := versions
	if c.list == "fresh" {
		length = freshVersions
	}
	for i := range length {
		if c.list == "fresh" {
			for j := range all {
				all[j] = pod(j)
			}
		}
		if c.change != "none" {
			all[changing] = pod(changing)
		}
		if i%2 == 0 {
			switch c.change {
			case "status":
				ChangeStatus(all[changing])
			case "spec":
				ChangeSpec(all[changing])
			}
		}
		if c.sent == "update" {
			cycle = append(cycle, merge.PodUpdate{Op: merge.UPDATE, Source: merge.APISource, Pods: []*v1.Pod{all[changing]}})
		} else {
			cycle = append(cycle, set())
		}
	}
	return before, cycle
}
