// Package lifecycle stands in for the scheduler, the kubelets and the garbage collector of a cluster, so
// that what a controller creates on a simulated API server runs, ends and is collected as in a cluster.
//
//   - Scheduler: a pod of the default scheduler is bound to the next node in turn that fits (scheduler.go), or to a
//     node-0 that does not exist if there is no node at all.
//   - Stages: [Stage]s change objects some time after they match, as KWOK does. Built in are those of pods:
//     running, succeeded for pods of Jobs, readiness gates, and the end of marked pods; and of volume claims: bound.
//   - Garbage collector: by owner references, in the background, in the foreground and orphaning.
//
// Each part can be switched off, so that the real one can take its place.
//
// The objects of a storm have their lifecycle in the storm: only the garbage collector, and the end of pods
// that a client has deleted, act on them.
package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/source/cluster"
)

// Delays of the cluster, divided by the speed. A quarter of each is random.
const (
	scheduling = 15 * time.Millisecond // of a pod on an idle scheduler
	backoff    = time.Second           // of a pod that fitted nowhere
	collecting = 50 * time.Millisecond // of the garbage collector
)

// The parts of a [Cluster]. The kubelet is the stages of pods and nodes, and Namespaces is a part of the server.
const (
	Scheduler  = "scheduler"
	Kubelet    = "kubelet"
	Collector  = "garbage-collector"
	Namespaces = "namespace"
)

// Parts are the names of all parts.
func Parts() []string { return []string{Scheduler, Kubelet, Collector, Namespaces} }

// Options of a [Cluster].
type Options struct {
	Stages  []Stage
	Seed    int64    // of delays and weights
	Speed   float64  // divides all delays; 0 means 1
	Without []string // parts that are switched off
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
	client     dynamic.Interface
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	rng        *rand.Rand
	objects    map[types.UID]*object
	owned      map[types.UID]map[types.UID]*object // dependents by owner
	unresolved map[*object]bool                    // with an owner of an unknown kind
	nodes      []*object
	loads      map[string]*load      // of nodes
	repellers  map[*object]bool      // pods with an anti-affinity
	pending    map[*object]bool      // pods that fit on no node
	spaces     map[string]labels.Set // labels of namespaces
	late       map[string]bool       // storage classes that bind volumes when a pod asks for them
	addresses  addresses
	subject    *object   // of the template that is rendered
	turn       int       // of the next node
	events     int       // that were written
	live       int       // actions of agenda that are not cancelled
	agenda     []*action // in the order of their times
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
	reported map[types.UID]bool // owners that were reported to be elsewhere
	node     string             // where it takes room
	takes    quantities         // of its node; a node has them
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
		objects: map[types.UID]*object{}, owned: map[types.UID]map[types.UID]*object{}, unresolved: map[*object]bool{},
		loads: map[string]*load{}, repellers: map[*object]bool{}, pending: map[*object]bool{},
		spaces: map[string]labels.Set{}, late: map[string]bool{},
		addresses: addresses{
			used: map[netip.Addr]bool{}, of: map[types.UID][]netip.Addr{}, next: map[netip.Prefix]netip.Addr{},
			hosts: map[string]netip.Addr{}, host: netip.AddrFrom4([4]byte{172, 16, 0, 1}),
		},
	}
	functions := c.functions()
	for _, s := range opts.Stages {
		if c.off(Kubelet) && (s.kind == podKind || s.kind == nodeKind) {
			continue
		}
		c.stages[s.kind] = append(c.stages[s.kind], s.with(functions))
	}
	return c
}

func (c *Cluster) off(part string) bool { return slices.Contains(c.opts.Without, part) }

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

// Run acts until ctx ends. The client of the configuration must not go through faults. The error is ctx's, or that of
// an action that no retry can mend.
func (c *Cluster) Run(ctx context.Context, config *rest.Config) error {
	client, err := cluster.NewClient(config)
	if err != nil {
		return err
	}
	c.client, c.mapper = client, client.Mapper
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
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// learn updates what is known and plans what follows.
func (c *Cluster) learn(change *apiserver.Change) {
	m, err := meta.Accessor(change.Object)
	if err != nil {
		return // such an object has no owner and no stages
	}
	o := c.objects[m.GetUID()]
	if o == nil {
		o = &object{resource: change.Resource, storm: change.By == store.Storm, planned: map[string]*action{}}
		o.kind = kindOf(change.Object)
		c.objects[m.GetUID()] = o
		if o.kind.GroupKind() == nodeKind {
			c.nodes = append(c.nodes, o)
		}
	}
	collected := !c.off(Collector) && change.Resource.Resource != "events"
	if collected {
		c.own(o, m)
	}
	o.meta, o.object = m, change.Object
	if m.GetDeletionTimestamp() != nil && change.By != store.Storm {
		o.marked = true
	}
	if change.Type == watch.Deleted {
		o.gone = true
		for name := range o.planned {
			c.cancel(o, name)
		}
		c.forget(o)
	} else if collected {
		c.collect(o, change.By != store.Storm && change.By != "")
	}
	c.account(o)
	if o.gone {
		return
	}
	if !o.storm || o.marked {
		c.advance(o)
	}
}

// kindOf returns the kind of an object. Typed objects in a server's log have none of their own.
func kindOf(o runtime.Object) schema.GroupVersionKind {
	kind := o.GetObjectKind().GroupVersionKind()
	if kind.Kind == "" {
		if kinds, _, err := resources.Scheme.ObjectKinds(o); err == nil {
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
	return c.client.Resource(o.resource).Namespace(o.meta.GetNamespace())
}

// event writes an event about an object.
func (c *Cluster) event(ctx context.Context, o *object, component, kind, reason, message string) error {
	c.events++
	now := metav1.Now()
	e := &corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("%s.%x", o.meta.GetName(), now.UnixNano()+int64(c.events)),
			Namespace: cmp.Or(o.meta.GetNamespace(), metav1.NamespaceDefault),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: o.kind.GroupVersion().String(), Kind: o.kind.Kind, Namespace: o.meta.GetNamespace(), Name: o.meta.GetName(),
			UID: o.meta.GetUID(), ResourceVersion: o.meta.GetResourceVersion(),
		},
		Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err != nil {
		return err
	}
	events := c.client.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(e.Namespace)
	_, err = events.Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return nil // The namespace ends.
	}
	return err
}
