package keys_test

import (
	"runtime"
	"sync"
	"testing"

	"watchlab/impls/internal/keys"
)

func TestList(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  func(*keys.InitialList)
		want bool
	}{
		{"nothing", func(*keys.InitialList) {}, false},
		{"an event first", func(l *keys.InitialList) { l.Touch() }, true},
		{"a list that is claimed", func(l *keys.InitialList) { l.Claim() }, false},
		{"an empty list", func(l *keys.InitialList) { l.Claim(); l.Set(0) }, true},
		{"a list that waits", func(l *keys.InitialList) { l.Claim(); l.Set(3); l.Processed(2) }, false},
		{"a list that was processed", func(l *keys.InitialList) { l.Claim(); l.Set(3); l.Processed(2); l.Processed(1) }, true},
		{"more than the list", func(l *keys.InitialList) { l.Claim(); l.Set(3); l.Processed(5); l.Processed(5) }, true},
		{"an event while the list waits", func(l *keys.InitialList) { l.Claim(); l.Set(1); l.Touch() }, false},
		{"processing before the list is known", func(l *keys.InitialList) { l.Processed(1); l.Claim(); l.Set(1) }, false},
		{"a list in the place of one that waits", func(l *keys.InitialList) { l.Claim(); l.Set(3); l.Processed(1); l.Set(1); l.Processed(1) }, true},
	} {
		l := keys.NewInitialList("name")
		c.ops(l)
		done := false
		select {
		case <-l.Done():
			done = true
		default:
		}
		if l.HasSynced() != c.want || done != c.want {
			t.Errorf("%s: HasSynced is %t, done=%t, want %t", c.name, l.HasSynced(), done, c.want)
		}
	}
}

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
