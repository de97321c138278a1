package workqueue_test

import (
	"fmt"
	"time"

	upstream "k8s.io/client-go/util/workqueue"

	"watchlab/impls/workqueue"
)

// client-go's rate-limiting queue stands on top of any variant. The items are like the requests of
// controller-runtime.
func ExampleNew() {
	type request struct{ Namespace, Name string }
	queue, err := workqueue.New("ring", workqueue.Options[request]{})
	if err != nil {
		panic(err)
	}
	delaying := upstream.NewTypedDelayingQueueWithConfig(upstream.TypedDelayingQueueConfig[request]{Queue: queue})
	limited := upstream.NewTypedRateLimitingQueueWithConfig(
		upstream.NewTypedItemExponentialFailureRateLimiter[request](time.Millisecond, time.Second),
		upstream.TypedRateLimitingQueueConfig[request]{DelayingQueue: delaying},
	)
	defer limited.ShutDown()

	limited.Add(request{"default", "web"})
	limited.Add(request{"default", "web"})
	for attempt := 1; ; attempt++ {
		item, _ := limited.Get()
		if attempt < 3 {
			limited.AddRateLimited(item) // Reconcile failed: try again in a while.
			limited.Done(item)
			continue
		}
		limited.Forget(item)
		limited.Done(item)
		fmt.Println(item, "after", attempt, "attempts,", limited.Len(), "left")
		return
	}
	// Output: {default web} after 3 attempts, 0 left
}
