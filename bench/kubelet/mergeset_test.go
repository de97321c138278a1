package kubelet_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls/conformance"
	"watchlab/impls/merge"
)

// mergeSet is a cell of [BenchmarkMergeSet]. Its fields are parts of the name:
//
//   - op=set: each update is a SET of all pods in random order. With
//     list=shared, pods that have not changed are the same pointers, as
//     client-go's UndeltaStore sends them after every change. With list=fresh no
//     two lists share memory, as after a relist.
//   - op=incremental: each update is an UPDATE with the one pod. Upstream's own
//     sources send a SET of all instead (sent=set), which baselines are measured
//     with too.
//   - change: what changes from one update to the next. It is always the same pod,
//     as if its readiness flapped.
//   - history=first-seen: the other pods are the pointers that were first seen.
//     This is kubelet's best case, as reflect.DeepEqual takes a slice or map for
//     equal when it is the same. history=updated: each pod was received once more,
//     with another resourceVersion, as happens to every pod with its first status.
type mergeSet struct {
	op, sent, list, change, history string
}

var mergeSets = []mergeSet{
	{"set", "set", "shared", "status", "first-seen"},
	{"set", "set", "shared", "status", "updated"},
	{"set", "set", "shared", "spec", "updated"},
	{"set", "set", "shared", "none", "updated"},
	{"set", "set", "fresh", "status", "first-seen"},
	{"incremental", "set", "shared", "status", "first-seen"},
	{"incremental", "update", "shared", "status", "first-seen"},
}

// BenchmarkMergeSet measures the real kubelet and all variants at 110 pods, kubelet's default
// limit, and at 500. One goroutine receives the notifications. Updates are made before the clock
// starts. A lost or superfluous notification fails the benchmark.
func BenchmarkMergeSet(b *testing.B) {
	for _, v := range merge.Variants() {
		for _, pods := range []int{110, 500} {
			for _, c := range mergeSets {
				// Only baselines get a SET for an incremental change.
				if !v.Baseline() && c.op != "set" && c.sent == "set" {
					continue
				}
				name := fmt.Sprintf("impl=%s/pods=%d/op=%s/sent=%s/list=%s/change=%s/history=%s",
					v.Name, pods, c.op, c.sent, c.list, c.change, c.history)
				b.Run(name, func(b *testing.B) { c.measure(b, v, pods) })
			}
		}
	}
}

// flapping is the index of the changing pod.
const flapping = 17

func (c mergeSet) measure(b *testing.B, v merge.Variant, pods int) {
	m, err := v.New(merge.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	in, err := m.Channel(b.Context(), merge.APISource)
	if err != nil {
		b.Fatal(err)
	}
	notifications := make(chan int, 1)
	go func() {
		n := 0
		for update := range m.Updates() {
			if n++; update.Source == merge.AllSource {
				notifications <- n - 1
				n = 0
			}
		}
	}()
	// sync returns the number of notifications since the last call. The channel accepts
	// the REMOVE when the previous update is merged and its notifications are sent.
	sync := func() int {
		in <- merge.PodUpdate{Op: merge.REMOVE}
		m.Sync()
		return <-notifications
	}
	// The first notifications are not measured: the pods are new. The changing pod
	// then has the version that precedes the first of the cycle.
	first, cycle := c.updates(pods)
	for _, update := range append(first, cycle[len(cycle)-1]) {
		in <- update
	}
	sync()

	sent := 0
	b.ReportAllocs()
	for b.Loop() {
		in <- cycle[sent%len(cycle)]
		sent++
	}
	elapsed := b.Elapsed()
	want := sent
	if c.change == "none" {
		want = 0
	}
	if got := sync(); got != want {
		b.Fatalf("%d updates gave %d notifications, want %d", sent, got, want)
	}
	b.ReportMetric(float64(sent)/elapsed.Seconds(), "events/s")
}

// updates returns the first updates and the cycle of updates that follows. The
// versions of the changing pod share no memory, and the first one is not sent again,
// because kubelet writes later versions to it. The cycle is long enough that a version
// is unknown when it is sent again, and short enough to stay in a cache.
func (c mergeSet) updates(n int) (first, cycle []merge.PodUpdate) {
	original := make([]*v1.Pod, n)
	for i := range original {
		original[i] = conformance.RealisticPod(i)
	}
	random := rand.New(rand.NewPCG(1, uint64(n)))
	all := make([]*v1.Pod, n)
	set := func() merge.PodUpdate {
		list := slices.Clone(all)
		random.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
		return merge.PodUpdate{Op: merge.SET, Source: merge.APISource, Pods: list}
	}
	renew := func(version string) {
		for i, pod := range original {
			all[i] = pod.DeepCopy()
			all[i].ResourceVersion += version
		}
	}
	renew("")
	first = append(first, set())
	if c.history == "updated" {
		renew("0")
		first = append(first, set())
	}
	length := 8
	if c.list == "fresh" {
		length = 4
	}
	for i := range length {
		if c.list == "fresh" {
			renew("")
		}
		pod := original[flapping].DeepCopy()
		switch {
		case i%2 == 0 && c.change == "status":
			pod.Status.Conditions[0].LastTransitionTime.Time = pod.CreationTimestamp.Add(time.Hour)
			pod.Status.ContainerStatuses[0].Ready = false
			pod.ResourceVersion += "1"
		case i%2 == 0 && c.change == "spec":
			pod.Spec.Containers[0].Image += "-patched"
			pod.Generation++
			pod.ResourceVersion += "1"
		}
		if c.change != "none" {
			all[flapping] = pod
		}
		if c.sent == "update" {
			cycle = append(cycle, merge.PodUpdate{Op: merge.UPDATE, Source: merge.APISource, Pods: []*v1.Pod{pod}})
		} else {
			cycle = append(cycle, set())
		}
	}
	return first, cycle
}
