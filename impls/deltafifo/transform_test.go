package deltafifo

import (
	"math/rand/v2"
	"testing"
)

// TestKeySet holds the set to a map, through its growth and through the point
// where its generations start anew.
func TestKeySet(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s keySet
	for round := range 3 << genBits {
		s.reset()
		n := 3
		switch {
		case round > 2<<genBits && round%5000 == 0:
			n = 3000
		case round%1000 < 2 || round > 1<<genBits && round < 1<<genBits+100:
			n = 30 // Half of the smallest table.
		}
		seen := map[uint64]bool{}
		for range n {
			// The lower bits are not kept and make no difference here.
			h := uint64(rng.IntN(2*n)) * 0x9e3779b97f4a7c15 << genBits
			if got := s.add(h); got == seen[h] {
				t.Fatalf("round %d: add(%x) returned %t, though it was there=%t", round, h, got, seen[h])
			}
			seen[h] = true
		}
	}
}

// TestNoRoomToGrow: an append to what was taken does not write to lent memory.
func TestNoRoomToGrow(t *testing.T) {
	s := allocator{lend: true}
	for n := 1; n < 2*minLent; n++ {
		if got := s.take(n); len(got) != n || cap(got) != n {
			t.Fatalf("take(%d) has length %d and capacity %d", n, len(got), cap(got))
		}
	}
}
