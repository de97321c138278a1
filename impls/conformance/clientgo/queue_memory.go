package clientgo

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// memoryChecks: who owns the memory that process receives.
var memoryChecks = []queueCheck{
	{Name: "owned memory is never reused", For: all(owned, room(40)), Run: on(ownership)},
	{Name: "lent memory is stable until process returns", For: all(lent, unlocked, room(40)), Run: on(lentStable)},
	{Name: "lent memory is reused", For: all(lent, room(1)), Run: on(lentReused)},
	{Name: "nothing is held", Run: nothingHeld},
	{Name: "a pop holds nothing of another", For: all(deltas, room(4)), Run: on(ownDeltasOnly)},
}

// ownership keeps everything that was popped, goes on, and compares: a queue that
// reuses memory would show later deltas in it.
func ownership(r *queueRig) {
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
func lentStable(r *queueRig) {
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
func lentReused(r *queueRig) {
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

// nothingHeld: a queue holds no object that it has handed over, dropped or refused, however it came. A
// bounded queue refuses what it has no room for.
func nothingHeld(t *testing.T, s queueSetup) {
	for name, script := range map[string]string{
		"a queue": `
			add a, update b, update b, delete c, drain
			add a, add b, drain, delete a, bury b, delete b, drain
			add a, add b, drain, update a, replace b c, drain, replace, drain
			replace a b c, drain, resync, bookmark, drain, resync, update a, resync, drain
			delete unknown, add a, delete a, delete a, drain
			add a, update a, update a, update a, drain
			add a, add b, add c, add d, add e, add f, add g, add h, update b, delete c, replace d e, resync, drain
			replace a b, delete a, update b, replace a, replace b c, drain`,
		"a closed queue": "add a, update b, close, add c, update d, delete a, replace e f, resync, bookmark, drain",
	} {
		r := s.new(t, func(o *deltafifo.Options) { o.Context = canceled() })
		made := r.perform(script)
		r.popped, r.store.objs = nil, map[string]any{}
		r.collected(made, name)
	}
}

// perform makes the calls of a script, of which some may fail, and returns their objects.
func (r *queueRig) perform(script string) (made []weak.Pointer[v1.Pod]) {
	types := map[string]cache.DeltaType{"add": cache.Added, "update": cache.Updated, "delete": cache.Deleted}
	for words := range conformance.Statements(script) {
		objects := make([]any, len(words)-1)
		for i, name := range words[1:] {
			p := pod(name, 1)
			made, objects[i] = append(made, weak.Make(p)), p
		}
		var call cache.Delta
		switch verb := words[0]; verb {
		case "drain":
			r.drain()
			continue
		case "close":
			r.queue.Close()
			continue
		case "add", "update", "delete":
			call = cache.Delta{Type: types[verb], Object: objects[0]}
		case "bury":
			call = cache.Delta{Type: cache.Deleted, Object: tombstoneOf(objects[0])}
		case "replace":
			call = listOf("1", objects...)
		case "resync":
			call = cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}
		case "bookmark":
			call = cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: "1"}}
		}
		_ = r.push(r.queue, call)
	}
	return made
}

// collected fails where something holds an object after the next call of the queue.
func (r *queueRig) collected(objects []weak.Pointer[v1.Pod], when string) {
	r.t.Helper()
	held := func(p weak.Pointer[v1.Pod]) bool { return p.Value() != nil }
	// The collector scans the frame of a goroutine that it stopped anywhere conservatively, so it may
	// keep for once what the channel's goroutine had in hand.
	for i := 0; i < 20 && (i == 0 || slices.ContainsFunc(objects, held)); i++ {
		_ = r.queue.Len()
		runtime.GC()
	}
	if i := slices.IndexFunc(objects, held); i >= 0 {
		r.t.Errorf("%s: object %d cannot be collected", when, i)
	}
	runtime.KeepAlive(r.queue)
}

// ownDeltasOnly: the deltas of a pop hold nothing of another pop, and the queue nothing of a pop while
// it has other events.
func ownDeltasOnly(r *queueRig) {
	made := r.perform("update a, update b, update c, update a")
	var first, second []cache.Delta
	for _, deltas := range []*[]cache.Delta{&first, &second} {
		r.do(r.pop())
		*deltas = r.popped[len(r.popped)-1].deltas
		r.perform("update d")
	}
	weakly := func(deltas []cache.Delta) (objects []weak.Pointer[v1.Pod]) {
		for _, p := range made {
			if slices.ContainsFunc(deltas, func(d cache.Delta) bool { return d.Object == any(p.Value()) }) {
				objects = append(objects, p)
			}
		}
		return objects
	}
	ofFirst, ofSecond := weakly(first), weakly(second)
	r.popped, r.store.objs = nil, map[string]any{}
	second = nil
	r.collected(ofSecond, "with deltas of an earlier pop and queued events")
	runtime.KeepAlive(first)
	first = nil
	r.collected(ofFirst, "with queued events")
}
