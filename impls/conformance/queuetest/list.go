package queuetest

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// listChecks: Replace, Resync, bookmarks and HasSynced.
var listChecks = []check{
	{Name: "Replace deletes keys that it lacks", For: all(splitLists, not(known), room(3)), Run: script(`
		add stored@1, drain, add queued@2, add kept@3, replace kept fresh
		any Added queued@2, Added kept@3, Deleted queued@2†, Replaced kept@9, Replaced fresh@9`)},
	{Name: "Replace deletes keys that it lacks", For: all(splitLists, known, room(3)), Run: script(`
		add stored@1, drain, add queued@2, add kept@3, replace kept fresh
		any Added queued@2, Added kept@3, Deleted queued@2†, Deleted stored@1†, Replaced kept@9, Replaced fresh@9`)},
	{Name: "Replace drops what is queued", For: all(objects, room(2)), Run: script(`
		add a@1, add b@2, replace b c
		any Replaced b@9, Replaced c@9
		add a@10, replace
		want`)},
	{Name: "Replace is one delta", For: all(atomicLists, room(3)), Run: script(`
		add a@1, replace b c, delete b@10
		want Added a@1, ReplacedAll [b c] rv=9, Deleted b@10
		replace
		want ReplacedAll [] rv=9`)},
	// A queued delete is popped although the key is listed again, as that is another
	// object of the same name, and not twice where it is not listed.
	{Name: "Replace of a key with a queued delete", For: all(splitLists, perKey, everyDelta, room(5)), Run: script(`
		add again@1, add gone@2, delete again@3, delete gone@4, replace again
		want Added again@1, Deleted again@3, Replaced again@9, Added gone@2, Deleted gone@4`)},
	{Name: "Replace of a key with a queued delete", For: all(splitLists, inOrder, everyDelta, room(5)), Run: script(`
		add again@1, add gone@2, delete again@3, delete gone@4, replace again
		want Added again@1, Added gone@2, Deleted again@3, Deleted gone@4, Replaced again@9`)},
	{Name: "Replace queues tombstones first", For: all(inOrder, known, room(4)), Run: script(`
		add s1@1, add s2@2, drain
		add q2@3, add q1@4, update q2@5, replace y x
		want Added q2@3, Added q1@4, Updated q2@5, Deleted q2@5†, Deleted q1@4†, Deleted s1@1†, Deleted s2@2†, Replaced y@9, Replaced x@9`)},
	{Name: "a tombstone has the newest known object", For: all(splitLists, room(2)), Run: script(`
		add a@1, drain, update a@2, replace
		want Updated a@2, Deleted a@2†`)},
	{Name: "Replace with an object twice", For: objects, Run: script(`
		replace a@1 a@2
		want Added a@2
		synced true`)},
	{Name: "a list may be longer than the capacity", For: objects, Run: played(1, longList)},
	{Name: "Replace during process", For: all(known, room(3)), Run: replaceDuringProcess},
	{Name: "final state after Replace", For: all(deltas, room(4)), Run: script(`
		replace a b c, update a@10, delete b@11, add d@12
		state a@10 c@9 d@12`)},
	{Name: "final state after two lists", For: all(deltas, deletesSeen, room(4)), Run: script(`
		replace a b c, update a@10, delete b@11, add d@12, drain
		update c@13, replace d e, update e@14
		state d@9 e@14`)},
	{Name: "Resync", For: all(known, room(2)), Run: script(`
		add a@1, add b@2, drain, resync
		want Sync a@1, Sync b@2`)},
	{Name: "Resync is one delta", For: all(atomicLists, room(3)), Run: script(`
		add a@1, resync, update a@2
		want Added a@1, SyncAll, Updated a@2`)},
	{Name: "Resync does nothing", For: objects, Run: script(`
		add a@1, resync
		want Added a@1
		resync
		want`)},
	// The object of the Sync would be older than that of the update.
	{Name: "Resync skips keys with a queued update", For: all(known, room(2)), Run: script(`
		add a@1, add b@2, drain, update a@3, resync
		want Updated a@3, Sync b@2`)},
	{Name: "Resync during process", For: all(known, unlocked, room(2)), Run: script(`
		add a@1, add b@2, drain, update a@3
		inside resync
		want Updated a@3, Sync b@2
		resync
		want Sync a@3, Sync b@2`)},
	{Name: "Resync of a deleted key", For: all(known, room(1)), Run: script(`
		add a@1, drain, delete a@2, drain, resync
		want`)},
	{Name: "bookmarks keep their position", For: all(atomicLists, room(4)), Run: script(`
		add a@1, bookmark 2, add b@3, bookmark 4
		want Added a@1, Bookmark rv=2, Added b@3, Bookmark rv=4`)},
	{Name: "bookmarks are dropped", For: all(splitLists, room(1)), Run: script(`
		bookmark 2, len 0`)},
	{Name: "HasSynced after an Add", For: room(3), Run: script(`synced false, add a@1, synced true, replace a b, synced true`)},
	{Name: "HasSynced after an Update", For: room(3), Run: script(`synced false, update a@1, synced true, replace a b, synced true`)},
	{Name: "HasSynced after a Delete", For: room(3), Run: script(`synced false, delete a@1, synced true, replace a b, synced true`)},
	{Name: "HasSynced after a list", For: room(3), Run: hasSynced},
	{Name: "HasSynced after an empty list", For: atomicLists, Run: script(`replace, synced false, drain, synced true`)},
	{Name: "HasSynced after an empty list", For: not(atomicLists), Run: script(`replace, synced true`)},
	{Name: "HasSynced after the initial list is deleted", For: all(objects, room(1)), Run: script(`
		replace a b, delete a@10, delete b@11, add c@12
		want Added c@12
		synced true`)},
	{Name: "HasSynced waits for process", For: func(s setup) bool { return deltas(s) || unlocked(s) }, Run: hasSyncedLate},
	{Name: "HasSynced after a list that replaces the initial one", For: all(objects, ours), Run: script(`
		replace a b c, pop, replace a d, pop, synced false, pop, synced true`)},
	{Name: "HasSynced after an empty list that replaces the initial one", For: all(objects, ours), Run: script(`
		replace a, replace, synced true`)},
	{Name: "isInInitialList", For: room(2), Run: initialFlag},
}

func longList(p *player) {
	p.keys = 4 * (p.Capacity + 10) // Of which a list has about half.
	for range 2 {
		p.call(replace, 1)
		p.call(look, 0)
		p.drain()
	}
}

// replaceDuringProcess relists while a delta is in process: no longer queued,
// not yet in the store. A key that the list lacks must not stay in the store.
func replaceDuringProcess(t *testing.T, s setup) {
	for _, list := range []string{"", "x@9"} {
		r := s.new(t)
		r.run("add first@1, drain, add x@2, delete first@3")
		replaced := make(chan struct{})
		r.once(func([]cache.Delta) {
			go func() {
				defer close(replaced)
				r.run("replace " + list)
			}()
			if unlocked(s) {
				<-replaced
			}
		})
		r.drain()
		<-replaced
		r.run("state " + list)
		deleted := 0
		for _, w := range r.all() {
			if strings.HasPrefix(w, "Deleted first") {
				deleted++
			}
		}
		if deleted != 1 {
			t.Errorf("list %q: the delete of first was popped %d times: %v", list, deleted, r.all())
		}
	}
}

func hasSynced(t *testing.T, s setup) {
	n := 3
	if s.objects {
		n = 100 // Each shard has a part of the list.
	} else {
		s = s.oneShard()
	}
	r := s.new(t)
	var objects []any
	for i := range n {
		objects = append(objects, key(i))
	}
	r.do(r.queue.Replace(objects, "9"))
	if deltas(s) {
		r.run("add later@10, update k0@11")
	}
	pops := 0
	for r.synced(false, "before the list was popped"); r.queue.Len() > 0 && !r.queue.HasSynced(); pops++ {
		r.do(r.pop())
	}
	if atomicLists(s) && pops != 1 || s.path == byPop && !atomicLists(s) && pops != n {
		t.Errorf("HasSynced turned true after %d pops", pops)
	}
	r.run("synced true, drain, synced true, replace z, synced true")
}

// hasSyncedLate looks from inside process. Upstream's DeltaFIFO holds the lock there.
func hasSyncedLate(t *testing.T, s setup) {
	r := s.new(t)
	checker := r.queue.HasSyncedChecker()
	r.during = func([]cache.Delta) {
		if !(upstream(s) && perKey(s)) && isClosed(checker.Done()) || s.objects && r.queue.HasSynced() {
			t.Error("the initial list counts as processed while it is in process")
		}
	}
	if deltas(s) {
		r.run("replace a b, drain, synced true")
		return
	}
	r.run("replace a, drain, synced true")
	// A list that replaces the initial one while part of that is in process.
	s.new(t).run(`
		replace a
		inside replace b
		pop, synced false, drain, synced true`)
}

func initialFlag(t *testing.T, s setup) {
	if deltas(s) {
		s = s.oneShard()
	}
	r := s.new(t)
	r.run("replace a b, drain")
	initial := len(r.popped)
	r.run("add d@10, drain, replace a c, drain")
	for i, p := range r.popped {
		if want := i < initial; p.initial != want {
			t.Errorf("%v was popped with isInInitialList=%t, want %t", words(p.deltas), p.initial, want)
		}
	}
}
