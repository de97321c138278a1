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
	"maps"
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

var bugs = slices.Concat([]string{none, hotLoop, lostUpdate, leak}, slices.Sorted(maps.Keys(operators)))

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
	fixed := flags.Bool("fixed", false, "play the corrected twin of a second controller of a pattern")
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
	newReconciler(client, *bug, *fixed).run(ctx)
	return nil
}

type reconciler struct {
	client   dynamic.Interface
	bug      string
	fixed    bool
	operator operator
	queue    workqueue.TypedRateLimitingInterface[string] // keys of Widgets, or of what an operator is for
	stores   map[schema.GroupVersionResource]*store
	pages    map[string]map[string][]byte // by key of the Widget and text
	seen     map[string]bool              // keys of Widgets
}

func newReconciler(client dynamic.Interface, bug string, fixed bool) *reconciler {
	o, ok := operators[bug]
	if !ok {
		o = operator{first.watched, (*reconciler).reconcile, true}
	}
	c := &reconciler{
		client: client, bug: bug, fixed: fixed, operator: o, stores: map[schema.GroupVersionResource]*store{}, pages: map[string]map[string][]byte{},
		seen: map[string]bool{}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	for _, r := range o.watched {
		c.stores[r] = newStore(c.queue, bug == lostUpdate && r == widgets)
	}
	return c
}

// run reconciles until ctx ends.
func (c *reconciler) run(ctx context.Context) {
	for resource, s := range c.stores {
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
	for _, s := range c.stores {
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
		if err := c.operator.reconcile(c, ctx, key); err != nil {
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

// reconcile writes what differs from the caches. A Widget's ConfigMap ends with it by the garbage collector.
func (c *reconciler) reconcile(ctx context.Context, key string) error {
	widget := c.stores[widgets].get(key)
	if widget == nil || widget.GetDeletionTimestamp() != nil {
		if c.bug != leak {
			delete(c.pages, key)
		}
		return nil
	}
	sum := c.sum(key, widget)
	want := map[string]any{"sum": sum}
	if have := c.stores[configMaps].get(key); have == nil {
		if _, err := c.create(ctx, configMaps, widget, widget.GetName(), "{apiVersion: v1, kind: ConfigMap, data: {sum: '"+sum+"'}}"); err != nil {
			return err
		}
	} else if c.bug == hotLoop || !reflect.DeepEqual(have.Object["data"], want) {
		o := have.DeepCopy()
		o.Object["data"] = want
		if _, err := c.client.Resource(configMaps).Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if c.bug == hotLoop {
		c.queue.AddAfter(key, loopPeriod)
	}
	return c.setStatus(ctx, widget, map[string]any{"observedGeneration": widget.GetGeneration()})
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
