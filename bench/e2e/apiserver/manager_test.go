package apiserver

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"watchlab/bench/e2e/programs"
)

const finalizer = "example.com/configmap"

// deployer is a typical controller: it keeps a ConfigMap for each Deployment, writes
// its progress to the status, and has a finalizer.
type deployer struct {
	client.Client
}

// Reconcile implements reconcile.Reconciler.
func (r *deployer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var d appsv1.Deployment
	if err := r.Get(ctx, req.NamespacedName, &d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	if !d.DeletionTimestamp.IsZero() {
		if err := client.IgnoreNotFound(r.Delete(ctx, settings)); err != nil {
			return ctrl.Result{}, err
		}
		if controllerutil.RemoveFinalizer(&d, finalizer) {
			return ctrl.Result{}, client.IgnoreNotFound(r.Update(ctx, &d))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&d, finalizer) {
		if err := r.Update(ctx, &d); err != nil {
			return ctrl.Result{}, err
		}
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, settings, func() error {
		settings.Data = map[string]string{"replicas": strconv.Itoa(int(*d.Spec.Replicas))}
		return controllerutil.SetControllerReference(&d, settings, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := d.DeepCopy()
	d.Status.ObservedGeneration, d.Status.Replicas = d.Generation, *d.Spec.Replicas
	d.Status.ReadyReplicas = *d.Spec.Replicas
	return ctrl.Result{}, r.Status().Patch(ctx, &d, client.MergeFrom(before))
}

// start starts a manager with the controller and leader election. stop stops the
// manager; leads is closed when it becomes the leader.
func start(t *testing.T, s *server, name string) (stop func(), leads <-chan struct{}) {
	t.Helper()
	lease, renew, retry := 8*time.Second, 6*time.Second, 100*time.Millisecond
	mgr, err := manager.New(s.config(t), manager.Options{
		Scheme:                        scheme.Scheme,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "e2e",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		Controller:                    ctrlconfig.Controller{SkipNameValidation: new(true)},
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).Complete(&deployer{mgr.GetClient()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return stop, mgr.Elected()
}

// TestManager runs a real controller-runtime manager on a simulated API server with faults of all kinds: caches,
// finalizers, status, owner references, and leader election by a lease. The manager reconciles each change.
func TestManager(t *testing.T) {
	s := serve(t, "--faults", "disconnect:every=700ms; half-frame:every=1100ms; gone:every=1700ms,duration=300ms; malformed:every=2300ms; "+
		"error-event:every=1300ms; duplicate-bookmark:every=900ms; relist:every=3100ms; reset:every=1900ms; "+
		"stall:every=2900ms,duration=300ms; drip:every=3700ms,duration=500ms; internal-error:every=2100ms,duration=100ms; throttle:every=4300ms,duration=100ms")
	c := must(client.New(s.config(t), client.Options{Scheme: scheme.Scheme}))(t)
	ctx := t.Context()
	stopFirst, firstLeads := start(t, s, "first")
	await(t, "the first manager to lead", firstLeads)
	_, secondLeads := start(t, s, "second")

	const many = 30
	for i := range many {
		programs.Eventually(t, "a deployment to be made", func() error { return c.Create(ctx, newDeployment(i)) })
	}
	programs.Eventually(t, "all deployments to be ready", func() error { return ready(ctx, c, many, 1) })

	for i := range many {
		programs.Eventually(t, "a deployment to be scaled", func() error {
			d := newDeployment(i)
			if err := c.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			before := d.DeepCopy()
			d.Spec.Replicas = new(int32(2))
			return c.Patch(ctx, d, client.StrategicMergeFrom(before))
		})
	}
	programs.Eventually(t, "all deployments to be ready again", func() error { return ready(ctx, c, many, 2) })

	select {
	case <-secondLeads:
		t.Error("there are two leaders")
	default:
	}
	stopFirst()
	await(t, "the second manager to lead", secondLeads)
	var lease coordinationv1.Lease
	programs.Eventually(t, "the lease", func() error {
		return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "e2e"}, &lease)
	})
	if n := lease.Spec.LeaseTransitions; n == nil || *n < 1 {
		t.Errorf("the lease has not changed hands: %v", lease.Spec)
	}

	programs.Eventually(t, "all deployments to be deleted", func() error {
		return c.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace("default"))
	})
	programs.Eventually(t, "all deployments to go", func() error {
		var left appsv1.DeploymentList
		if err := c.List(ctx, &left); err != nil {
			return err
		}
		var settings corev1.ConfigMapList
		if err := c.List(ctx, &settings); err != nil {
			return err
		}
		if len(left.Items) > 0 || len(settings.Items) > 0 {
			return fmt.Errorf("%d deployments and %d ConfigMaps remain", len(left.Items), len(settings.Items))
		}
		return nil
	})
}

func await(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(programs.Patience):
		t.Fatalf("%s: not in %v", what, programs.Patience)
	}
}

func newDeployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app": fmt.Sprint("d", i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("d", i), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

// ready returns an error if a deployment is not reconciled.
func ready(ctx context.Context, c client.Client, many int, replicas int32) error {
	var all appsv1.DeploymentList
	if err := c.List(ctx, &all, client.InNamespace("default")); err != nil {
		return err
	}
	if len(all.Items) != many {
		return fmt.Errorf("%d deployments", len(all.Items))
	}
	for _, d := range all.Items {
		if d.Status.ReadyReplicas != replicas || d.Status.ObservedGeneration != d.Generation || len(d.Finalizers) != 1 {
			return fmt.Errorf("%s: generation %d, finalizers %v, status %+v", d.Name, d.Generation, d.Finalizers, d.Status)
		}
		var settings corev1.ConfigMap
		if err := c.Get(ctx, client.ObjectKeyFromObject(&d), &settings); err != nil {
			return err
		}
		if settings.Data["replicas"] != strconv.Itoa(int(replicas)) || !metav1.IsControlledBy(&settings, &d) {
			return fmt.Errorf("%s: settings %v of %v", d.Name, settings.Data, settings.OwnerReferences)
		}
	}
	return nil
}
