package workqueue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestItems: against a model, through growth, wrap-around and shrinking. With two hash bits, slots of
// different items collide.
func TestItems(t *testing.T) {
	for _, bits := range []uint64{0b11, 1<<63 - 1} {
		for seed := range uint64(4) {
			rnd := rand.New(rand.NewPCG(seed, bits))
			hash := func(k int) uint64 { return rand.New(rand.NewPCG(uint64(k), 1)).Uint64() & bits }
			s := items[int]{head: 1<<32 - 300, tail: 1<<32 - 300, timed: true} // Positions wrap soon.
			var queue, process []int
			again, addedAt := map[int]bool{}, map[int]int64{}
			keys := 10 + rnd.IntN(500)
			for now := int64(1); now < 8000; now++ {
				switch k := rnd.IntN(keys); {
				case rnd.IntN(2000) < 1000+int(800*(now/2000%2*2-1)):
					pushed, changed := s.add(k, hash(k), now)
					running := slices.Contains(process, k)
					want := !running && !slices.Contains(queue, k)
					if pushed != want || changed != (want || running && !again[k]) {
						t.Fatalf("add of %d: pushed %t, changed %t", k, pushed, changed)
					}
					if changed {
						addedAt[k] = now
					}
					if running {
						again[k] = true
					} else if want {
						queue = append(queue, k)
					}
				case len(process) < 20 && len(queue) > 0:
					if item, added := s.take(now); item != queue[0] || added != addedAt[item] {
						t.Fatalf("took %d, added at %d; want %d, at %d", item, added, queue[0], addedAt[queue[0]])
					}
					process, queue = append(process, queue[0]), queue[1:]
				case len(process) > 0:
					i := rnd.IntN(len(process))
					done := process[i]
					if _, pushed, found := s.done(done, hash(done)); !found || pushed != again[done] {
						t.Fatalf("done of %d: found %t, pushed %t", done, found, pushed)
					}
					if process = slices.Delete(process, i, i+1); again[done] {
						queue = append(queue, done)
						delete(again, done)
					}
				}
				if s.len() != len(queue) || int(s.workers) != len(process) {
					t.Fatalf("%d queued, %d in process; want %d, %d", s.len(), s.workers, len(queue), len(process))
				}
			}
		}
	}
}

// TestMemoryShrinks: after a burst, normal traffic gives the memory back.
func TestMemoryShrinks(t *testing.T) {
	var s items[uint64]
	hash := func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 }
	for i := range uint64(1 << 14) {
		s.add(i, hash(i), 0)
	}
	for i := uint64(0); s.len() > 0 || i < 1<<17; i++ {
		if s.len() == 0 {
			s.add(i, hash(i), 0)
		}
		item, _ := s.take(0)
		s.done(item, hash(item))
	}
	if n := len(s.ring); n > 1024 {
		t.Errorf("the ring has %d places for one item", n)
	}
}

// TestNoAllocation: the steady state allocates nothing.
func TestNoAllocation(t *testing.T) {
	for _, v := range Variants() {
		if v.Baseline() || v.Name == "priority" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			q, err := v.New(Options[string]{})
			if err != nil {
				t.Fatal(err)
			}
			defer q.ShutDown()
			keys := make([]string, 2000)
			for i := range keys {
				keys[i] = string(rune(1000 + i))
			}
			round := func() {
				for _, k := range keys {
					q.Add(k)
				}
				for range keys {
					k, _ := q.Get()
					q.Done(k)
				}
			}
			round()
			// A pool drops some values under the race detector and in a garbage collection.
			if n := testing.AllocsPerRun(20, round); n > float64(len(keys)/2) {
				t.Errorf("%v allocations for %d items", n, len(keys))
			}
		})
	}
}
