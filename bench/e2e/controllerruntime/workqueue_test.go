package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	upstream "k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"watchlab/impls"
	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/workqueue"
)

// TestConformance runs the checks of the family on controller-runtime's queue.
func TestConformance(t *testing.T) { clientgo.RunWorkqueue(t, priorityQueue()) }

// BenchmarkWorkqueue is that of bench, with controller-runtime's queue beside all variants.
func BenchmarkWorkqueue(b *testing.B) {
	clientgo.BenchmarkWorkqueue(b, append([]workqueue.Variant{priorityQueue()}, workqueue.Variants()...)...)
}

// TestDifferential: priority hands out the items of controller-runtime's queue, in its order, with its
// priorities. No more than StarvationLimit items are taken, none is added while it is in process, and none
// is added both with and without a delay: a delayed item that is added without goes behind those that
// are ready, and in controller-runtime's before those that were added after its first add.
func TestDifferential(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			theirs := priorityqueue.New[int]("")
			ours := priority[int]{PriorityQueue: workqueue.NewPriority(workqueue.PriorityOptions[int]{})}
			defer theirs.ShutDown()
			defer ours.ShutDown()
			for taken := 0; taken < workqueue.StarvationLimit; {
				for range rng.IntN(20) {
					priority, item := rng.IntN(4)-2, rng.IntN(60)
					o := priorityqueue.AddOpts{Priority: &priority}
					if item%2 == 0 {
						o.After = 1 + time.Duration(rng.Int64N(int64(2*time.Second)))
						o.RateLimited = rng.IntN(10) == 0
					}
					theirs.AddWithOpts(o, item)
					ours.AddWithOpts(o, item)
					time.Sleep(time.Nanosecond) // No two items become ready at one time.
				}
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				synctest.Wait()
				if theirs.Len() != ours.Len() {
					t.Fatalf("seed %d: %d items are ready, want %d", seed, ours.Len(), theirs.Len())
				}
				for range min(rng.IntN(ours.Len()+1), workqueue.StarvationLimit-taken) {
					taken++
					want, priority, _ := theirs.GetWithPriority()
					got, p, _ := ours.GetWithPriority()
					if got != want || p != priority || ours.NumRequeues(got) != theirs.NumRequeues(got) {
						t.Fatalf("seed %d: got %d with priority %d, want %d with %d", seed, got, p, want, priority)
					}
					theirs.Done(want)
					ours.Done(got)
				}
			}
		})
	}
}

// TestController: a controller reconciles through each variant. An error is tried again after the back-off,
// a result after its time. With priority, the order is that of the priorities, which retries keep.
func TestController(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	for _, v := range workqueue.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testController(t, v) })
		})
	}
}

func testController(t *testing.T, v workqueue.Variant) {
	var mu sync.Mutex
	var calls []string
	start, tries := time.Now(), map[string]int{}
	c, err := controller.NewUnmanaged("test", controller.Options{
		NewQueue: func(name string, limiter upstream.TypedRateLimiter[reconcile.Request]) upstream.TypedRateLimitingInterface[reconcile.Request] {
			return newQueue(v.Name, name, limiter)
		},
		SkipNameValidation: new(true),
		Reconciler: reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprintf("%s %v", r.Name, time.Since(start)))
			tries[r.Name]++
			switch {
			case r.Name == "fails" && tries[r.Name] == 1:
				return reconcile.Result{}, errors.New("once")
			case r.Name == "later" && tries[r.Name] == 1:
				return reconcile.Result{RequeueAfter: time.Hour}, nil
			}
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Watch(source.Func(func(_ context.Context, q upstream.TypedRateLimitingInterface[reconcile.Request]) error {
		add := func(name string, priority int, after time.Duration) {
			r := reconcile.Request{}
			r.Name = name
			q.(priorityqueue.PriorityQueue[reconcile.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, r)
		}
		add("later", -100, 0)
		add("fails", 0, 0)
		add("urgent", 1, 0)
		add("same time", 1, 5*time.Millisecond)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	want := []string{"urgent 0s", "fails 0s", "later 0s", "same time 5ms", "fails 5ms", "later 1h0m0s"}
	if v.Guarantees[0].Order != impls.OrderPriority {
		slices.Sort(want)
		slices.Sort(calls)
	}
	if !slices.Equal(calls, want) {
		t.Errorf("reconciled %q, want %q", calls, want)
	}
}
