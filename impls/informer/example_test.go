package informer_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/loadgen/storm"
)

// A shared informer on a queue and a store of one's choice. Lists of this store wait for no write.
func Example() {
	lw := fcache.NewFakeControllerSource() // stands for cache.NewListWatchFromClient(…)
	defer lw.Shutdown()
	lw.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}})

	inf, err := informer.New(lw, &v1.Pod{}, informer.Options{Variant: "cond", Store: "snapshot"})
	if err != nil {
		fmt.Println(err)
		return
	}
	handle, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { fmt.Println("added", obj.(*v1.Pod).Name) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	cache.WaitFor(ctx, "", handle.HasSyncedChecker())
	fmt.Println("store:", inf.GetStore().ListKeys())
	cancel()
	running.Wait()
	// Output:
	// added web-0
	// store: [default/web-0]
}

// An informer in one of client-go's factories, whose listers then read from it.
func ExampleForFactory() {
	var client kubernetes.Interface = fake.NewClientset(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}})
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)

	newPods, err := informer.ForFactory(&v1.Pod{}, listPods, informer.Options{
		Queue:    deltafifo.Options{Delivery: deltafifo.PerKey},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	factory.InformerFor(&v1.Pod{}, newPods)

	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	pods, err := factory.Core().V1().Pods().Lister().Pods("default").List(labels.Everything())
	fmt.Println(len(pods), err)
	cancel()
	factory.Shutdown()
	// Output:
	// 1 <nil>
}

// An informer that decodes with shared, in one of client-go's factories. Its client is its own:
// kubernetes.NewForConfig sets a serializer of its own and takes no decoder.
func ExampleForResource() {
	config, stop := serve() // stands for rest.InClusterConfig()
	defer stop()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)

	pods, err := informer.ForResource(config, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, informer.Options{
		Decode:   "shared",
		Handlers: informer.Handlers{Coalesce: true},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, // for the lister
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	factory.InformerFor(&v1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return pods })

	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	pod, err := factory.Core().V1().Pods().Lister().Pods("default").Get("web-0")
	fmt.Println(pod.Name, len(pod.ManagedFields), err)
	cancel()
	factory.Shutdown()
	// Output:
	// web-0 0 <nil>
}

// serve starts a simulated API server with a pod.
func serve() (config *rest.Config, stop func()) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-0", ResourceVersion: "1",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	config, _, stop = serveStorm(&storm.Storm{
		Name: "pods", Resource: v1.SchemeGroupVersion.WithResource("pods"), Kind: v1.SchemeGroupVersion.WithKind("Pod"),
		Initial: 1, Keys: 1, Events: []storm.Event{{Type: watch.Added, Seq: 1, Key: "default/web-0", Object: pod}},
	})
	return config, stop
}

// listPods lists and watches all pods.
func listPods(client kubernetes.Interface) cache.ListerWatcher {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) },
	}, client)
}
