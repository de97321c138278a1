package queuetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// memoryChecks: who owns the memory that process receives.
var memoryChecks = []check{
	{Name: "owned memory is never reused", For: all(owned, room(40)), Run: on(ownership)},
	{Name: "lent memory is stable until process returns", For: all(lent, unlocked, room(40)), Run: on(lentStable)},
	{Name: "lent memory is reused", For: all(lent, room(1)), Run: on(lentReused)},
	{Name: "popped objects can be collected", For: all(ours, objects, room(100)), Run: on(objectsCollected)},
	{Name: "popped objects can be collected", For: all(deltas, room(7)), Run: nothingHeld},
	{Name: "a pop holds its own deltas only", For: all(deltas, room(6)), Run: on(keptAlone)},
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
	const objects = 1000
	most := objects / 10
	if r.objects {
		most = objects / 50
	}
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

// nothingHeld: a queue holds no object that it has handed over, dropped or refused, however it came.
func nothingHeld(t *testing.T, s setup) {
	for _, script := range []string{
		"Added a, Updated b, Updated b, Deleted c",
		"Added a, Added b, drain, Deleted a, bury b, Deleted b",
		"Added a, Added b, drain, Updated a, ReplacedAll b c, drain, ReplacedAll",
		"ReplacedAll a b c, drain, SyncAll, Bookmark, drain, SyncAll, Updated a, SyncAll",
		"Deleted unknown, Added a, Deleted a, Deleted a",
		"Added a, Updated a, Updated a, Updated a",
		"Added a, Updated b, Close, Added c, Updated d, Deleted a, ReplacedAll e f, SyncAll, Bookmark",
		"full, Added a, Updated b, Deleted k0, ReplacedAll d e, SyncAll",
	} {
		r := s.new(t, func(o *deltafifo.Options) { o.Context = canceled() })
		made := r.made(script)
		r.drain()
		r.popped, r.store.objs = nil, map[string]any{}
		r.collected(made, script)
	}
}

// keptAlone: the deltas of a pop hold nothing of another pop, and the queue nothing of a pop while
// it has other events.
func keptAlone(r *rig) {
	r.run("add a@1, add b@2, add c@3, update a@4, pop, update d@5, update d@6, pop")
	weakly := func(p popped) (objects []weak.Pointer[v1.Pod]) {
		for _, d := range p.deltas {
			objects = append(objects, weak.Make(d.Object.(*v1.Pod)))
		}
		return objects
	}
	first, second := weakly(r.popped[0]), weakly(r.popped[1])
	r.popped, r.store.objs = slices.Clone(r.popped[:1]), map[string]any{}
	r.collected(second, "with deltas of an earlier pop and queued events")
	r.popped = nil
	r.collected(first, "with queued events")
}

// made makes calls, of which some may fail, and returns their objects.
func (r *rig) made(script string) (made []weak.Pointer[v1.Pod]) {
	for _, call := range list(script) {
		words := strings.Fields(call)
		objects := make([]any, len(words)-1)
		for i, name := range words[1:] {
			p := pod(name, 1)
			made = append(made, weak.Make(p))
			objects[i] = p
		}
		switch words[0] {
		case "drain":
			r.drain()
		case "Close":
			r.queue.Close()
		case "full":
			for i := range r.Capacity {
				r.do(r.queue.Add(key(i)))
			}
		case "bury":
			_ = r.queue.Delete(tombstoneOf(objects[0]))
		case "ReplacedAll":
			_ = r.push(r.queue, listOf("1", objects...))
		case "SyncAll":
			_ = r.queue.Resync()
		case "Bookmark":
			_ = r.push(r.queue, cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: "2"}})
		default:
			_ = r.push(r.queue, cache.Delta{Type: cache.DeltaType(words[0]), Object: objects[0]})
		}
	}
	return made
}

// collected fails where the queue holds an object after its next call.
func (r *rig) collected(made []weak.Pointer[v1.Pod], when string) {
	r.t.Helper()
	_ = r.queue.Len()
	runtime.GC()
	for i, p := range made {
		if p := p.Value(); p != nil {
			r.t.Errorf("%s: the queue holds object %d, %s", when, i, p.Name)
		}
	}
	runtime.KeepAlive(r.queue)
}
