package queuetest

import (
	"fmt"
	"runtime"
	"slices"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// memoryChecks: who owns the memory that process receives.
var memoryChecks = []check{
	{Name: "owned memory is never reused", For: all(owned, room(40)), Run: on(ownership)},
	{Name: "lent memory is stable until process returns", For: all(lent, unlocked, room(40)), Run: on(lentStable)},
	{Name: "lent memory is reused", For: all(lent, room(1)), Run: on(lentReused)},
	{Name: "popped objects can be collected", For: room(100), Run: on(objectsCollected)},
}

// ownership keeps everything that was popped, goes on, and compares: a queue that
// reuses memory would show later deltas in it.
func ownership(r *rig) {
	var kept [][]cache.Delta
	var want [][]string
	for round := range 40 {
		for i := range 30 {
			for range 1 + i%2 {
				r.do(r.queue.Update(pod(fmt.Sprintf("k%d", i), round)))
			}
		}
		from := len(r.popped)
		r.drain()
		for _, p := range r.popped[from:] {
			kept = append(kept, p.deltas)
			want = append(want, words(p.deltas))
			// The consumer may write to what it owns.
			_ = append(p.deltas, cache.Delta{Type: "scribble"})
		}
	}
	for i := range kept {
		if got := words(kept[i]); !slices.Equal(got, want[i]) {
			r.t.Fatalf("pop %d was %v, later %v", i, want[i], got)
		}
	}
}

// lentStable produces while process has lent memory.
func lentStable(r *rig) {
	rv := 0
	produce := func(n int) {
		for range n {
			rv++
			r.do(r.queue.Update(pod(fmt.Sprintf("k%d", rv%11), rv)))
		}
	}
	rounds := 0
	r.during = func(deltas []cache.Delta) {
		want := words(deltas)
		if rounds++; rounds < 100 {
			produce(len(deltas))
			_ = r.queue.Len()
		}
		if got := words(deltas); !slices.Equal(got, want) {
			r.t.Fatalf("process was lent %v, which became %v", want, got)
		}
	}
	produce(30)
	r.drain()
}

// lentReused: a pop allocates nothing, so that the same memory comes again.
func lentReused(r *rig) {
	seen := map[*cache.Delta]int{}
	const rounds = 100
	r.during = func(deltas []cache.Delta) { seen[&deltas[0]]++ }
	for i := range rounds {
		r.do(r.queue.Update(pod("a", i)))
		r.drain()
	}
	if len(seen) > rounds/10 {
		r.t.Errorf("%d pops used %d slices", rounds, len(seen))
	}
}

// objectsCollected: a queue holds no reference to popped objects, save for a few.
func objectsCollected(r *rig) {
	const objects, most = 1000, 20
	var all []weak.Pointer[v1.Pod]
	for i := range objects {
		p := pod(fmt.Sprintf("k%d", i%70), i)
		all = append(all, weak.Make(p))
		r.do(r.queue.Update(p))
		if i%90 == 89 {
			r.drain()
		}
	}
	r.drain()
	r.popped, r.store.objs = nil, map[string]any{}
	runtime.GC()
	alive := 0
	for _, p := range all {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(r.queue)
	if alive > most {
		r.t.Errorf("%d of %d popped objects cannot be collected", alive, objects)
	}
}
