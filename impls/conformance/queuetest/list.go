package queuetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// listChecks: Replace, Resync, bookmarks and HasSynced.
var listChecks = []check{
	{Name: "Replace deletes keys that it lacks", For: all(splitLists, room(3)), Run: replaceDeletes},
	{Name: "Replace drops what is queued", For: all(objects, room(2)), Run: replaceDrops},
	{Name: "Replace is one delta", For: all(atomicLists, room(3)), Run: replaceAtomic},
	{Name: "Replace of a key with a queued delete", For: all(splitLists, everyDelta, room(5)), Run: replaceDeleted},
	{Name: "Replace queues tombstones first", For: all(inOrder, known, room(4)), Run: script(`
		add s1@1, add s2@2, drain
		add q2@3, add q1@4, update q2@5, replace y x
		want Added q2@3, Added q1@4, Updated q2@5, Deleted q2@5†, Deleted q1@4†, Deleted s1@1†, Deleted s2@2†, Replaced y@9, Replaced x@9`)},
	{Name: "a tombstone has the newest known object", For: all(splitLists, room(2)), Run: script(`
		add a@1, drain, update a@2, replace
		want Updated a@2, Deleted a@2†`)},
	{Name: "Replace with an object twice", For: objects, Run: replaceTwice},
	{Name: "a list may be longer than the capacity", For: objects, Run: longList},
	{Name: "Replace during process", For: all(known, room(3)), Run: replaceDuringProcess},
	{Name: "final state after Replace", For: all(deltas, room(4)), Run: replaceFinalState},
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
	{Name: "Resync during process", For: all(known, unlocked, room(2)), Run: resyncDuringProcess},
	{Name: "Resync of a deleted key", For: all(known, room(1)), Run: script(`
		add a@1, drain, delete a@2, drain, resync
		want`)},
	{Name: "bookmarks keep their position", For: all(atomicLists, room(4)), Run: script(`
		add a@1, bookmark 2, add b@3, bookmark 4
		want Added a@1, Bookmark rv=2, Added b@3, Bookmark rv=4`)},
	{Name: "bookmarks are dropped", For: all(splitLists, room(1)), Run: bookmarksDropped},
	{Name: "HasSynced", For: room(3), Run: hasSynced},
	{Name: "HasSynced after an empty list", Run: hasSyncedEmpty},
	{Name: "HasSynced after the initial list is deleted", For: all(objects, room(1)), Run: script(`
		replace a b, delete a@10, delete b@11, add c@12
		want Added c@12
		synced true`)},
	{Name: "HasSynced waits for process", For: func(s setup) bool { return deltas(s) || unlocked(s) }, Run: hasSyncedLate},
	{Name: "HasSynced after a list that replaces the initial one", For: all(objects, ours), Run: hasSyncedSecondList},
	{Name: "isInInitialList", For: room(2), Run: initialFlag},
}

func replaceDeletes(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("stored", 1)))
	r.drain()
	r.do(r.queue.Add(pod("queued", 2)), r.queue.Add(pod("kept", 3)))
	r.replace("kept", "fresh")
	got := words(r.drain())
	want := s.newestOf([]string{"Added queued@2", "Added kept@3", "Deleted queued@2†", "Replaced kept@9", "Replaced fresh@9"})
	if s.known {
		want = append(want, "Deleted stored@1†")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("popped\n  %v\nwant\n  %v", got, want)
	}
}

func replaceDrops(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.replace("b", "c")
	if got, want := slices.Sorted(slices.Values(words(r.drain()))), []string{"b@9", "c@9"}; !slices.Equal(got, want) {
		t.Errorf("popped %v, want %v", got, want)
	}
	r.do(r.queue.Add(pod("a", 10)))
	r.replace()
	r.expect()
}

func replaceAtomic(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.replace("b", "c")
	r.do(r.queue.Delete(pod("b", 10)))
	r.expect("Added a@1", "ReplacedAll [b c] rv=9", "Deleted b@10")
	r.replace()
	r.expect("ReplacedAll [] rv=9")
}

// replaceDeleted: a queued delete is popped although the key is listed again, as
// that is another object of the same name, and not twice where it is not listed.
func replaceDeleted(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("again", 1)), r.queue.Add(pod("gone", 2)), r.queue.Delete(pod("again", 3)), r.queue.Delete(pod("gone", 4)))
	r.replace("again")
	if perKey(s) {
		r.expect("Added again@1", "Deleted again@3", "Replaced again@9", "Added gone@2", "Deleted gone@4")
	} else {
		r.expect("Added again@1", "Added gone@2", "Deleted again@3", "Deleted gone@4", "Replaced again@9")
	}
}

func replaceTwice(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Replace([]any{pod("a", 1), pod("a", 2)}, "2"))
	r.expect("Added a@2")
	r.synced(true, "after the list")
}

func longList(t *testing.T, s setup) {
	r := s.new(t)
	var list []any
	for i := range 2 * (s.Capacity + 10) {
		list = append(list, pod(fmt.Sprintf("k%d", i), i))
	}
	for range 2 {
		r.do(r.queue.Replace(list, "1"))
		if n := r.queue.Len(); n != len(list) {
			t.Errorf("Len is %d after a list of %d", n, len(list))
		}
		if n := len(r.drain()); n != len(list) {
			t.Errorf("popped %d of %d objects of a list", n, len(list))
		}
	}
}

// replaceDuringProcess relists while a delta is in process: no longer queued,
// not yet in the store. A key that the list lacks must not stay in the store.
func replaceDuringProcess(t *testing.T, s setup) {
	for _, list := range [][]string{nil, {"x"}} {
		r := s.new(t)
		r.do(r.queue.Add(pod("first", 1)))
		r.drain()
		r.do(r.queue.Add(pod("x", 2)), r.queue.Delete(pod("first", 3)))
		replaced := make(chan struct{})
		r.once(func([]cache.Delta) {
			go func() {
				defer close(replaced)
				r.replace(list...)
			}()
			if unlocked(s) {
				<-replaced
			}
		})
		r.drain()
		<-replaced
		r.drain()
		want := make([]string, 0, 1)
		for _, name := range list {
			want = append(want, name+"@9")
		}
		if got := r.store.state(); !slices.Equal(got, want) {
			t.Errorf("list %v: the store ends with %v, want %v; popped %v", list, got, want, r.all())
		}
		deleted := 0
		for _, w := range r.all() {
			if strings.HasPrefix(w, "Deleted first") {
				deleted++
			}
		}
		if deleted != 1 {
			t.Errorf("list %v: the delete of first was popped %d times: %v", list, deleted, r.all())
		}
	}
}

func replaceFinalState(t *testing.T, s setup) {
	r := s.new(t)
	r.replace("a", "b", "c")
	r.do(r.queue.Update(pod("a", 10)), r.queue.Delete(pod("b", 11)), r.queue.Add(pod("d", 12)))
	r.drain()
	if got, want := r.store.state(), []string{"a@10", "c@9", "d@12"}; !slices.Equal(got, want) {
		t.Errorf("the store has %v, want %v", got, want)
	}
	if !deletesSeen(s) {
		return
	}
	r.do(r.queue.Update(pod("c", 13)))
	r.replace("d", "e")
	r.do(r.queue.Update(pod("e", 14)))
	r.drain()
	if got, want := r.store.state(), []string{"d@9", "e@14"}; !slices.Equal(got, want) {
		t.Errorf("after a relist the store has %v, want %v", got, want)
	}
}

func resyncDuringProcess(t *testing.T, s setup) {
	r := s.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.drain()
	r.do(r.queue.Update(pod("a", 3)))
	r.once(func([]cache.Delta) { r.do(r.queue.Resync()) })
	r.expect("Updated a@3", "Sync b@2")
	r.do(r.queue.Resync())
	r.expect("Sync a@3", "Sync b@2")
}

func bookmarksDropped(t *testing.T, s setup) {
	r := s.new(t)
	if bookmark, ok := r.queue.(cache.ReflectorBookmarkStore); ok {
		r.do(bookmark.Bookmark("2"))
	}
	if n := r.queue.Len(); n != 0 {
		t.Errorf("Len is %d after a bookmark that is to be dropped", n)
	}
}

func hasSynced(t *testing.T, s setup) {
	for name, event := range map[string]func(*rig) error{
		"Add":    func(r *rig) error { return r.queue.Add(pod("a", 1)) },
		"Update": func(r *rig) error { return r.queue.Update(pod("a", 1)) },
		"Delete": func(r *rig) error { return r.queue.Delete(pod("a", 1)) },
	} {
		r := s.new(t)
		r.synced(false, "before any event")
		r.do(event(r))
		r.synced(true, "after "+name+" came first")
		r.replace("a", "b")
		r.synced(true, "after a later list")
	}

	// Long enough for each shard of family queue to have a part of it.
	n := 3
	if s.objects {
		n = 100
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("k%d", i))
	}
	if deltas(s) {
		s = s.oneShard()
	}
	r := s.new(t)
	r.replace(names...)
	if deltas(s) {
		r.do(r.queue.Add(pod("later", 10)), r.queue.Update(pod("k0", 11)))
	}
	pops := 0
	for r.synced(false, "before the list was popped"); r.queue.Len() > 0 && !r.queue.HasSynced(); pops++ {
		r.do(r.pop())
	}
	r.synced(true, "after the list was popped")
	if atomicLists(s) && pops != 1 || s.path == byPop && !atomicLists(s) && pops != n {
		t.Errorf("HasSynced turned true after %d pops", pops)
	}
	r.drain()
	r.synced(true, "after everything")
	r.replace("z")
	r.synced(true, "after another list")
}

func hasSyncedEmpty(t *testing.T, s setup) {
	r := s.new(t)
	r.replace()
	if atomicLists(s) {
		r.synced(false, "before the empty list was popped")
		r.drain()
	}
	r.synced(true, "after an empty list")
}

// hasSyncedLate looks from inside process. Upstream's DeltaFIFO holds the lock
// there.
func hasSyncedLate(t *testing.T, s setup) {
	r := s.new(t)
	checker := r.queue.HasSyncedChecker()
	r.during = func([]cache.Delta) {
		if !(upstream(s) && perKey(s)) && isClosed(checker.Done()) || s.objects && r.queue.HasSynced() {
			t.Error("the initial list counts as processed while it is in process")
		}
	}
	names := []string{"a", "b"}
	if s.objects {
		names = names[:1]
	}
	r.replace(names...)
	r.drain()
	r.synced(true, "after the list")
	if !s.objects {
		return
	}
	// A list that replaces the initial one while part of that is in process.
	r = s.new(t)
	r.replace("a")
	r.once(func([]cache.Delta) { r.replace("b") })
	r.do(r.pop())
	r.synced(false, "before the list that replaced the initial one was popped")
	r.drain()
	r.synced(true, "after that list")
}

func hasSyncedSecondList(t *testing.T, s setup) {
	r := s.new(t)
	r.replace("a", "b", "c")
	r.do(r.pop())
	r.replace("a", "d")
	r.do(r.pop())
	r.synced(false, "after two of three keys, of which one was of a list that another replaced")
	r.do(r.pop())
	r.synced(true, "after the second list")

	r = s.new(t)
	r.replace("a")
	r.replace()
	r.synced(true, "after an empty list replaced the initial one")
}

func initialFlag(t *testing.T, s setup) {
	if deltas(s) {
		s = s.oneShard()
	}
	r := s.new(t)
	r.replace("a", "b")
	r.drain()
	initial := len(r.popped)
	r.do(r.queue.Add(pod("d", 10)))
	r.drain()
	r.replace("a", "c")
	r.drain()
	for i, p := range r.popped {
		if want := i < initial; p.initial != want {
			t.Errorf("%v was popped with isInInitialList=%t, want %t", words(p.deltas), p.initial, want)
		}
	}
}
