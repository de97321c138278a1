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

// TestTokenPassedOn: a waiter that leaves with a token wakes the next one.
func TestTokenPassedOn(t *testing.T) {
	var r room
	w := []*waiter{r.waiter(), r.waiter(), r.waiter()}
	for _, w := range w {
		r.enlist(w, false)
	}
	r.made(1)
	for i, leaving := range w[:2] {
		if len(leaving.token) != 1 || len(w[i+1].token) != 0 {
			t.Fatalf("waiter %d has %d tokens, the next one %d", i, len(leaving.token), len(w[i+1].token))
		}
		r.leave(leaving)
	}
	if len(w[2].token) != 1 || r.waiting.Load() != 0 {
		t.Fatalf("the last waiter has %d tokens, %d are enlisted", len(w[2].token), r.waiting.Load())
	}
	<-w[2].token
	r.enlist(w[2], true)
	r.leave(w[2])
	if r.first != nil || r.last != nil || r.waiting.Load() != 0 || r.nfree != 3 {
		t.Fatalf("%d enlisted, %d kept after all left", r.waiting.Load(), r.nfree)
	}
}
