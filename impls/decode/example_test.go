package decode_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/decode"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/storm"
)

// A bare Reflector that decodes with shared.
func ExampleNewListWatch() {
	config, stop := serve() // stands for rest.InClusterConfig()
	defer stop()
	decoder, err := decode.New("shared", decode.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	lw, err := decode.NewListWatch(config, decoder, v1.SchemeGroupVersion.WithResource("pods"), "default", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fill(lw)
	// Output:
	// web-0 has 0 managed fields
}

// A Reflector on the REST client of a clientset, which sets a serializer of its own.
func ExampleIntercept() {
	config, stop := serve()
	defer stop()
	config, with, err := decode.Intercept(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder, err := decode.New("shared", decode.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	lw, err := with(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "default", fields.Everything()), decoder)
	if err != nil {
		fmt.Println(err)
		return
	}
	fill(lw)
	// Output:
	// web-0 has 0 managed fields
}

// fill runs a Reflector until it has listed, and prints the pod.
func fill(lw cache.ListerWatcher) {
	ctx, cancel := context.WithCancel(context.Background())
	store := make(listed)
	var running sync.WaitGroup
	running.Go(func() { cache.NewReflector(lw, &v1.Pod{}, store, 0).RunWithContext(ctx) })
	for _, obj := range <-store {
		pod := obj.(*v1.Pod)
		fmt.Println(pod.Name, "has", len(pod.ManagedFields), "managed fields")
	}
	cancel()
	running.Wait()
}

// listed is a Reflector's store that only passes on what was listed.
type listed chan []any

func (s listed) Replace(list []any, _ string) error {
	s <- list
	return nil
}
func (listed) Add(any) error    { return nil }
func (listed) Update(any) error { return nil }
func (listed) Delete(any) error { return nil }
func (listed) Resync() error    { return nil }

// serve starts a simulated API server with a pod.
func serve() (config *rest.Config, stop func()) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-0", ResourceVersion: "1",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	server, err := apiserver.New(&storm.Storm{
		Name: "pods", Resource: v1.SchemeGroupVersion.WithResource("pods"), Kind: v1.SchemeGroupVersion.WithKind("Pod"),
		Initial: 1, Keys: 1, Events: []storm.Event{{Type: watch.Added, Seq: 1, Key: "default/web-0", Object: pod}},
	}, apiserver.Options{})
	if err != nil {
		panic(err)
	}
	url, err := server.Start()
	if err != nil {
		panic(err)
	}
	transport := &http.Transport{}
	return &rest.Config{Host: url, Transport: transport}, func() {
		_ = server.Close()
		transport.CloseIdleConnections()
	}
}
