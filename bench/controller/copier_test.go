package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

// copierName is the first argument of this test program as a controller.
const copierName = "copier"

// The copier's other argument.
const (
	correct = "correct"
	brittle = "brittle" // ends when it has to list again
	idle    = "idle"    // opens no watch
	slow    = "slow"    // begins after some seconds
	beating = "beating" // writes a ConfigMap all the time
	leader  = "leader"  // the same, which is a lock
)

func TestMain(m *testing.M) {
	if len(os.Args) != 4 || os.Args[1] != copierName {
		os.Exit(m.Run())
	}
	// A context that can end: without one, the runtime ends a process that only waits.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[3])
	if err == nil {
		err = runCopier(ctx, config, os.Args[2])
	}
	stop()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// copier is the command of a copier.
func copier(t *testing.T, kind string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, copierName, kind, "{kubeconfig}"}
}

var configMaps = v1.SchemeGroupVersion.WithResource("configmaps")

const suffix = "-copy"

// runCopier keeps a copy of each ConfigMap, which it owns.
func runCopier(ctx context.Context, config *rest.Config, kind string) error {
	if kind == idle {
		<-ctx.Done()
		return ctx.Err()
	}
	config.QPS = -1
	if kind == brittle {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			var lists atomic.Int32
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				query := req.URL.Query()
				again := query.Has("sendInitialEvents") || !query.Has("watch")
				if req.Method == http.MethodGet && path.Base(req.URL.Path) == configMaps.Resource && again && lists.Add(1) > 1 {
					fmt.Fprintln(os.Stderr, "I do not list again")
					os.Exit(3)
				}
				return next.RoundTrip(req)
			})
		})
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	informers := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := informers.ForResource(configMaps).Informer()
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(strings.TrimSuffix(key, suffix))
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
	}); err != nil {
		return err
	}
	informers.Start(ctx.Done())
	defer informers.Shutdown()
	informers.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, queue.ShutDown)
	switch kind {
	case slow:
		time.Sleep(3 * time.Second)
	case beating, leader:
		go beat(ctx, client, kind)
	}
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return ctx.Err()
		}
		if err := reconcile(ctx, client, informer.GetIndexer(), key); err != nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// beat writes a ConfigMap, which a copy of itself owns.
func beat(ctx context.Context, client dynamic.Interface, kind string) {
	for n := range time.Tick(300 * time.Millisecond) {
		beat := &unstructured.Unstructured{}
		beat.SetAPIVersion("v1")
		beat.SetKind("ConfigMap")
		beat.SetName("beat" + suffix)
		beat.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "old-0", UID: "none"}})
		if beat.SetAnnotations(map[string]string{"at": n.String()}); kind == leader {
			beat.SetAnnotations(map[string]string{"control-plane.alpha.kubernetes.io/leader": n.String()})
		}
		_, _ = client.Resource(configMaps).Namespace("default").Apply(ctx, beat.GetName(), beat, metav1.ApplyOptions{FieldManager: kind})
	}
}

func reconcile(ctx context.Context, client dynamic.Interface, cached cache.Indexer, key string) error {
	obj, ok, err := cached.GetByKey(key)
	if err != nil || !ok {
		return err
	}
	original := obj.(*unstructured.Unstructured)
	data, _, _ := unstructured.NestedStringMap(original.Object, "data")
	obj, ok, err = cached.GetByKey(key + suffix)
	if err != nil {
		return err
	}
	all := client.Resource(configMaps).Namespace(original.GetNamespace())
	if !ok {
		made := &unstructured.Unstructured{}
		made.SetAPIVersion("v1")
		made.SetKind("ConfigMap")
		made.SetName(original.GetName() + suffix)
		made.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: original.GetName(), UID: original.GetUID()}})
		if err := unstructured.SetNestedStringMap(made.Object, data, "data"); err != nil {
			return err
		}
		if _, err = all.Create(ctx, made, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return errors.New("the cache is behind")
		}
		return err
	}
	made := obj.(*unstructured.Unstructured)
	if has, _, _ := unstructured.NestedStringMap(made.Object, "data"); maps.Equal(has, data) {
		return nil
	}
	made = made.DeepCopy()
	if err := unstructured.SetNestedStringMap(made.Object, data, "data"); err != nil {
		return err
	}
	_, err = all.Update(ctx, made, metav1.UpdateOptions{})
	return err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// patience is the most that a test waits for all plays of a run.
const patience = 5 * time.Minute
