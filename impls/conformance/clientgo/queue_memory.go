package clientgo

import (
	"runtime"
	"slices"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
)

// memoryChecks: who owns the memory that process receives. That owned memory is never reused, and lent memory
// not before process returns, is part of the random operations.
var memoryChecks = []queueCheck{
	{Name: "lent memory is reused", For: all(lent, room(1)), Run: on(lentReused)},
	{Name: "nothing is held", Run: nothingHeld},
	{Name: "a pop holds nothing of another", For: all(deltas, room(4)), Run: on(ownDeltasOnly)},
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
			Add 0, Update 1 1, Delete 2, Drain
			Add 0 1, Drain, Delete 0, Tombstone 1, Delete 1, Drain
			Add 0 1, Drain, Update 0, Replace 1, Drain, Replace 2, Drain
			Replace 3, Drain, Resync, Bookmark 0, Drain, Resync 0, Update 0, Resync 0, Drain
			Delete 7, Add 0, Delete 0 0, Drain
			Add 0, Update 0 0 0, Drain
			Add 0 1 2 3 4 5 6 7, Update 1, Delete 2, Replace 4, Resync 0, Drain
			Replace 5, Delete 0, Update 1, Replace 6, Replace 7, Drain`,
		"a closed queue": "Add 0, Update 1, Close 0, Add 2, Update 3, Delete 0, Replace 1, Resync 0, Bookmark 0, Drain",
	} {
		p := s.newPlayer(t, 8)
		var made []weak.Pointer[metav1.ObjectMeta]
		p.made = &made
		for words := range conformance.Statements(script) {
			if words[0] == "Drain" {
				p.drain()
			} else if k := kind(words[0]); slices.Contains(s.kinds(), k) {
				for _, arg := range words[1:] {
					p.call(k, number(arg))
				}
			}
		}
		r := p.queueRig
		r.do(r.store.Replace(nil, ""))
		expectCollected(r, made, name)
	}
}

// expectCollected fails where something holds an object after the next call of the queue.
func expectCollected[T any](r *queueRig, objects []weak.Pointer[T], when string) {
	r.t.Helper()
	held := func(p weak.Pointer[T]) bool { return p.Value() != nil }
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
	r.update("a@1", "b@2", "c@3", "a@4")
	var first, second []cache.Delta
	for _, deltas := range []*[]cache.Delta{&first, &second} {
		r.do(r.pop())
		*deltas = r.popped[len(r.popped)-1].deltas
		r.update("d@5")
	}
	weakly := func(deltas []cache.Delta) (objects []weak.Pointer[v1.Pod]) {
		for _, d := range deltas {
			objects = append(objects, weak.Make(d.Object.(*v1.Pod)))
		}
		return objects
	}
	ofFirst, ofSecond := weakly(first), weakly(second)
	r.popped = nil
	r.do(r.store.Replace(nil, ""))
	second = nil
	expectCollected(r, ofSecond, "with deltas of an earlier pop and queued events")
	runtime.KeepAlive(first)
	first = nil
	expectCollected(r, ofFirst, "with queued events")
}
