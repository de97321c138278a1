// Command planted is a small controller with a bug to plant. It keeps one ConfigMap for each Widget
// and its status, with a Reflector and a work queue of client-go. The tests of this folder play storms
// to it: watchlab controller must tell each bug, and nothing of the correct controller.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

// The bugs.
const (
	none       = "none"
	hotLoop    = "hot-loop"    // it writes the ConfigMap again and again, without a change
	lostUpdate = "lost-update" // it ignores what changed before a relist
	leak       = "leak"        // its cache of texts keeps all versions
)

var bugs = slices.Concat([]string{none, hotLoop, lostUpdate, leak}, patterns)

var (
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "planted: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("planted", flag.ContinueOnError)
	bug := flags.String("bug", none, "bug to plant: "+strings.Join(bugs, ", "))
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !slices.Contains(bugs, *bug) {
		return fmt.Errorf("bug %q (allowed: %s)", *bug, strings.Join(bugs, ", "))
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	newReconciler(client, *bug).run(ctx)
	return nil
}

type reconciler struct {
	client              dynamic.Interface
	bug                 string
	queue               workqueue.TypedRateLimitingInterface[string] // keys of Widgets
	widgets, configMaps *store
	pages               map[string]map[string][]byte // by key of the Widget and text
	seen                map[string]bool              // keys of Widgets
}

func newReconciler(client dynamic.Interface, bug string) *reconciler {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	return &reconciler{
		client: client, bug: bug, queue: queue, pages: map[string]map[string][]byte{}, seen: map[string]bool{},
		widgets: newStore(queue, bug == lostUpdate), configMaps: newStore(queue, false),
	}
}

// run reconciles until ctx ends.
func (c *reconciler) run(ctx context.Context) {
	for resource, s := range map[schema.GroupVersionResource]*store{widgets: c.widgets, configMaps: c.configMaps} {
		source := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return c.client.Resource(resource).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.client.Resource(resource).Watch(ctx, o)
			},
		}
		go cache.NewReflector(source, &unstructured.Unstructured{}, s, 0).RunWithContext(ctx)
	}
	for _, s := range []*store{c.widgets, c.configMaps} {
		select {
		case <-s.filled:
		case <-ctx.Done():
		}
	}
	context.AfterFunc(ctx, c.queue.ShutDown)
	for {
		key, stopped := c.queue.Get()
		if stopped {
			return
		}
		if err := c.reconcile(ctx, key); err != nil {
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

// reconcile writes what differs from the caches. A Widget's ConfigMap ends with it by the garbage collector.
func (c *reconciler) reconcile(ctx context.Context, key string) error {
	if slices.Contains(patterns, c.bug) {
		return c.reconcilePattern(ctx, key)
	}
	widget := c.widgets.get(key)
	if widget == nil || widget.GetDeletionTimestamp() != nil {
		if c.bug != leak {
			delete(c.pages, key)
		}
		return nil
	}
	namespace, name := widget.GetNamespace(), widget.GetName()
	want := map[string]any{"sum": c.sum(key, widget)}
	if have := c.configMaps.get(key); have == nil {
		owner := metav1.NewControllerRef(widget, widgets.GroupVersion().WithKind("Widget"))
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": want}}
		o.SetName(name)
		o.SetOwnerReferences([]metav1.OwnerReference{*owner})
		if _, err := c.client.Resource(configMaps).Namespace(namespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return err
		}
	} else if c.bug == hotLoop || !reflect.DeepEqual(have.Object["data"], want) {
		o := have.DeepCopy()
		o.Object["data"] = want
		if _, err := c.client.Resource(configMaps).Namespace(namespace).Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if c.bug == hotLoop {
		c.queue.AddAfter(key, loopPeriod)
	}
	status := map[string]any{"observedGeneration": widget.GetGeneration()}
	if reflect.DeepEqual(widget.Object["status"], status) {
		return nil
	}
	o := widget.DeepCopy()
	o.Object["status"] = status
	_, err := c.client.Resource(widgets).Namespace(namespace).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

const (
	loopPeriod = 100 * time.Millisecond
	pageBytes  = 256 << 10
)

// sum returns the checksum of a Widget's page.
func (c *reconciler) sum(key string, widget *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(widget.Object, "spec", "text")
	page := c.pages[key][text]
	if page == nil {
		page = bytes.Repeat([]byte(text+"\n"), pageBytes/(len(text)+1))
		if c.pages[key] == nil || c.bug != leak {
			c.pages[key] = map[string][]byte{}
		}
		c.pages[key][text] = page
	}
	return fmt.Sprintf("%x", sha256.Sum256(page))
}
