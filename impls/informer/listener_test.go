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
	a, called = &distributor{limit: h.Backlog}, new(sync.WaitGroup)
	for range handlers {
		a.add(newListener(klog.Background(), cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { called.Done() },
			UpdateFunc: func(any, any) { called.Done() },
			DeleteFunc: func(any) { called.Done() },
		}, "test", h, a.moved))
	}
	a.start()
	t.Cleanup(a.stop)
	return a, called
}

// TestNothingIsAllocated distributes batches of all sizes in a steady state.
func TestNothingIsAllocated(t *testing.T) {
	for _, h := range []Handlers{{}, {Backlog: 100}, {Coalesce: true}} {
		for _, size := range []int{1, 7, takeSize, 1000} {
			t.Run(fmt.Sprintf("batch=%d/backlog=%d/coalesce=%t", size, h.Backlog, h.Coalesce), func(t *testing.T) {
				a, called := newDistributor(t, 3, h)
				notices := make([]notice, size)
				for i := range notices {
					obj := named(fmt.Sprint(i), "")
					notices[i] = notice{kind: updated, old: obj, obj: obj}
				}
				got := testing.AllocsPerRun(200, func() {
					called.Add(3 * size)
					a.admit(size)
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

// TestBacklogIsLetGo lets a handler fall far behind, and checks the memory after it has caught up.
func TestBacklogIsLetGo(t *testing.T) {
	const backlog = 100 * takeSize
	entered, proceed := make(chan struct{}), make(chan struct{})
	var called sync.WaitGroup
	called.Add(backlog)
	first := true
	a := new(distributor)
	l := newListener(klog.Background(), cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		if first {
			first = false
			close(entered)
			<-proceed
		}
		called.Done()
	}}, "test", Handlers{}, a.moved)
	a.add(l)
	a.start()
	defer a.stop()

	refs := make([]weak.Pointer[[64]byte], backlog)
	for i := range refs {
		obj := new([64]byte)
		refs[i] = weak.Make(obj)
		a.distribute([]notice{{kind: added, obj: obj}})
	}
	<-entered
	runtime.GC()
	for i := range refs {
		if refs[i].Value() == nil {
			t.Fatalf("notice %d was dropped before the handler received it", i)
		}
	}
	close(proceed)
	called.Wait()

	// The last is still in the hands of the goroutine, perhaps.
	runtime.GC()
	for i := range refs[:backlog-1] {
		if refs[i].Value() != nil {
			t.Fatalf("notice %d of %d is still held", i, backlog)
		}
	}
}

// TestHandleHoldsNothing keeps the handle of a handler that was removed with a backlog.
func TestHandleHoldsNothing(t *testing.T) {
	entered, proceed := make(chan struct{}, 1), make(chan struct{})
	a := new(distributor)
	l := newListener(klog.Background(), cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		entered <- struct{}{}
		<-proceed
	}}, "test", Handlers{}, a.moved)
	a.add(l)
	a.start()
	defer a.stop()
	ref := func() weak.Pointer[[64]byte] {
		obj := new([64]byte)
		a.distribute([]notice{{kind: added}, {kind: added, obj: obj}})
		return weak.Make(obj)
	}()
	<-entered
	a.remove(l)
	close(proceed)
	<-l.ShutdownChan()
	runtime.GC()
	if ref.Value() != nil {
		t.Error("the handle of a removed handler still holds a dropped notice")
	}
	runtime.KeepAlive(l)
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
			l := newListener(logger, cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { time.Sleep(c.took) }}, "test", Handlers{}, func(*listener) {})
			l.left = c.backlog
			l.call(&notice{kind: deleted})
			if logged != c.want {
				t.Errorf("a call of %v before a backlog of %d was logged %d times, want %d", c.took, c.backlog, logged, c.want)
			}
		})
	}
}
