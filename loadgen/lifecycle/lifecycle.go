// Package lifecycle stands in for the scheduler, the kubelets and the garbage collector of a cluster, so
// that what a controller creates on a simulated API server runs, ends and is collected as in a cluster.
//
//   - Scheduler: a pod without a node is bound to the next ready node in turn, or to a node-0 that does not
//     exist if there is none. Resources, affinity and taints do not count.
//   - Stages: [Stage]s change objects some time after they match, as KWOK does. Built in are those of pods:
//     running, succeeded for pods of Jobs, and the end of marked pods.
//   - Garbage collector: by owner references, in the background, in the foreground and orphaning.
//
// The objects of a storm have their lifecycle in the storm: only the garbage collector, and the end of pods
// that a client has deleted, act on them.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/apiserver"
)

// Delays of the cluster, divided by the speed. A quarter of each is random.
const (
	scheduling = 15 * time.Millisecond // of a pod on an idle scheduler
	collecting = 50 * time.Millisecond // of the garbage collector
)

// stormName is the origin of a storm's changes.
const stormName = "storm"

// Options of a [Cluster].
type Options struct {
	Stages []Stage
	Seed   int64   // of delays and weights
	Speed  float64 // divides all delays; 0 means 1
}

// Cluster acts on the objects of a server. Its methods are safe for concurrent use.
type Cluster struct {
	opts   Options
	stages map[schema.GroupKind][]*Stage
	wake   chan struct{} // has capacity 1

	mu     sync.Mutex // guards the fields below
	inbox  []apiserver.Change
	active bool // Run handles changes or actions
	due    int  // actions in the schedule

	// The fields below belong to Run.
	client  dynamic.Interface
	rng     *rand.Rand
	objects map[types.UID]*object
	owned   map[types.UID]map[types.UID]*object // dependents by owner
	nodes   []*object
	turn    int       // of the next node
	live    int       // actions of agenda that are not cancelled
	agenda  []*action // in the order of their times
}

// object is the last state of an object, and its planned actions.
type object struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	meta     metav1.Object
	object   runtime.Object
	storm    bool // the storm has created it
	marked   bool // a client has asked for its deletion
	gone     bool
	stage    *Stage // that is scheduled
	planned  map[string]*action
}

// action is a planned action.
type action struct {
	at   time.Time
	name string
	of   *object
	run  func(context.Context) error // nil if it is cancelled
}

// New returns a cluster. It acts in [Cluster.Run].
func New(opts Options) *Cluster {
	if opts.Speed <= 0 {
		opts.Speed = 1
	}
	c := &Cluster{
		opts: opts, stages: map[schema.GroupKind][]*Stage{}, wake: make(chan struct{}, 1),
		rng:     rand.New(rand.NewPCG(uint64(opts.Seed), 0)),
		objects: map[types.UID]*object{}, owned: map[types.UID]map[types.UID]*object{},
	}
	for i := range opts.Stages {
		s := &opts.Stages[i]
		c.stages[s.kind] = append(c.stages[s.kind], s)
	}
	return c
}

// Observe receives a change of the server. It returns at once.
func (c *Cluster) Observe(change apiserver.Change) {
	c.mu.Lock()
	c.inbox = append(c.inbox, change)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Quiet reports whether no action is planned and no change is unread.
func (c *Cluster) Quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inbox) == 0 && c.due == 0 && !c.active
}

// Run acts until ctx ends. The client must not go through faults. The error is ctx's, or that of an action
// that no retry can mend.
func (c *Cluster) Run(ctx context.Context, client dynamic.Interface) error {
	c.client = client
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		changes := c.inbox
		c.inbox, c.active = nil, true
		c.mu.Unlock()
		for i := range changes {
			c.learn(&changes[i])
		}
		for len(c.agenda) > 0 && !time.Now().Before(c.agenda[0].at) && ctx.Err() == nil {
			a := c.agenda[0]
			if c.agenda = c.agenda[1:]; a.run == nil {
				continue
			}
			delete(a.of.planned, a.name)
			c.live--
			if err := a.run(ctx); err != nil && ctx.Err() == nil && !harmless(err) {
				return fmt.Errorf("lifecycle: %s of %s %s: %w", a.name, a.of.kind.Kind, a.of.meta.GetName(), err)
			}
		}
		var wait <-chan time.Time
		if len(c.agenda) > 0 {
			timer.Reset(time.Until(c.agenda[0].at))
			wait = timer.C
		}
		c.mu.Lock()
		c.due, c.active = c.live, false
		c.mu.Unlock()
		select {
		case <-c.wake:
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// harmless reports whether another writer caused an error: its change follows.
func harmless(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errSkipped)
}

var errSkipped = errors.New("skipped")

// learn updates what is known and plans what follows.
func (c *Cluster) learn(change *apiserver.Change) {
	m, err := meta.Accessor(change.Object)
	if err != nil {
		return // such an object has no owner and no stages
	}
	o := c.objects[m.GetUID()]
	if o == nil {
		o = &object{resource: change.Resource, storm: change.By == stormName, planned: map[string]*action{}}
		o.kind = kindOf(change.Object)
		c.objects[m.GetUID()] = o
		if o.kind.GroupKind() == nodeKind {
			c.nodes = append(c.nodes, o)
		}
	}
	c.own(o, m)
	o.meta, o.object = m, change.Object
	if m.GetDeletionTimestamp() != nil && change.By != stormName {
		o.marked = true
	}
	if change.Type == watch.Deleted {
		o.gone = true
		for name := range o.planned {
			c.cancel(o, name)
		}
		c.forget(o)
		return
	}
	c.collect(o, change.By != stormName && change.By != "")
	if o.kind.GroupKind() == podKind {
		c.schedule(o)
	}
	if !o.storm || o.marked {
		c.advance(o)
	}
}

// kindOf returns the kind of an object. Typed objects in a server's log have none of their own.
func kindOf(o runtime.Object) schema.GroupVersionKind {
	kind := o.GetObjectKind().GroupVersionKind()
	if kind.Kind == "" {
		if kinds, _, err := scheme.Scheme.ObjectKinds(o); err == nil {
			kind = kinds[0]
		}
	}
	return kind
}

var (
	podKind  = corev1.SchemeGroupVersion.WithKind("Pod").GroupKind()
	nodeKind = corev1.SchemeGroupVersion.WithKind("Node").GroupKind()
)

// plan plans an action of an object after a delay. An action of the same name that is planned stays.
func (c *Cluster) plan(o *object, name string, delay time.Duration, run func(context.Context) error) {
	if o.planned[name] != nil {
		return
	}
	at := time.Now().Add(time.Duration(float64(delay) / c.opts.Speed))
	c.live++
	a := &action{at: at, name: name, of: o, run: run}
	o.planned[name] = a
	after := sort.Search(len(c.agenda), func(i int) bool { return c.agenda[i].at.After(at) })
	c.agenda = slices.Insert(c.agenda, after, a)
}

// cancel takes a planned action back.
func (c *Cluster) cancel(o *object, name string) {
	if a := o.planned[name]; a != nil {
		a.run = nil
		c.live--
		delete(o.planned, name)
	}
}

// about is a delay with a random quarter.
func (c *Cluster) about(d time.Duration) time.Duration {
	return d - d/4 + time.Duration(c.rng.Int64N(int64(d/2)))
}

// resource returns the client of an object's resource.
func (c *Cluster) resource(o *object) dynamic.ResourceInterface {
	if namespace := o.meta.GetNamespace(); namespace != "" {
		return c.client.Resource(o.resource).Namespace(namespace)
	}
	return c.client.Resource(o.resource)
}

// schedule binds a pod.
func (c *Cluster) schedule(o *object) {
	pod, ok := o.object.(*corev1.Pod)
	if !ok || o.storm || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 {
		return
	}
	c.plan(o, "binding", c.about(scheduling), func(ctx context.Context) error {
		binding := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Binding",
			"metadata": map[string]any{"name": pod.Name, "namespace": pod.Namespace, "uid": string(pod.UID)},
			"target":   map[string]any{"kind": "Node", "name": c.node()},
		}}
		_, err := c.resource(o).Create(ctx, binding, metav1.CreateOptions{}, "binding")
		return err
	})
}

// node is the next ready node.
func (c *Cluster) node() string {
	for range c.nodes {
		c.turn++
		n, ok := c.nodes[c.turn%len(c.nodes)].object.(*corev1.Node)
		if !ok || n.Spec.Unschedulable || c.nodes[c.turn%len(c.nodes)].gone {
			continue
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				return n.Name
			}
		}
	}
	return "node-0"
}
