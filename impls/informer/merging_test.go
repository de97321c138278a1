package informer

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"
)

// The notices of the tests: a is before b, b before c.
func text(n notice) string {
	version := func(obj any) string {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		return obj.(*v1.Pod).ResourceVersion
	}
	s := []string{"add ", "update ", "delete "}[n.kind]
	if n.kind == updated {
		s += version(n.old) + "→"
	}
	s += version(n.obj)
	if n.initial {
		s += " initial"
	}
	return s
}

// TestMergingModel compares a handler behind a merging backlog with the store whose changes it gets:
// in between, its notifications are consistent (additions of what it does not have, updates from what
// it has), its objects are no older than those it had, and its depth is bounded. In the end it has
// what the store has, and each addition of the initial list has been delivered or covered.
func TestMergingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		started, covered := 0, 0
		m := newMerging(func() { covered++ })
		keep := func(n *notice) bool {
			if n.initial {
				started++
			}
			return true
		}
		store, held := map[string]*v1.Pod{}, map[string]*v1.Pod{}
		version, order := 0, []string(nil) // order has the keys of the waiting objects
		gone := 0                          // deletions that the handler has not received
		deliver := func() {
			var dst [takeSize]notice
			if m.Len() == 0 {
				return
			}
			n, _ := m.take(dst[:])
			for _, n := range dst[:n] {
				pod := n.obj.(*v1.Pod)
				has := held[pod.Name]
				if pod.Name != order[0] {
					t.Fatalf("%s is delivered before %s, which waits longer", pod.Name, order[0])
				}
				switch {
				case n.kind == added && has != nil, n.kind != added && has == nil,
					n.kind == updated && n.old != has, has != nil && number(has) > number(pod):
					t.Fatalf("the handler has %v and receives %s %s", has, pod.Name, text(n))
				}
				if held[pod.Name] = pod; n.kind == deleted {
					delete(held, pod.Name)
					gone--
				}
				if n.initial {
					covered++
				}
			}
			order = order[1:]
		}
		t.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				name := string('a' + rune(rapid.IntRange(0, 3).Draw(t, "key")))
				version++
				is, next := store[name], named(name, fmt.Sprint(version))
				n := notice{kind: updated, old: is, obj: next}
				store[name] = next
				switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
				case is == nil:
					n.kind, n.initial = added, what == 0
				case what == 0:
					n.kind = deleted
					delete(store, name)
					gone++
				case what == 1:
					n.obj, n.resync, store[name] = is, true, is
				}
				if err := m.PushFunc([]notice{n}, keep); err != nil {
					t.Fatal(err)
				}
				// An object keeps its place, or comes last.
				now := waitingKeys(m)
				if !slices.Equal(now, order) && !slices.Equal(now, append(slices.Clone(order), name)) {
					t.Fatalf("after a notice of %s the order %v is %v", name, order, now)
				}
				order = now
			},
			"deliver": func(*rapid.T) { deliver() },
			"": func(t *rapid.T) {
				union := map[string]bool{}
				for name := range held {
					union[name] = true
				}
				for name := range store {
					union[name] = true
				}
				if n := m.queued.Len(); n > len(union)+gone || m.Len() > 2*n {
					t.Fatalf("%d notices of %d objects wait; %d are known or stored, %d deleted", m.Len(), n, len(union), gone)
				}
			},
		})
		for m.Len() > 0 {
			deliver()
		}
		if fmt.Sprint(held) != fmt.Sprint(store) || started != covered || gone != 0 {
			t.Fatalf("the handler has %v, the store %v; of %d initial additions %d are covered; %d deletions are lost", held, store, started, covered, gone)
		}
	})
}

func number(p *v1.Pod) (n int) {
	_, _ = fmt.Sscan(p.ResourceVersion, &n)
	return n
}

// waitingKeys returns the keys in the backlog, in order.
func waitingKeys(m *merging) (names []string) {
	for e := range m.queued.All {
		names = append(names, e.Key.Name)
	}
	return names
}

// TestMergingLetsGo: a stuck handler holds no object but the newest and the first old one of each, and
// the last two of one that came and went.
func TestMergingLetsGo(t *testing.T) {
	const keys, updates = 10, 100
	a, l, calls, _ := stuckHandler(t, Handlers{Coalesce: true})
	calls.Add(keys + 2) // Until then at the end of the test.
	var refs []weak.Pointer[v1.Pod]
	var old [keys]*v1.Pod
	fresh := func(name string) *v1.Pod {
		p := named(name, "")
		refs = append(refs, weak.Make(p))
		return p
	}
	for i := range updates * keys {
		k := i % keys
		next := fresh(fmt.Sprint(k))
		a.distribute([]notice{{kind: updated, old: old[k], obj: next}})
		old[k] = next
	}
	gone := fresh("gone")
	a.distribute([]notice{{kind: added, obj: gone}})
	for range updates {
		next := fresh("gone")
		a.distribute([]notice{{kind: updated, old: gone, obj: next}})
		gone = next
	}
	a.distribute([]notice{{kind: deleted, obj: fresh("gone")}})
	clear(old[:])
	runtime.GC()
	alive := 0
	for _, r := range refs {
		if r.Value() != nil {
			alive++
		}
	}
	if alive > 2*keys+2 || l.waiting() != keys+2 {
		t.Errorf("%d of %d objects are held and %d notices wait, want at most %d and %d", alive, len(refs), l.waiting(), 2*keys+2, keys+2)
	}
}
