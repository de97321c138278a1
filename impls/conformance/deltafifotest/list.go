package deltafifotest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// listChecks: Replace, Resync, bookmarks and HasSynced.
var listChecks = []check{
	{name: "replace buries what it lacks", applies: takenApart, places: 3, run: replaceBuries},
	{name: "replace is one delta", applies: whole, places: 3, run: replaceAtomic},
	{name: "replace of a key whose deletion waits", applies: all(takenApart, everyDelta), places: 5, run: replaceDeleted},
	{name: "replace orders tombstones first", applies: all(inOrder, known), places: 4, run: replaceOrderInOrder},
	{name: "replace keeps the newest known object in the tombstone", applies: takenApart, places: 2, run: replaceTombstoneObject},
	{name: "replace while process runs", applies: known, places: 3, run: replaceDuringProcess},
	{name: "final state after replace", places: 4, run: replaceFinalState},
	{name: "resync", applies: known, places: 2, run: resync},
	{name: "resync is one delta", applies: whole, places: 3, run: resyncAtomic},
	{name: "resync loses to an update that waits", applies: known, places: 2, run: resyncRace},
	{name: "resync while process runs", applies: all(known, unlocked), places: 2, run: resyncDuringProcess},
	{name: "resync of a key that is gone", applies: known, places: 1, run: resyncGone},
	{name: "bookmarks keep their place", applies: whole, places: 4, run: bookmarksInPlace},
	{name: "bookmarks are dropped", applies: takenApart, places: 1, run: bookmarksDropped},
	{name: "has synced", places: 3, run: hasSynced},
	{name: "has synced after an empty list", places: 1, run: hasSyncedEmpty},
	{name: "has synced only when process has returned", places: 1, run: hasSyncedLate},
	{name: "initial list flag", places: 2, run: initialFlag},
}

func (r *rig) replace(names ...string) {
	r.t.Helper()
	var list []any
	for _, n := range names {
		list = append(list, pod(n, 9))
	}
	r.do(r.queue.Replace(list, "9"))
}

func replaceBuries(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("stored", 1)))
	r.drain()
	r.do(r.queue.Add(pod("queued", 2)), r.queue.Add(pod("kept", 3)))
	r.replace("kept", "fresh")
	got := words(r.drain())
	want := b.weaken([]string{"Added queued@2", "Added kept@3", "Deleted queued@2†", "Replaced kept@9", "Replaced fresh@9"})
	if b.Known {
		want = append(want, "Deleted stored@1†")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("handed over\n  %v\nwant\n  %v", got, want)
	}
}

func replaceAtomic(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.replace("b", "c")
	r.do(r.queue.Delete(pod("b", 10)))
	r.expect("Added a@1", "ReplacedAll [b c] rv=9", "Deleted b@10")
	r.replace()
	r.expect("ReplacedAll [] rv=9")
}

// replaceDeleted: a deletion that waits is told though the key is listed again,
// as that is another object of the same name; and is not told twice where it
// isn't listed.
func replaceDeleted(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("again", 1)), r.queue.Add(pod("gone", 2)), r.queue.Delete(pod("again", 3)), r.queue.Delete(pod("gone", 4)))
	r.replace("again")
	got := words(r.drain())
	want := []string{"Added again@1", "Added gone@2", "Deleted again@3", "Deleted gone@4", "Replaced again@9"}
	if perKey(b) {
		want = []string{"Added again@1", "Deleted again@3", "Replaced again@9", "Added gone@2", "Deleted gone@4"}
	}
	if !r.same(got, want) {
		t.Errorf("handed over\n  %v\nwant\n  %v", got, want)
	}
}

func replaceOrderInOrder(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("s1", 1)), r.queue.Add(pod("s2", 2)))
	r.drain()
	r.do(r.queue.Add(pod("q2", 3)), r.queue.Add(pod("q1", 4)), r.queue.Update(pod("q2", 5)))
	r.replace("y", "x")
	r.expect("Added q2@3", "Added q1@4", "Updated q2@5",
		"Deleted q2@5†", "Deleted q1@4†", "Deleted s1@1†", "Deleted s2@2†", "Replaced y@9", "Replaced x@9")
}

func replaceTombstoneObject(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.drain()
	r.do(r.queue.Update(pod("a", 2)))
	r.replace()
	r.expect("Updated a@2", "Deleted a@2†")
}

// replaceDuringProcess relists while a delta is in process's hands: not queued
// any more, not known yet. What the list lacks must not survive in the store.
func replaceDuringProcess(t *testing.T, b bed) {
	for _, listed := range []bool{false, true} {
		r := b.new(t)
		r.do(r.queue.Add(pod("first", 1)))
		r.drain()
		r.do(r.queue.Add(pod("x", 2)), r.queue.Delete(pod("first", 3)))
		replaced := make(chan struct{})
		once := true
		r.during = func([]cache.Delta) {
			if !once {
				return
			}
			once = false
			go func() {
				defer close(replaced)
				if listed {
					r.replace("x")
				} else {
					r.replace()
				}
			}()
			if unlocked(b) {
				<-replaced
			}
		}
		r.drain()
		<-replaced
		r.during = nil
		r.drain()
		want := "[]"
		if listed {
			want = "[x@9]"
		}
		if got := strings.Join(r.store.state(), " "); "["+got+"]" != want {
			t.Errorf("listed=%t: the consumer ends with [%s], want %s; it was handed %v", listed, got, want, r.all())
		}
		deleted := 0
		for _, w := range r.all() {
			if strings.HasPrefix(w, "Deleted first") {
				deleted++
			}
		}
		if deleted != 1 {
			t.Errorf("listed=%t: the deletion of first was told %d times: %v", listed, deleted, r.all())
		}
	}
}

func (r *rig) all() []string { return words(r.deltas(0)) }

func replaceFinalState(t *testing.T, b bed) {
	r := b.new(t)
	r.replace("a", "b", "c")
	r.do(r.queue.Update(pod("a", 10)), r.queue.Delete(pod("b", 11)), r.queue.Add(pod("d", 12)))
	r.drain()
	if got, want := r.store.state(), []string{"a@10", "c@9", "d@12"}; !slices.Equal(got, want) {
		t.Errorf("the consumer has %v, want %v", got, want)
	}
	if !b.Known && perKey(b) {
		return // Missing deletions are tolerated without KnownObjects.
	}
	r.do(r.queue.Update(pod("c", 13)))
	r.replace("d", "e")
	r.do(r.queue.Update(pod("e", 14)))
	r.drain()
	if got, want := r.store.state(), []string{"d@9", "e@14"}; !slices.Equal(got, want) {
		t.Errorf("after a relist the consumer has %v, want %v", got, want)
	}
}

func resync(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.drain()
	r.do(r.queue.Resync())
	r.expect("Sync a@1", "Sync b@2")
}

func resyncAtomic(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Resync(), r.queue.Update(pod("a", 2)))
	r.expect("Added a@1", "SyncAll", "Updated a@2")
}

// resyncRace: the object that resync would hand over is older than the update
// that waits, and must not come after it.
func resyncRace(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.drain()
	r.do(r.queue.Update(pod("a", 3)), r.queue.Resync())
	r.expect("Updated a@3", "Sync b@2")
}

func resyncDuringProcess(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.drain()
	r.do(r.queue.Update(pod("a", 3)))
	once := true
	r.during = func([]cache.Delta) {
		if once {
			once = false
			r.do(r.queue.Resync())
		}
	}
	r.expect("Updated a@3", "Sync b@2")
	r.during = nil
	r.do(r.queue.Resync())
	r.expect("Sync a@3", "Sync b@2")
}

func resyncGone(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	r.drain()
	r.do(r.queue.Delete(pod("a", 2)))
	r.drain()
	r.do(r.queue.Resync())
	r.expect()
}

func bookmarksInPlace(t *testing.T, b bed) {
	r := b.new(t)
	bookmark := r.queue.(cache.ReflectorBookmarkStore)
	r.do(r.queue.Add(pod("a", 1)), bookmark.Bookmark("2"), r.queue.Add(pod("b", 3)), bookmark.Bookmark("4"))
	r.expect("Added a@1", "Bookmark rv=2", "Added b@3", "Bookmark rv=4")
}

func bookmarksDropped(t *testing.T, b bed) {
	r := b.new(t)
	if bookmark, ok := r.queue.(cache.ReflectorBookmarkStore); ok {
		r.do(bookmark.Bookmark("2"))
	}
	if n := r.queue.Len(); n != 0 {
		t.Errorf("a bookmark left %d in a queue whose Replace is not atomic", n)
	}
}

func hasSynced(t *testing.T, b bed) {
	events := map[string]func(*rig) error{
		"Add":    func(r *rig) error { return r.queue.Add(pod("a", 1)) },
		"Update": func(r *rig) error { return r.queue.Update(pod("a", 1)) },
		"Delete": func(r *rig) error { return r.queue.Delete(pod("a", 1)) },
	}
	for name, event := range events {
		r := b.new(t)
		r.synced(false, "before any event")
		r.do(event(r))
		r.synced(true, "after "+name+" came first")
		r.replace("a", "b")
		r.synced(true, "after a list that came later")
	}

	r := b.inOneShard().new(t)
	r.replace("a", "b", "c")
	r.do(r.queue.Add(pod("d", 10)), r.queue.Update(pod("a", 11)))
	r.synced(false, "before the list was taken")
	initial := 0
	for r.queue.Len() > 0 && !r.queue.HasSynced() {
		r.do(r.take())
		initial++
	}
	r.synced(true, "after the list was taken")
	if whole(b) && initial != 1 || b.path == byPop && !whole(b) && initial != 3 {
		t.Errorf("HasSynced turned true after %d hand-overs", initial)
	}
	r.drain()
	r.synced(true, "after everything")
	r.replace("z")
	r.synced(true, "after another list")
}

// synced holds both ways of asking to an answer.
func (r *rig) synced(want bool, when string) {
	r.t.Helper()
	if got := r.queue.HasSynced(); got != want {
		r.t.Errorf("HasSynced is %t %s", got, when)
	}
	checker := r.queue.HasSyncedChecker()
	done := false
	select {
	case <-checker.Done():
		done = true
	default:
	}
	if done != want {
		r.t.Errorf("HasSyncedChecker is done=%t %s", done, when)
	}
	if checker.Name() == "" {
		r.t.Error("HasSyncedChecker has no name")
	}
}

func hasSyncedEmpty(t *testing.T, b bed) {
	r := b.new(t)
	r.replace()
	if whole(b) {
		r.synced(false, "before the empty list was taken")
		r.drain()
	}
	r.synced(true, "after an empty list")
}

// hasSyncedLate looks from inside process. Upstream holds the lock there, so it
// can't be asked; its checker can.
func hasSyncedLate(t *testing.T, b bed) {
	r := b.new(t)
	checker := r.queue.HasSyncedChecker()
	r.during = func([]cache.Delta) {
		if b.upstream() && perKey(b) {
			return
		}
		select {
		case <-checker.Done():
			t.Error("the initial list counts as processed while process still has it")
		default:
		}
	}
	r.replace("a", "b")
	r.drain()
	r.synced(true, "after the list")
}

func initialFlag(t *testing.T, b bed) {
	r := b.inOneShard().new(t)
	r.replace("a", "b")
	r.drain()
	initial := len(r.taken)
	r.replace("a", "c")
	r.do(r.queue.Add(pod("d", 10)))
	r.drain()
	for i, h := range r.taken {
		if want := i < initial; h.initial != want {
			t.Errorf("%v was handed over with isInInitialList=%t, want %t", words(h.deltas), h.initial, want)
		}
	}
}
