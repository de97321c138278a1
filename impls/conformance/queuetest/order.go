package queuetest

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// orderChecks: what is popped, in which order and in which batch.
var orderChecks = []check{
	{Name: "arrival order", For: all(inOrder, room(5)), Run: script(`
		add a@1, update b@2, update a@3, delete b@4, add c@5
		want Added a@1, Updated b@2, Updated a@3, Deleted b@4, Added c@5`)},
	{Name: "deltas of a key together, oldest first", For: all(perKey, room(6)), Run: script(`
		add a@1, add b@2, update a@3, update b@4, delete a@5, add c@6
		want Added a@1, Updated a@3, Deleted a@5, Added b@2, Updated b@4, Added c@6`)},
	// An update of a queued key keeps its position; a key that was popped is new.
	{Name: "keys keep their queue position", For: all(perKey, room(6)), Run: script(`one shard
		add c@1, add a@2, add b@3, update c@4, add d@5, update a@6
		want Added c@1, Updated c@4, Added a@2, Updated a@6, Added b@3, Added d@5
		add c@7, add b@8
		want Added c@7, Added b@8`)},
	{Name: "objects keep their queue position", For: all(objects, room(3)), Run: script(`
		add b@1, update a@2, add c@3, update b@4
		want Updated b@4, Updated a@2, Added c@3
		add c@5, add b@6
		want Added c@5, Added b@6`)},
	{Name: "only the newest delta of a key", For: all(latest, deltas, room(7)), Run: script(`
		add a@1, add b@2, delete a@3, delete b@4, add b@5
		each Deleted a@3, Added b@5
		add c@6, add d@7, update c@10, update c@11, update c@12, update c@13, update c@14
		each Updated c@14, Added d@7`)},
	{Name: "only the newest object of a key", For: objects, Run: played(1, newestObject)},
	// It pops without Len in between, which might apply what Pop should.
	{Name: "Pop sees the latest call", For: all(objects, room(4), fifo), Run: script(`
		add a@1, add b@1, add c@1, add d@1, pop, update b@2, pop, delete c@2, pop
		add e@3, replace f, pop
		want Added a@1, Updated b@2, Added d@1, Replaced f@9`)},
	{Name: "no key twice in a batch", For: all(batched, room(350)), Run: on(uniqueKeysInBatch)},
	{Name: "batch size", For: all(batched, room(17)), Run: batchSize},
	{Name: "a batch ends with the initial list", For: all(batched, room(3)), Run: batchEndsWithInitialList},
	{Name: "commands are popped alone", For: all(atomicLists, room(8)), Run: script(`
		add a@1, add b@2, bookmark 3, resync, add c@4, replace x y, add d@6, add e@7
		want Added a@1, Added b@2, Bookmark rv=3, SyncAll, Added c@4, ReplacedAll [x y] rv=9, Added d@6, Added e@7`)},
	// Of two deletes the one that has the final state is kept.
	{Name: "consecutive deletes become one", For: all(perKey, everyDelta, room(4)), Run: script(`
		add a@1, delete a@2, delete a@3, bury a@1
		want Added a@1, Deleted a@2
		add b@1, bury b@1, delete b@2
		want Added b@1, Deleted b@2`)},
	{Name: "separate deletes are kept", For: all(perKey, room(4)), Run: script(`
		add a@1, delete a@2, add a@3, delete a@4
		want Added a@1, Deleted a@2, Added a@3, Deleted a@4`)},
	{Name: "every delete is popped", For: all(inOrder, room(4)), Run: script(`
		delete a@1, delete a@2, add a@3, delete a@4
		want Deleted a@1, Deleted a@2, Added a@3, Deleted a@4`)},
	{Name: "delete of an unknown key is ignored", For: all(perKey, room(2)), Run: script(`
		delete a@1, len 0, synced true
		add a@2, drain`)},
	// The second delete finds the key deleted from the store.
	{Name: "delete of a known key is popped", For: all(perKey, known, room(2)), Run: script(`
		add a@1, drain, delete a@2
		want Deleted a@2
		delete a@3
		want`)},
	// A key in process is neither queued nor in the store.
	{Name: "delete of a key in process is popped", For: all(perKey, known, unlocked, room(1)), Run: script(`
		add a@1
		inside delete a@2, len 1
		each Added a@1, Deleted a@2`)},
	{Name: "delete takes a tombstone", For: all(deltas, room(2)), Run: script(`
		add a@1, bury a@1
		want Added a@1, Deleted a@1†`)},
	{Name: "delete removes from the queue", For: all(objects, room(2)), Run: script(`
		add a@1, add b@2, delete a@3, delete unknown@4
		want Added b@2
		add a@5
		want Added a@5`)},
	{Name: "delete leaves nothing behind", For: objects, Run: played(1000, deletes)},
	{Name: "Len", For: all(inOrder, room(3)), Run: script(`len 0, add a@1, add b@2, update a@3, len 3, drain, len 0`)},
	{Name: "Len", For: all(not(inOrder), room(3)), Run: script(`len 0, add a@1, add b@2, update a@3, len 2, drain, len 0`)},
	{Name: "Len after a delete", For: all(objects, room(3)), Run: script(`add a@1, add b@2, delete a@3, len 1, drain, len 0`)},
	{Name: "keys with and without namespace", For: room(8), Run: on(namespacedKeys)},
	{Name: "a key is deleted and added again", For: objects, Run: played(40, deletedAndAdded)},
	{Name: "many keys come and go", For: objects, Run: played(3000, comeAndGo)},
}

func newestObject(p *player) {
	p.call(update, make([]int, 1000)...)
	p.call(pop, 0)
	for range 100 { // Also between two pops.
		p.call(update, 0, 0)
		p.call(pop, 0)
	}
}

// uniqueKeysInBatch: [popped.check] tests the batches.
func uniqueKeysInBatch(r *rig) {
	for i := range 50 {
		for j, name := range []string{"a", "b", "c", "a", "d", "d", "e"} {
			r.do(r.queue.Update(pod(name, 7*i+j)))
		}
	}
	r.drain()
}

func batchSize(t *testing.T, s setup) {
	s = s.oneShard()
	s.BatchSize = 7
	if err := s.supported(); err != nil && ours(s) {
		t.Fatalf("BatchSize 7: %v", err)
	} else if err != nil {
		s.BatchSize = 0
	}
	r := s.new(t)
	r.do(r.queue.Update(pod("first", 1)))
	r.drain()
	n := 2*s.batchSize() + 3
	for i := range n {
		r.do(r.queue.Update(key(i)))
	}
	from := len(r.popped)
	if got := len(r.drain()); got != n {
		t.Errorf("popped %d deltas, want %d", got, n)
	}
	if pops, most := len(r.popped)-from, (n-1)/s.batchSize()+3; pops > most {
		t.Errorf("%d distinct keys took %d pops, want at most %d", n, pops, most)
	}
}

func batchEndsWithInitialList(t *testing.T, s setup) {
	r := s.oneShard().new(t)
	r.run("replace a b, add c@2, add d@3, drain")
	for _, p := range r.popped {
		for _, d := range p.deltas {
			if initial := d.Type == cache.Replaced || d.Type == cache.ReplacedAll; initial != p.initial {
				t.Errorf("%s was popped with isInInitialList=%t", word(d), p.initial)
			}
		}
	}
}

func deletes(p *player) {
	for k := range 1000 {
		p.call(add, k)
	}
	for k := range 1000 {
		if k%3 != 0 {
			p.call(del, k)
		}
	}
}

// namespacedKeys: keys that differ only in the position of the slash are different,
// and keys that are equal by client-go's rule are one.
func namespacedKeys(r *rig) {
	r.run("add first@0, drain")
	for _, k := range [][2]string{{"a", "b"}, {"", "a"}, {"", "b"}, {"b", "a"}, {"a", "c"}, {"ab", "c"}, {"a", "bc"}} {
		p := pod(k[1], 1)
		p.Namespace = k[0]
		r.do(r.queue.Add(p))
	}
	r.run("len 7")
	// The key is that of the first of them.
	if r.objects {
		r.do(r.queue.Update(pod("a/b", 2)))
	} else {
		r.do(r.queue.Delete(cache.DeletedFinalStateUnknown{Key: "a/b"}))
	}
	queued, popped := 8, 8
	if !inOrder(r.setup) {
		queued = 7
	}
	if latest(r.setup) {
		popped = 7
	}
	if n := r.queue.Len(); n != queued {
		r.t.Errorf("Len is %d after another event of a/b, want %d", n, queued)
	}
	if n := len(r.drain()); n != popped {
		r.t.Errorf("popped %d events, want %d", n, popped)
	}
	if r.objects {
		r.do(r.queue.Add(pod("", 4)))
		r.expect("Added @4")
	}
}

// deletedAndAdded deletes and adds keys behind one that stays.
func deletedAndAdded(p *player) {
	for k := range 40 {
		p.call(add, k)
	}
	for round := range 50 {
		for i := 1; i < 40; i++ {
			p.call(del, i*7%40)
			if round < 49 || i%2 == 0 {
				p.call(add, i*7%40)
			}
		}
	}
}

// comeAndGo grows and shrinks the queue several times.
func comeAndGo(p *player) {
	for round, n := range []int{1, 10, 1000, 3, 999, 17, 500} {
		for k := range n {
			p.call(add, round%3*1000+k)
		}
		p.drain()
	}
}
