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

// TestYield: on one processor, a sleeping consumer has got an object when Update returns.
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
				// More than 61, since the scheduler treats each 61st call differently.
				for i := range 200 {
					time.Sleep(10 * time.Microsecond) // A yield is for at most 200,000 objects a second.
					synctest.Wait()
					if err := q.Update(&metav1.ObjectMeta{Name: "a"}); err != nil {
						t.Fatal(err)
					}
					if n := int(popped.Load()); n != i+1 {
						t.Fatalf("%s %s: %d objects are popped when Update %d returns", family, name, n, i+1)
					}
				}
			})
		}
	}
}
