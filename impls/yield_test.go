package impls_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
)

// TestYield: on one processor, a sleeping consumer has got an object when Update returns, in most calls: the
// scheduler may stop the consumer anywhere. Without a yield, it has in few.
func TestYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, name := range []string{"cond", "channel", "ring"} {
		for family, open := range map[string]func() (cache.Queue, error){
			"deltafifo": func() (cache.Queue, error) {
				return deltafifo.New(name, deltafifo.Options{Delivery: deltafifo.InOrder})
			},
			"queue": func() (cache.Queue, error) { return queue.New(name, queue.Options{}) },
		} {
			synctest.Test(t, func(t *testing.T) {
				q, err := open()
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				var popped atomic.Int32
				go func() {
					for {
						if _, err := q.Pop(func(any, bool) error { popped.Add(1); return nil }); err != nil {
							if !errors.Is(err, cache.ErrFIFOClosed) {
								t.Error(err)
							}
							return
						}
					}
				}()
				const calls = 200
				had := 0
				for i := range calls {
					time.Sleep(10 * time.Microsecond) // A yield is for at most 200,000 objects a second.
					synctest.Wait()
					if err := q.Update(&metav1.ObjectMeta{Name: "a"}); err != nil {
						t.Fatal(err)
					}
					if int(popped.Load()) == i+1 {
						had++
					}
				}
				if had < calls/2 {
					t.Errorf("%s %s: the consumer has the object when Update returns in %d of %d calls", family, name, had, calls)
				}
			})
		}
	}
}
