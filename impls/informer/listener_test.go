package informer

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// newDistributor returns a distributor that is started, with handlers that say when
// they were called.
func newDistributor(t *testing.T, handlers int, h Handlers) (a *distributor, called *sync.WaitGroup) {
	a, called = new(distributor), new(sync.WaitGroup)
	for range handlers {
		a.add(newListener(klog.Background(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { called.Done() },
			UpdateFunc: func(any, any) { called.Done() },
			DeleteFunc: func(any) { called.Done() },
		}, "test", h))
	}
	a.start()
	t.Cleanup(a.stop)
	return a, called
}

// TestNothingIsAllocated distributes batches of all sizes in a steady state.
func TestNothingIsAllocated(t *testing.T) {
	for _, h := range []Handlers{{}, {Coalesce: true}} {
		for _, size := range []int{1, 7, takeSize, 1000} {
			t.Run(fmt.Sprintf("batch=%d/coalesce=%t", size, h.Coalesce), func(t *testing.T) {
				a, called := newDistributor(t, 3, h)
				notices := make([]notice, size)
				for i := range notices {
					obj := named(fmt.Sprint(i), "")
					notices[i] = notice{kind: updated, old: obj, obj: obj}
				}
				got := testing.AllocsPerRun(200, func() {
					called.Add(3 * size)
					a.distribute(notices)
					called.Wait()
				})
				if got >= 1 {
					t.Errorf("%v allocations for a batch, want none", got)
				}
			})
		}
	}
}

func named(name, version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
}

// stuckHandler returns a distributor with a handler that is in a call until release, and then counts its calls.
func stuckHandler(t *testing.T, h Handlers) (a *distributor, l *listener, calls *sync.WaitGroup, release func()) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	a, calls = new(distributor), new(sync.WaitGroup)
	first := sync.OnceFunc(func() { close(entered); <-proceed })
	l = newListener(klog.Background(), cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(any, bool) { first(); calls.Done() }, UpdateFunc: func(any, any) { calls.Done() }, DeleteFunc: func(any) { calls.Done() },
	}, "test", h)
	a.add(l)
	a.start()
	release = sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(func() { release(); a.stop() })
	calls.Add(1)
	a.distribute([]notice{{kind: added, obj: named("stuck", "")}})
	<-entered
	return a, l, calls, release
}

// TestBacklogIsLetGo: a handler that has fallen far behind holds nothing after it has caught up, and the
// handle of a removed one nothing at all.
func TestBacklogIsLetGo(t *testing.T) {
	const backlog = 100 * takeSize
	for _, removed := range []bool{false, true} {
		a, l, calls, release := stuckHandler(t, Handlers{})
		refs := make([]weak.Pointer[[64]byte], backlog)
		calls.Add(backlog)
		for i := range refs {
			obj := new([64]byte)
			refs[i] = weak.Make(obj)
			a.distribute([]notice{{kind: added, obj: obj}})
		}
		runtime.GC()
		for i := range refs {
			if refs[i].Value() == nil {
				t.Fatalf("notice %d was dropped before the handler received it", i)
			}
		}
		if removed {
			a.remove(l)
			release()
			<-l.ShutdownChan()
		} else {
			release()
			calls.Wait()
			refs = refs[:backlog-1] // The last is still in the hands of the goroutine, perhaps.
		}
		runtime.GC()
		for i := range refs {
			if refs[i].Value() != nil {
				t.Fatalf("removed: %t: notice %d of %d is still held", removed, i, backlog)
			}
		}
		runtime.KeepAlive(l)
	}
}

// TestSlowHandlerIsLogged has calls that are long or short, before a backlog that is large or not.
func TestSlowHandlerIsLogged(t *testing.T) {
	for _, c := range []struct {
		backlog int
		took    time.Duration
		want    int
	}{
		{slowBacklog, slowCall * 2, 0},
		{slowBacklog + 1, slowCall / 2, 0},
		{slowBacklog + 1, slowCall * 2, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			logged := 0
			logger := funcr.New(func(string, string) { logged++ }, funcr.Options{})
			l := newListener(logger, cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { time.Sleep(c.took) }}, "test", Handlers{})
			l.left = c.backlog
			l.call(&notice{kind: deleted})
			if logged != c.want {
				t.Errorf("a call of %v before a backlog of %d was logged %d times, want %d", c.took, c.backlog, logged, c.want)
			}
		})
	}
}
