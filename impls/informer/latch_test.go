package informer

import (
	"testing"
	"testing/synctest"
)

// TestLatchWakes: a consumer sleeps until there is something to take or the latch is
// closed, however often it has slept before.
func TestLatchWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g latch
		items, taken := 0, 0
		go func() {
			g.Lock()
			defer g.Unlock()
			for {
				for items == 0 && !g.closed {
					g.Wait()
				}
				if items == 0 {
					return
				}
				items--
				taken++
			}
		}()
		for round := 1; round <= 3; round++ {
			synctest.Wait()
			g.Lock()
			if g.closed {
				t.Fatalf("round %d: closed before Close", round)
			}
			g.Unlock()
			synctest.Wait()
			if taken != round-1 {
				t.Fatalf("round %d: took %d before there was anything", round, taken)
			}
			g.Lock()
			items++
			g.UnlockAndWake()
			synctest.Wait()
			if taken != round {
				t.Fatalf("round %d: took %d", round, taken)
			}
		}
		g.Close()
	})
}
