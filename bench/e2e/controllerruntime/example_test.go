package controllerruntime_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"watchlab/impls/informer"
)

// A manager whose informers decode with a chosen decoder and use a chosen queue. The lines before
// NewManager configure it. Without a decoder, informer.Func returns a NewInformer, and
// informer.NewSharedIndexInformer is one with the default queue.
func Example() {
	ctrl.SetLogger(logr.Discard())
	server := startServer(pods("web-0"))
	defer server.close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	config := &rest.Config{Host: server.url, Transport: transport} // stands for ctrl.GetConfigOrDie()

	config, newInformer, err := informer.ForManager(config, informer.Options{Decode: "shared", Variant: "cond"})
	if err != nil {
		fmt.Println(err)
		return
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{NewInformer: newInformer},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	err = ctrl.NewControllerManagedBy(mgr).For(&v1.Pod{}).Complete(reconcile.Func(
		func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			var pod v1.Pod
			// The client reads from the cache that our queue feeds.
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &pod); err != nil {
				return ctrl.Result{}, err
			}
			fmt.Println("reconciled", req, "at version", pod.ResourceVersion)
			cancel()
			return ctrl.Result{}, nil
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("stopped:", mgr.Start(ctx))
	// Output:
	// reconciled default/web-0 at version 1
	// stopped: <nil>
}
