package keys_test

import (
	"runtime"
	"sync"
	"testing"

	"watchlab/impls/internal/keys"
)

// TestTouchedAtOnce: when any of several calls that come first at once has
// returned, the initial list is known to be empty, whoever was the first.
func TestTouchedAtOnce(t *testing.T) {
	const rounds, callers = 20_000, 8
	// More processors than cores: one may be taken from who came first, at any point.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(callers))
	for range rounds {
		l := keys.NewInitialList("name")
		var start, end sync.WaitGroup
		start.Add(callers)
		for range callers {
			end.Go(func() {
				start.Done()
				start.Wait()
				l.Touch()
				if !l.HasSynced() {
					t.Error("HasSynced is false after a Touch")
				}
				select {
				case <-l.Done():
				default:
					t.Error("Done is open after a Touch")
				}
			})
		}
		end.Wait()
		if t.Failed() {
			return
		}
	}
}
