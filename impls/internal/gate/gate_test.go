package gate_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"watchlab/impls/internal/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWakes: a consumer sleeps until there is something to take or the gate is
// closed, however often it has slept before.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate.Gate
		items, taken := 0, 0
		go func() {
			g.Lock()
			defer g.Unlock()
			for {
				for items == 0 && !g.Closed() {
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
			if g.Closed() {
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
		if g.IsClosed() {
			t.Error("closed before Close")
		}
		g.Close()
		if !g.IsClosed() {
			t.Error("not closed after Close")
		}

	})
}
