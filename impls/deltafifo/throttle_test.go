package deltafifo

import (
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"
)

// TestThrottleCounts: what is queued counts in deltas, also those of one key, after what process has.
func TestThrottleCounts(t *testing.T) {
	each(t, func(t *testing.T, v Variant, o Options) {
		if v.Baseline() {
			t.Skip("it has no such option")
		}
		for left, waits := range map[int]bool{19: false, 20: true} {
			synctest.Test(t, func(t *testing.T) {
				o.Throttle, o.BatchSize, o.Shards = true, 10, 1
				q := newQueue[Queue](t, v, o)
				mustDo(t, q.Add(named("a")))
				for range left {
					mustDo(t, q.Update(named("b")))
				}
				returned := make(chan error, 1)
				_, err := q.Pop(func(any, bool) error {
					go func() { returned <- q.Update(named("c")) }()
					synctest.Wait()
					if waits == (len(returned) == 1) {
						t.Errorf("with %d queued, Update returned: %t", left, !waits)
					}
					return nil
				})
				mustDo(t, err, <-returned, q.Update(named("d")))
				deltas := 0
				for q.Len() > 0 {
					_, err := q.Pop(func(obj any, _ bool) error { deltas += len(obj.(cache.Deltas)); return nil })
					mustDo(t, err)
				}
				if deltas != left+2 {
					t.Errorf("popped %d deltas, want %d", deltas, left+2)
				}
				q.Close()
			})
		}
	})
}
