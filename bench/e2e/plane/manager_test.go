package plane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// TestMain runs the manager in a process of its own if the first argument says so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "manager" {
		if err := manage(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// manage runs a manager with one controller of controller-runtime.
func manage(args []string) error {
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	metrics := flags.String("metrics", "0", "address of the metrics")
	work := flags.Duration("work", 0, "time before the write of a reconcile")
	workers := flags.Int("workers", 1, "concurrent reconciles")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctrl.SetLogger(logr.Discard())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	mgr, err := manager.New(config, manager.Options{Metrics: metricsserver.Options{BindAddress: *metrics}})
	if err != nil {
		return err
	}
	// The controller's own writes change no generation, and ask for no reconcile.
	err = ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers}).Complete(&observer{mgr.GetClient(), *work})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// observer writes the generation of a Deployment to its status: one write a reconcile.
type observer struct {
	client.Client
	work time.Duration
}

// Reconcile implements reconcile.Reconciler.
func (r *observer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var d appsv1.Deployment
	if err := r.Get(ctx, req.NamespacedName, &d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	time.Sleep(r.work)
	d.Status.ObservedGeneration = d.Generation
	return ctrl.Result{}, r.Status().Update(ctx, &d)
}
