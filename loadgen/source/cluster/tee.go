package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/source"
	"watchlab/loadgen/source/stream"
	"watchlab/loadgen/storm"
)

// Tee follows one resource of a cluster with one client-go Reflector and appends its events to
// a log. Any number of pipelines list and watch the log at their own rates. All receive the
// same events on arrival, and the cluster serves one watch.
//
// Events have new numbers, which are the resourceVersions of their objects. When the Reflector
// lists again, the differences from the last known state become events at the time of the
// list. An object with the same UID and resourceVersion is unchanged. An object with another
// UID was deleted and recreated. [Tee.Breaks] counts these interruptions, and [Tee.Audit]
// compares the log with the cluster.
type Tee struct {
	resource  Resource
	like      runtime.Object // an empty object of the events' type
	log       *stream.Stream
	link      *link
	origin    time.Time
	inventory lister // nil: Audit does nothing

	mu       sync.Mutex       // guards received
	received map[string]state // last received state of each key, including deleted keys
	ready    chan struct{}    // closed after the initial list
	cancel   context.CancelFunc
	ended    chan struct{}
	failed   context.Context // done with the Tee's error as cause
	fail     context.CancelCauseFunc
}

// NewTee starts to follow a resource. The log holds at most capacity events, including the
// initial list; [Tee.Refused] counts events beyond it. The caller must close the Tee.
func NewTee(c *Cluster, r Resource, s Scope, capacity int) (*Tee, error) {
	lw, err := c.ListerWatcher(r, s)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	inventory, err := newLister(c, r, s)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return follow(r, lw, capacity, inventory)
}

// FollowListerWatcher is [NewTee] for any ListerWatcher. Its Audit does nothing.
func FollowListerWatcher(r Resource, lw cache.ListerWatcher, capacity int) (*Tee, error) {
	return follow(r, lw, capacity, nil)
}

func follow(r Resource, lw cache.ListerWatcher, capacity int, inventory lister) (*Tee, error) {
	var expected runtime.Object = &unstructured.Unstructured{}
	if scheme.Scheme.Recognizes(r.Kind) {
		var err error
		if expected, err = scheme.Scheme.New(r.Kind); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	} else {
		// A Reflector compares the kinds of unstructured objects.
		expected.(*unstructured.Unstructured).SetGroupVersionKind(r.Kind)
	}
	ctx, cancel := context.WithCancel(context.Background())
	link, lw := track(lw)
	t := &Tee{
		resource: r, like: expected, log: stream.NewLog(capacity), link: link, origin: time.Now(),
		inventory: inventory, received: make(map[string]state),
		ready: make(chan struct{}), ended: make(chan struct{}), cancel: cancel,
	}
	t.failed, t.fail = context.WithCancelCause(context.Background())
	reflector := cache.NewReflectorWithOptions(lw, expected, entry{t}, cache.ReflectorOptions{Name: "watchlab", Backoff: backoff()})
	go func() {
		defer close(t.ended)
		reflector.RunWithContext(ctx)
	}()
	return t, nil
}

// backoff is the pause between attempts at an unavailable server: 250 ms, doubled up to 4 s,
// plus up to 50 % jitter. client-go's backoff grows to a minute, which lengthens every gap. A
// starting server gets about five requests.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 4 * time.Second}
}

// Like returns an empty object of the events' type, as NewReflector expects it.
func (t *Tee) Like() runtime.Object { return t.like }

// Origin returns the time origin of the log.
func (t *Tee) Origin() time.Time { return t.origin }

// Visible returns the number of events so far.
func (t *Tee) Visible() uint64 { return t.log.Visible() }

// Seal drops all later events and returns the number of events so far.
func (t *Tee) Seal() uint64 { return t.log.Seal() }

// Wait returns after the initial list, with the Tee's error, or with ctx's error.
func (t *Tee) Wait(ctx context.Context) error {
	select {
	case <-t.ready:
		return nil
	case <-t.failed.Done():
		return context.Cause(t.failed)
	case <-ctx.Done():
		return fmt.Errorf("cluster: %s were not listed: %w", t.resource.Resource, errors.Join(t.link.lastError(), ctx.Err()))
	}
}

// Source returns a source of the log; each pipeline needs its own.
func (t *Tee) Source() *source.Memory {
	return source.NewLive(t.resource.Kind, t.log)
}

// Storm returns the first upto events as a storm.
func (t *Tee) Storm(upto uint64) *storm.Storm {
	s := t.log.Storm(upto)
	s.Name, s.Resource, s.Kind = "live-"+t.resource.Resource, t.resource.GroupVersionResource, t.resource.Kind
	return s
}

// Breaks returns the interruptions so far.
func (t *Tee) Breaks() Breaks { return t.link.breaks() }

// Capacity is the largest number of events, including the initial list.
func (t *Tee) Capacity() int { return t.log.Capacity() }

// Refused returns the number of events beyond the capacity.
func (t *Tee) Refused() uint64 { return t.log.Refused() }

// Close ends the watch and waits for it. The log stays readable.
func (t *Tee) Close() {
	t.link.close()
	t.cancel()
	<-t.ended
}

func (t *Tee) take(obj any, deleted bool) error {
	o, acc, err := t.object(obj)
	if err != nil {
		return err
	}
	key := storm.ObjectKey(acc.GetNamespace(), acc.GetName())
	t.write(key, o, state{versionOf(acc), deleted})
	return nil
}

func versionOf(acc metav1.Object) Version { return Version{acc.GetUID(), acc.GetResourceVersion()} }

// write appends the new state of a key. Only the Reflector's goroutine calls it.
func (t *Tee) write(key string, o runtime.Object, now state) {
	t.log.Append(key, o, now.deleted, time.Since(t.origin))
	t.mu.Lock()
	t.received[key] = now
	t.mu.Unlock()
}

// object returns an object of the Reflector, with its metadata.
func (t *Tee) object(obj any) (runtime.Object, metav1.Object, error) {
	acc, err := meta.Accessor(obj)
	if err != nil {
		err = fmt.Errorf("cluster: a %T: %w", obj, err)
		t.fail(err)
		return nil, nil, err
	}
	return obj.(runtime.Object), acc, nil // a Reflector passes on nothing else
}

// entry is the store of the Tee's Reflector. It only appends to the log.
type entry struct{ t *Tee }

var (
	_ cache.ReflectorStore         = entry{}
	_ cache.ReflectorBookmarkStore = entry{}
)

func (e entry) Add(obj any) error    { return e.take(obj, false) }
func (e entry) Update(obj any) error { return e.take(obj, false) }
func (e entry) Delete(obj any) error { return e.take(obj, true) }
func (e entry) Resync() error        { return nil }

func (e entry) take(obj any, deleted bool) error {
	e.t.link.event()
	return e.t.take(obj, deleted)
}

// Bookmark is an event of the watch, but not of the storm.
func (e entry) Bookmark(string) error {
	e.t.link.event()
	return nil
}

// Replace receives a list: first the initial list, later the lists after gaps.
func (e entry) Replace(list []any, version string) error {
	t := e.t
	if t.link.listed() {
		return t.catchUp(list, version)
	}
	for _, obj := range list {
		if err := t.take(obj, false); err != nil {
			return err
		}
	}
	t.log.EndInitial()
	close(t.ready)
	return nil
}

// catchUp appends the differences between a list and the last state: first deletions in order
// of key, then additions and changes in the order of the list.
func (t *Tee) catchUp(list []any, version string) error {
	visible := t.log.Visible()
	last := make(map[string]runtime.Object)
	for _, i := range t.log.State(visible) {
		e := &t.log.Events(uint64(i), uint64(i)+1)[0]
		last[e.Key] = e.Object
	}
	listed := sets.New[string]()
	var changes Changes
	// remove appends a deletion with the last known object, because the final state is unknown.
	remove := func(key string, uid types.UID) { t.write(key, last[key], state{Version{uid, version}, true}) }
	var changed []func()
	for _, obj := range list {
		o, acc, err := t.object(obj)
		if err != nil {
			return err
		}
		key, now := storm.ObjectKey(acc.GetNamespace(), acc.GetName()), versionOf(acc)
		listed.Insert(key)
		was, known := t.received[key]
		typ, again := changes.Listed(was.Version, known && !was.deleted, now)
		if typ == "" {
			continue
		}
		if again {
			changed = append(changed, func() { remove(key, was.UID) })
		}
		changed = append(changed, func() { t.write(key, o, state{Version: now}) })
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if !listed.Has(key) {
			remove(key, t.received[key].UID)
			changes.Deleted++
		}
	}
	for _, write := range changed {
		write()
	}
	t.link.found(changes)
	return nil
}
