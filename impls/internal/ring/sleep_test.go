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
