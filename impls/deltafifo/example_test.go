package deltafifo_test

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"watchlab/impls/deltafifo"
)

// A queue under client-go's own controller and Reflector. With KnownObjects set,
// each delta is of one object, also after the source was listed again.
func Example() {
	lw := fcache.NewFakeControllerSource() // stands for cache.NewListWatchFromClient(…)
	defer lw.Shutdown()
	lw.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}})

	store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	q, err := deltafifo.New("cond", deltafifo.Options{KnownObjects: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	controller := cache.New(&cache.Config{
		Queue:         q,
		ListerWatcher: lw,
		ObjectType:    &v1.Pod{},
		Process: func(obj any, _ bool) error {
			for _, d := range obj.(cache.Deltas) {
				if d.Type == cache.Deleted {
					if err := store.Delete(d.Object); err != nil {
						return err
					}
				} else if err := store.Update(d.Object); err != nil {
					return err
				}
				fmt.Println(d.Type, d.Object.(*v1.Pod).Name)
			}
			return nil
		},
	})

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { controller.RunWithContext(ctx) })
	cache.WaitFor(ctx, "", controller.HasSyncedChecker())
	fmt.Println("store:", store.ListKeys())
	cancel()
	running.Wait()
	// Output:
	// Replaced web-0
	// store: [default/web-0]
}
