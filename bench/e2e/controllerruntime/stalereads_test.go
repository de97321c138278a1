package controllerruntime_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	storms "watchlab/bench/controller"
	"watchlab/bench/controller/verdict"
)

const (
	asManager = "manager"          // first argument that makes the test binary the manager
	ownWrites = "read-your-writes" // second one: its reads wait for its own writes
)

// keeper keeps as many Secrets for each ConfigMap as its data says. Their names are made up, so that a read from a cache
// that is behind makes some twice.
type keeper struct{ client.Client }

func (k keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var parent v1.ConfigMap
	if err := k.Get(ctx, req.NamespacedName, &parent); err != nil || parent.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var all v1.SecretList
	if err := k.List(ctx, &all, client.InNamespace(req.Namespace), client.MatchingFields{"parent": string(parent.UID)}); err != nil {
		return ctrl.Result{}, err
	}
	asked, ok := parent.Data["secrets"]
	if !ok { // another program's
		return ctrl.Result{}, nil
	}
	want, err := strconv.Atoi(asked)
	if err != nil {
		return ctrl.Result{}, err
	}
	for range want - len(all.Items) {
		secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: req.Name + "-", Namespace: req.Namespace}}
		if err := ctrl.SetControllerReference(&parent, secret, k.Scheme()); err != nil {
			return ctrl.Result{}, err
		}
		if err := k.Create(ctx, secret); err != nil {
			return ctrl.Result{}, err
		}
	}
	for i := range max(0, len(all.Items)-want) {
		if err := k.Delete(ctx, &all.Items[i]); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	if made := strconv.Itoa(want); parent.Annotations["made"] != made {
		metav1.SetMetaDataAnnotation(&parent.ObjectMeta, "made", made)
		return ctrl.Result{}, k.Update(ctx, &parent)
	}
	return ctrl.Result{}, nil
}

// manage runs the keeper until a signal.
func manage(own bool) {
	ctrl.SetLogger(klog.Background())
	newClient := func(config *rest.Config, opts client.Options) (client.Client, error) {
		opts.Cache.EnableReadYourWritesConsistency = &own
		return client.New(config, opts)
	}
	m, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Metrics: metrics.Options{BindAddress: "0"}, NewClient: newClient})
	ctx := ctrl.SetupSignalHandler()
	if err == nil {
		err = m.GetFieldIndexer().IndexField(ctx, &v1.Secret{}, "parent", func(o client.Object) []string {
			if ref := metav1.GetControllerOf(o); ref != nil {
				return []string{string(ref.UID)}
			}
			return nil
		})
	}
	if err == nil {
		err = ctrl.NewControllerManagedBy(m).For(&v1.ConfigMap{}).Owns(&v1.Secret{}).
			WithOptions(controller.Options{MaxConcurrentReconciles: 4}).Complete(keeper{m.GetClient()})
	}
	if err == nil {
		err = m.Start(ctx)
	}
	if err != nil {
		klog.ErrorS(err, "The manager ended")
		os.Exit(1)
	}
}

// TestStaleReads: while the watch of Secrets stands still, a manager makes Secrets twice, and the verdict says so. With
// EnableReadYourWritesConsistency it waits.
func TestStaleReads(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{{"stale", nil, []string{verdict.ActedStale}}, {ownWrites, []string{ownWrites}, nil}} {
		t.Run(tc.name, func(t *testing.T) {
			spec := storms.Spec{
				Workload: filepath.Join("testdata", "secrets.yaml"), Plans: []string{"none", "stall:resource=secrets,at=4s,duration=3s"},
				Settle: metav1.Duration{Duration: time.Minute}, Programs: []storms.Program{{Command: append([]string{self, asManager}, tc.args...)}},
			}
			result, err := storms.Run(t.Context(), spec, storms.Options{Dir: filepath.Join(t.TempDir(), "results"), Notify: func(text string) { t.Log(text) }})
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, p := range result.Plays {
				for _, v := range p.Verdicts {
					if v.Failed && !slices.Contains(failed, v.Name) {
						failed = append(failed, v.Name)
					}
				}
			}
			if !slices.Equal(failed, tc.want) {
				t.Errorf("%q failed, want %q", failed, tc.want)
			}
		})
	}
}
