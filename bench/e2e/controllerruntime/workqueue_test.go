package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
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

	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/workqueue"
)

// TestConformance runs the checks of the family on controller-runtime's queue.
func TestConformance(t *testing.T) { clientgo.RunWorkqueue(t, priorityQueue()) }

// BenchmarkWorkqueue is that of bench, with controller-runtime's queue beside all variants.
func BenchmarkWorkqueue(b *testing.B) {
	clientgo.BenchmarkWorkqueue(b, append([]workqueue.Variant{priorityQueue()}, workqueue.Variants()...)...)
}

// TestController: a controller reconciles through each variant. An error is tried again after the back-off,
// a result after its time.
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
	slices.Sort(want)
	slices.Sort(calls)
	if !slices.Equal(calls, want) {
		t.Errorf("reconciled %q, want %q", calls, want)
	}
}
