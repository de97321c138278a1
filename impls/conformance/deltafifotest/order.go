package deltafifotest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// orderChecks: what comes out, in which order and in which company.
var orderChecks = []check{
	{"arrival order", inOrder, arrivalOrder},
	{"deltas of a key together, oldest first", perKey, deltasTogether},
	{"nothing lost, reordered or duplicated among producers", nil, concurrentProducers},
	{"no key twice in a batch", batched, uniqueKeysInBatch},
	{"batch size", batched, batchSize},
	{"batch ends with the initial list", batched, batchEndsWithInitialList},
	{"commands travel alone", atomic, commandsTravelAlone},
	{"consecutive deletes become one", perKey, deletesFold},
	{"deletes that are not consecutive stay", perKey, deletesApart},
	{"every delete is handed over", inOrder, deletesInOrder},
	{"delete of what is nowhere is ignored", perKey, deleteUnknown},
	{"delete of what is known is handed over", func(b bed) bool { return perKey(b) && known(b) }, deleteKnown},
	{"delete takes a tombstone", nil, deleteTombstone},
	{"what was handed over is not touched again", nil, ownership},
	{"length", nil, length},
	{"keys with and without namespace", nil, namespacedKeys},
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
				if nameOf(d) != nameOf(h.deltas[0]) {
					t.Errorf("deltas of two keys in one hand-over: %v", words(h.deltas))
				}
			}
		}
	}
	// A key that was taken begins anew.
	r.do(r.queue.Update(pod("a", 7)))
	r.expect("Updated a@7")
}

func nameOf(d cache.Delta) string {
	if o, ok := d.Object.(cache.DeletedFinalStateUnknown); ok {
		return o.Key
	}
	return d.Object.(*v1.Pod).Name
}

// concurrentProducers plays many keys from several goroutines, each the author
// of its own keys, into one consumer. Versions of a key count up by one, so that
// each of the three faults shows as a step that isn't one.
func concurrentProducers(t *testing.T, b bed) {
	const producers, keysEach, versions = 4, 25, 200
	r := b.new(t)
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for v := 1; v <= versions; v++ {
				for k := range keysEach {
					obj := pod(fmt.Sprintf("p%d-k%d", p, k), v)
					var err error
					if v == 1 {
						err = r.queue.Add(obj)
					} else {
						err = r.queue.Update(obj)
					}
					if err != nil {
						t.Errorf("producer %d: %v", p, err)
						return
					}
				}
			}
		})
	}
	go func() {
		wg.Wait()
		r.queue.Close()
	}()
	for r.take() == nil {
	}
	last := map[string]int{}
	for _, h := range r.taken {
		for _, d := range h.deltas {
			name, got := nameOf(d), version(d.Object)
			if want := last[name] + 1; got != want {
				t.Fatalf("%s: version %d came after %d", name, got, want-1)
			}
			last[name] = got
		}
	}
	if len(last) != producers*keysEach {
		t.Errorf("%d keys came out, want %d", len(last), producers*keysEach)
	}
	for name, v := range last {
		if v != versions {
			t.Errorf("%s: lost what came after version %d", name, v)
		}
	}
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
			if seen[nameOf(d)] {
				t.Fatalf("key %s stands twice in the batch %v", nameOf(d), words(h.deltas))
			}
			seen[nameOf(d)] = true
		}
	}
}

func batchSize(t *testing.T, b bed) {
	size := deltafifo.DefaultBatchSize
	const set = 7
	if _, err := b.variant.New(deltafifo.Options{Delivery: b.delivery, KnownObjects: b.store(), BatchSize: set}); err == nil {
		size = set
	} else if !b.upstream() {
		t.Fatalf("BatchSize %d: %v", set, err)
	}
	r := b.new(t, func(o *deltafifo.Options) {
		if size == set {
			o.BatchSize = size
		}
	})
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
	r := b.new(t)
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
	if b.known {
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

func deleteTombstone(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Delete(cache.DeletedFinalStateUnknown{Key: "a", Obj: pod("a", 1)}))
	r.expect("Added a@1", "Deleted a@1†")
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

func length(t *testing.T, b bed) {
	r := b.new(t)
	if n := r.queue.Len(); n != 0 {
		t.Errorf("length of a new queue is %d", n)
	}
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("a", 3)))
	want := 3
	if b.delivery == deltafifo.PerKey {
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
	want := 8
	if b.delivery == deltafifo.PerKey {
		want = 7
	}
	if n := r.queue.Len(); n != want {
		t.Errorf("%d wait after a tombstone of a/b, want %d", n, want)
	}
	for r.queue.Len() > 0 {
		// The store of the rig knows names only; what counts is that all of it
		// comes out.
		if err := r.take(); err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	for _, h := range r.taken {
		got += len(h.deltas)
	}
	if got != 9 {
		t.Errorf("%d deltas came out, want 9", got)
	}
}
