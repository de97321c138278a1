package deltafifotest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// memoryChecks: whose the memory is that is handed over.
var memoryChecks = []check{
	{name: "what was handed over is not touched again", applies: owned, places: 40, run: ownership},
	{name: "what is lent stays as it is until process returns", places: 40, applies: all(lent, unlocked), run: lentStays},
	{name: "what is lent is used again", applies: lent, places: 1, run: lentAgain},
	{name: "objects are let go", applies: all(ours, func(b bed) bool { return b.Capacity != 1 && b.path == byBatch }), places: 100, run: letGo},
}

// ownership keeps everything that was handed over, goes on, and looks again: a
// queue that reuses what it handed over would show later deltas in it.
func ownership(t *testing.T, b bed) {
	r := b.new(t)
	var kept [][]cache.Delta
	var want [][]string
	for round := range 40 {
		for i := range 30 {
			r.do(r.queue.Update(pod(fmt.Sprintf("k%d", i), round)))
			if i%3 == 0 {
				r.do(r.queue.Update(pod(fmt.Sprintf("k%d", i), round)))
			}
		}
		from := len(r.taken)
		r.drain()
		for _, h := range r.taken[from:] {
			kept = append(kept, h.deltas)
			want = append(want, words(h.deltas))
			// The consumer may write into what is its own.
			_ = append(h.deltas, cache.Delta{Type: "scribble"})
		}
	}
	for i := range kept {
		if got := words(kept[i]); !slices.Equal(got, want[i]) {
			t.Fatalf("hand-over %d read %v, later %v", i, want[i], got)
		}
	}
}

// lentStays goes on producing while process has what it was lent.
func lentStays(t *testing.T, b bed) {
	r := b.new(t)
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
			t.Fatalf("process was lent %v, which became %v", want, got)
		}
	}
	produce(30)
	r.drain()
}

// lentAgain: nothing is allocated for a hand-over, so that the same memory comes
// again.
func lentAgain(t *testing.T, b bed) {
	r := b.new(t)
	seen := map[*cache.Delta]int{}
	const rounds = 100
	r.during = func(deltas []cache.Delta) { seen[&deltas[0]]++ }
	for i := range rounds {
		r.do(r.queue.Update(pod("a", i)))
		r.drain()
	}
	if len(seen) > rounds/10 {
		t.Errorf("%d hand-overs used %d pieces of memory", rounds, len(seen))
	}
}

// letGo: a queue holds on to no object that it has handed over, save to some
// few.
func letGo(t *testing.T, b bed) {
	const objects = 1000
	r := b.new(t)
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
	r.taken, r.store.objs = nil, map[string]any{}
	runtime.GC()
	alive := 0
	for _, p := range all {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(r.queue)
	if alive > objects/10 {
		t.Errorf("%d of %d objects are held on to after they were handed over", alive, objects)
	}
}
