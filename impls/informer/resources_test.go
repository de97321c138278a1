package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// Widget is a custom resource.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec `json:"spec,omitempty"`
}

type WidgetSpec struct {
	Size int64 `json:"size,omitempty"`
}

type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	return &Widget{TypeMeta: w.TypeMeta, ObjectMeta: *w.ObjectMeta.DeepCopy(), Spec: w.Spec}
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	c := &WidgetList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Widget))
	}
	return c
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widgetScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(widgets.GroupVersion().WithKind("Widget"), &Widget{})
	s.AddKnownTypeWithName(widgets.GroupVersion().WithKind("WidgetList"), &WidgetList{})
	metav1.AddToGroupVersion(s, widgets.GroupVersion())
	return s
}

// custom returns a storm of one object of a kind: an initial list, and an update.
func custom(gvr schema.GroupVersionResource, kind string) *storm.Storm {
	s := &storm.Storm{Name: kind, Resource: gvr, Kind: gvr.GroupVersion().WithKind(kind), Initial: 1, Keys: 1}
	for i, size := range []int64{1, 2} {
		s.Events = append(s.Events, storm.Event{
			Type: []watch.EventType{watch.Added, watch.Modified}[i], Seq: uint64(i + 1), Key: "default/one",
			Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": gvr.GroupVersion().String(), "kind": kind, "spec": map[string]any{"size": size},
				"metadata": map[string]any{"namespace": "default", "name": "one", "resourceVersion": fmt.Sprint(i + 1)},
			}},
		})
	}
	return s
}

// serveStorm starts a simulated API server with the initial list of a storm.
func serveStorm(s *storm.Storm) (config *rest.Config, release, stop func()) {
	prepared, err := apiserver.Prepare(s, wire.JSON, false)
	if err != nil {
		panic(err)
	}
	server, err := apiserver.Open(apiserver.Options{}, prepared)
	if err != nil {
		panic(err)
	}
	url, err := server.Start()
	if err != nil {
		panic(err)
	}
	transport := &http.Transport{}
	return &rest.Config{Host: url, Transport: transport}, func() { server.Release(s.Events[len(s.Events)-1].Seq) }, func() {
		_ = server.Close()
		transport.CloseIdleConnections()
	}
}

// A custom resource of a Go type. Its scheme has the type and that of its list.
func ExampleForResource_customResource() {
	config, _, stop := serveStorm(custom(widgets, "Widget")) // stands for rest.InClusterConfig()
	defer stop()
	inf, err := informer.ForResource(config, widgets, &Widget{}, informer.Options{
		Decode: "shared", Decoder: decode.Options{Scheme: widgetScheme()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	runOnce(inf, func() {
		obj, _, _ := inf.GetStore().GetByKey("default/one")
		fmt.Println("size", obj.(*Widget).Spec.Size)
	})
	// Output:
	// size 1
}

// A custom resource without a Go type.
func ExampleForResource_unstructured() {
	config, _, stop := serveStorm(custom(widgets, "Widget"))
	defer stop()
	inf, err := informer.ForResource(config, widgets, &unstructured.Unstructured{}, informer.Options{Decode: "shared"})
	if err != nil {
		fmt.Println(err)
		return
	}
	runOnce(inf, func() {
		obj, _, _ := inf.GetStore().GetByKey("default/one")
		size, _, _ := unstructured.NestedInt64(obj.(*unstructured.Unstructured).Object, "spec", "size")
		fmt.Println("size", size)
	})
	// Output:
	// size 1
}

// runOnce runs an informer, and use when it has synced.
func runOnce(inf cache.SharedIndexInformer, use func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	cache.WaitFor(ctx, "", inf.HasSyncedChecker())
	use()
	cancel()
	running.Wait()
}

// TestForResourceOfAnyGroup: each decoder lists and watches resources of groups that client-go's scheme
// lacks, unless it has another encoding than the server.
func TestForResourceOfAnyGroup(t *testing.T) {
	groups := map[schema.GroupVersionResource]string{
		widgets: "Widget",
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}: "CustomResourceDefinition",
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}:             "APIService",
		{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}:                       "PodMetrics",
	}
	for gvr, kind := range groups {
		s := custom(gvr, kind)
		if strings.HasPrefix(gvr.Group, "api") { // without a namespace
			for i := range s.Events {
				s.Events[i].Key = "one"
				unstructured.RemoveNestedField(s.Events[i].Object.(*unstructured.Unstructured).Object, "metadata", "namespace")
			}
		}
		examples := map[string]runtime.Object{"unstructured": &unstructured.Unstructured{}, "metadata": &metav1.PartialObjectMetadata{}}
		if gvr == widgets {
			examples["typed"] = &Widget{}
		}
		for of, example := range examples {
			for _, v := range decode.Variants() {
				t.Run(fmt.Sprintf("%s/%s/impl=%s", gvr.GroupResource(), of, v.Name), func(t *testing.T) {
					t.Parallel()
					config, release, stop := serveStorm(s)
					defer stop()
					inf, err := informer.ForResource(config, gvr, example, informer.Options{Decode: v.Name, Decoder: decode.Options{Scheme: widgetScheme()}})
					other := strings.Contains(v.Name, string(decode.Protobuf)) || strings.Contains(v.Name, string(decode.CBOR))
					if other || (of == "metadata") != (v.Name == "metadata") {
						if !errors.Is(err, impls.ErrOptions) {
							t.Errorf("the error is %v", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					updated := make(chan any, 1)
					if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) { updated <- obj }}); err != nil {
						t.Fatal(err)
					}
					runOnce(inf, func() {
						if keys := inf.GetStore().ListKeys(); len(keys) != 1 || keys[0] != s.Events[0].Key {
							t.Fatalf("the informer has listed %q", keys)
						}
						release()
						obj := <-updated
						if o, err := meta.Accessor(obj); err != nil || o.GetResourceVersion() != "2" || fmt.Sprintf("%T", obj) != fmt.Sprintf("%T", example) {
							t.Errorf("the update is %v: %v", obj, err)
						}
					})
				})
			}
		}
	}
}
