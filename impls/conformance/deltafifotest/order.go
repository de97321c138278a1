package deltafifotest

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// orderChecks: what comes out, in which order and in which company.
var orderChecks = []check{
	{name: "arrival order", applies: inOrder, places: 5, run: arrivalOrder},
	{name: "deltas of a key together, oldest first", applies: perKey, places: 6, run: deltasTogether},
	{name: "keys in the order in which they began to wait", applies: perKey, places: 6, run: keysInOrder},
	{name: "only the newest delta of a key", applies: latest, places: 7, run: newestOnly},
	{name: "no key twice in a batch", applies: batched, places: 350, run: uniqueKeysInBatch},
	{name: "batch size", applies: batched, places: 17, run: batchSize},
	{name: "batch ends with the initial list", applies: batched, places: 3, run: batchEndsWithInitialList},
	{name: "commands travel alone", applies: whole, places: 8, run: commandsTravelAlone},
	{name: "consecutive deletes become one", applies: all(perKey, everyDelta), places: 4, run: deletesFold},
	{name: "deletes that are not consecutive stay", applies: perKey, places: 4, run: deletesApart},
	{name: "every delete is handed over", applies: inOrder, places: 4, run: deletesInOrder},
	{name: "delete of what is nowhere is ignored", applies: perKey, places: 2, run: deleteUnknown},
	{name: "delete of what is known is handed over", applies: all(perKey, known), places: 1, run: deleteKnown},
	{name: "delete of what process has is handed over", applies: all(perKey, known, unlocked), places: 1, run: deleteInHand},
	{name: "delete takes a tombstone", places: 2, run: deleteTombstone},
	{name: "length", places: 3, run: length},
	{name: "keys with and without namespace", places: 8, run: namespacedKeys},
}

func arrivalOrder(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Update(pod("b", 2)), r.queue.Update(pod("a", 3)), r.queue.Delete(pod("b", 4)), r.queue.Add(pod("c", 5)))
	r.expect("Added a@1", "Updated b@2", "Updated a@3", "Deleted b@4", "Added c@5")
}

func deltasTogether(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("a", 3)), r.queue.Update(pod("b", 4)), r.queue.Delete(pod("a", 5)), r.queue.Add(pod("c", 6)))
	r.expect("Added a@1", "Updated a@3", "Deleted a@5", "Added b@2", "Updated b@4", "Added c@6")
	for _, h := range r.taken {
		if !h.batch {
			for _, d := range h.deltas {
				if keyOf(d.Object) != keyOf(h.deltas[0].Object) {
					t.Errorf("deltas of two keys in one hand-over: %v", words(h.deltas))
				}
			}
		}
	}
	// A key that was taken begins anew.
	r.do(r.queue.Update(pod("a", 7)))
	r.expect("Updated a@7")
}

// keysInOrder: an update of a key that waits keeps its place.
func keysInOrder(t *testing.T, b bed) {
	r := b.inOneShard().new(t)
	r.do(r.queue.Add(pod("c", 1)), r.queue.Add(pod("a", 2)), r.queue.Add(pod("b", 3)), r.queue.Update(pod("c", 4)), r.queue.Add(pod("d", 5)), r.queue.Update(pod("a", 6)))
	r.expect("Added c@1", "Updated c@4", "Added a@2", "Updated a@6", "Added b@3", "Added d@5")
}

// newestOnly: whatever the newest delta is, it takes the place of the others.
func newestOnly(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Delete(pod("a", 3)), r.queue.Delete(pod("b", 4)), r.queue.Add(pod("b", 5)))
	r.expectEach("Deleted a@3", "Added b@5")
	// It keeps the place: what comes later of others is not before it.
	r.do(r.queue.Add(pod("c", 6)), r.queue.Add(pod("d", 7)))
	for i := range 5 {
		r.do(r.queue.Update(pod("c", 10+i)))
	}
	r.expectEach("Updated c@14", "Added d@7")
}

func uniqueKeysInBatch(t *testing.T, b bed) {
	r := b.new(t)
	rv := 0
	for range 50 {
		for _, name := range []string{"a", "b", "c", "a", "d", "d", "e"} {
			rv++
			r.do(r.queue.Update(pod(name, rv)))
		}
	}
	r.drain()
	for _, h := range r.taken {
		if !h.batch {
			continue
		}
		if len(h.deltas) < 2 {
			t.Errorf("processBatch was handed %d deltas; one alone goes to process", len(h.deltas))
		}
		seen := map[string]bool{}
		for _, d := range h.deltas {
			if seen[keyOf(d.Object)] {
				t.Fatalf("key %s stands twice in the batch %v", keyOf(d.Object), words(h.deltas))
			}
			seen[keyOf(d.Object)] = true
		}
	}
}

func batchSize(t *testing.T, b bed) {
	size := deltafifo.DefaultBatchSize
	const set = 7
	b = b.inOneShard()
	b.BatchSize = set
	if q, err := b.variant.New(b.Options(newStore())); err == nil {
		q.Close()
		size = set
	} else if b.BatchSize = 0; !b.upstream() {
		t.Fatalf("BatchSize %d: %v", set, err)
	}
	r := b.new(t)
	r.do(r.queue.Update(pod("first", 1)))
	r.drain()
	n := 2*size + 3
	for i := range n {
		r.do(r.queue.Update(pod(fmt.Sprintf("k%d", i), i)))
	}
	from := len(r.taken)
	r.drain()
	got := 0
	for _, h := range r.taken[from:] {
		if len(h.deltas) > size {
			t.Errorf("a batch of %d, want at most %d", len(h.deltas), size)
		}
		got += len(h.deltas)
	}
	if got != n {
		t.Errorf("%d deltas handed over, want %d", got, n)
	}
	if most := (n+size-1)/size + 2; len(r.taken)-from > most {
		t.Errorf("%d distinct keys took %d hand-overs, want at most %d", n, len(r.taken)-from, most)
	}
}

func batchEndsWithInitialList(t *testing.T, b bed) {
	r := b.inOneShard().new(t)
	r.do(r.queue.Replace([]any{pod("a", 1), pod("b", 1)}, "1"), r.queue.Add(pod("c", 2)), r.queue.Add(pod("d", 3)))
	r.drain()
	for _, h := range r.taken {
		for _, d := range h.deltas {
			initial := d.Type == cache.Replaced || d.Type == cache.ReplacedAll
			if initial != h.initial {
				t.Errorf("%s was handed over with isInInitialList=%t", word(d), h.initial)
			}
		}
	}
}

func commandsTravelAlone(t *testing.T, b bed) {
	r := b.new(t)
	bookmark, ok := r.queue.(cache.ReflectorBookmarkStore)
	if !ok {
		t.Fatal("the queue takes no bookmarks")
	}
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), bookmark.Bookmark("3"), r.queue.Resync(), r.queue.Add(pod("c", 4)),
		r.queue.Replace([]any{pod("x", 5), pod("y", 5)}, "5"), r.queue.Add(pod("d", 6)), r.queue.Add(pod("e", 7)))
	r.expect("Added a@1", "Added b@2", "Bookmark rv=3", "SyncAll", "Added c@4", "ReplacedAll [x y] rv=5", "Added d@6", "Added e@7")
	for _, h := range r.taken {
		for _, d := range h.deltas {
			switch d.Type {
			case cache.Bookmark, cache.SyncAll, cache.ReplacedAll:
				if h.batch || len(h.deltas) != 1 {
					t.Errorf("%s shares a hand-over: %v", d.Type, words(h.deltas))
				}
			}
		}
	}
}

func deletesFold(t *testing.T, b bed) {
	r := b.new(t)
	tombstone := cache.DeletedFinalStateUnknown{Key: "a", Obj: pod("a", 1)}
	r.do(r.queue.Add(pod("a", 1)), r.queue.Delete(pod("a", 2)), r.queue.Delete(pod("a", 3)), r.queue.Delete(tombstone))
	r.expect("Added a@1", "Deleted a@2")
	// A tombstone gives way to the deletion that knows the final state.
	tombstone = cache.DeletedFinalStateUnknown{Key: "b", Obj: pod("b", 1)}
	r.do(r.queue.Add(pod("b", 1)), r.queue.Delete(tombstone), r.queue.Delete(pod("b", 2)))
	r.expect("Added b@1", "Deleted b@2")
}

func deletesApart(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Delete(pod("a", 2)), r.queue.Add(pod("a", 3)), r.queue.Delete(pod("a", 4)))
	r.expect("Added a@1", "Deleted a@2", "Added a@3", "Deleted a@4")
}

func deletesInOrder(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Delete(pod("a", 1)), r.queue.Delete(pod("a", 2)), r.queue.Add(pod("a", 3)), r.queue.Delete(pod("a", 4)))
	r.expect("Deleted a@1", "Deleted a@2", "Added a@3", "Deleted a@4")
}

func deleteUnknown(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Delete(pod("a", 1)))
	if n := r.queue.Len(); n != 0 {
		t.Errorf("a delete of what is neither queued nor known left %d keys", n)
	}
	if !r.queue.HasSynced() {
		t.Error("a delete that is ignored is still the first event: HasSynced must be true")
	}
	r.do(r.queue.Add(pod("a", 2)))
	r.drain()
	r.do(r.queue.Delete(pod("a", 3)))
	if b.Known {
		r.expect("Deleted a@3")
		// It is gone from the store now: a second report is ignored.
		r.do(r.queue.Delete(pod("a", 4)))
	}
	r.expect()
}

func deleteKnown(t *testing.T, b bed) {
	r := b.new(t)
	r.store.apply(cache.Delta{Type: cache.Added, Object: pod("a", 1)})
	r.do(r.queue.Delete(pod("a", 2)))
	r.expect("Deleted a@2")
}

// deleteInHand: what process has is neither queued nor known, and yet there.
func deleteInHand(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	once := true
	r.during = func([]cache.Delta) {
		if once {
			once = false
			r.do(r.queue.Delete(pod("a", 2)))
			_ = r.queue.Len()
		}
	}
	r.expectEach("Added a@1", "Deleted a@2")
}

func deleteTombstone(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Delete(cache.DeletedFinalStateUnknown{Key: "a", Obj: pod("a", 1)}))
	r.expect("Added a@1", "Deleted a@1†")
}

func length(t *testing.T, b bed) {
	r := b.new(t)
	if n := r.queue.Len(); n != 0 {
		t.Errorf("length of a new queue is %d", n)
	}
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("a", 3)))
	want := 3
	if perKey(b) {
		want = 2
	}
	if n := r.queue.Len(); n != want {
		t.Errorf("length is %d, want %d", n, want)
	}
	r.drain()
	if n := r.queue.Len(); n != 0 {
		t.Errorf("length of a drained queue is %d", n)
	}
}

// namespacedKeys: keys that only differ in where the slash stands are told
// apart, and those that are one key by client-go's rule are one.
func namespacedKeys(t *testing.T, b bed) {
	r := b.new(t)
	put := func(ns, name string) {
		p := pod(name, 1)
		p.Namespace = ns
		r.do(r.queue.Add(p))
	}
	r.do(r.queue.Add(pod("first", 0)))
	r.drain()
	put("a", "b")
	put("", "a")
	put("", "b")
	put("b", "a")
	put("a", "c")
	put("ab", "c")
	put("a", "bc")
	if n := r.queue.Len(); n != 7 {
		t.Errorf("%d keys wait, want 7", n)
	}
	// The key of this tombstone is that of the first of them.
	r.do(r.queue.Delete(cache.DeletedFinalStateUnknown{Key: "a/b"}))
	want, deltas := 8, 9
	if perKey(b) {
		want = 7
	}
	if b.latest() {
		deltas = 8
	}
	if n := r.queue.Len(); n != want {
		t.Errorf("%d wait after a tombstone of a/b, want %d", n, want)
	}
	if got := len(r.drain()) + 1; got != deltas {
		t.Errorf("%d deltas came out, want %d", got, deltas)
	}
}
