package ring

import "testing"

// TestWithdraw: a wake-up that comes between announcing and withdrawing leaves
// no token behind, on which a later waker would block.
func TestWithdraw(t *testing.T) {
	var k parker
	k.init()
	for p := range uint64(3) {
		k.announce(p)
		k.published(p + 1)
		if len(k.token) != 0 {
			t.Fatalf("the producer of %d woke who sleeps for %d", p+1, p)
		}
		k.published(p)
		k.closed()
		k.withdraw(p)
		if len(k.token) != 0 || k.at.Load() != awake {
			t.Fatalf("%d tokens left after withdrawing, announced is %d", len(k.token), k.at.Load())
		}
	}
}

// TestTokenPassedOn: a sleeper that leaves with a token wakes the next one.
func TestTokenPassedOn(t *testing.T) {
	var e EventCount
	w := []chan struct{}{e.enlist(nil), e.enlist(nil), e.enlist(nil)}
	e.Notify(1)
	for i, leaving := range w[:2] {
		if len(leaving) != 1 || len(w[i+1]) != 0 {
			t.Fatalf("sleeper %d has %d tokens, the next one %d", i, len(leaving), len(w[i+1]))
		}
		e.leave(leaving)
	}
	if len(w[2]) != 1 || e.asleep.Load() != 0 {
		t.Fatalf("the last sleeper has %d tokens, %d are enlisted", len(w[2]), e.asleep.Load())
	}
	<-w[2]
	e.leave(e.enlist(w[2]))
	if len(e.sleepers) != 0 || e.asleep.Load() != 0 || len(e.free) != 3 {
		t.Fatalf("%d enlisted, %d kept after all left", e.asleep.Load(), len(e.free))
	}
}
