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

// Tee follows one resource of a cluster with one client-go Reflector, and
// writes what it hears into a log that any number of pipelines list and watch,
// each at its own pace: every pipeline gets the same events, from the moment
// they arrive, and the cluster has one watch more, however many there are.
//
// What the pipelines see is numbered anew: an object's resourceVersion is its
// event's number. When the Reflector has to list again, what it missed shows as
// the changes that are left of it, at the time at which the list came: an object
// whose resourceVersion and UID are the same has not changed, and is no event; one
// whose UID is another was deleted and made again. [Tee.Breaks] tells how often that
// was, and [Tee.Audit] holds what was heard against the cluster.
type Tee struct {
	resource Resource

	like  runtime.Object
	log   *stream.Stream
	line  *line
	begun time.Time

	count counter

	mu sync.Mutex

	heard map[string]state

	ready  chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}

	err    error
	failed chan struct{}
	fail   sync.Once
}

// NewTee begins to follow a resource. The log has room for so many events, the initial list included; what
// comes after that is dropped, and [Tee.Refused] tells. Who makes a Tee closes
// it.
func NewTee(c *Cluster, r Resource, s Scope, room int) (*Tee, error) {
	lw, err := c.ListerWatcher(r, s)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	count, err := newCounter(c, r, s)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return follow(r, lw, room, count)
}

// FollowListerWatcher is [NewTee] of whatever can be listed and watched.
func FollowListerWatcher(r Resource, lw cache.ListerWatcher, room int) (*Tee, error) {
	return follow(r, lw, room, nil)
}

func follow(r Resource, lw cache.ListerWatcher, room int, count counter) (*Tee, error) {
	var expected runtime.Object = &unstructured.Unstructured{}
	if scheme.Scheme.Recognizes(r.Kind) {
		var err error
		if expected, err = scheme.Scheme.New(r.Kind); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
	} else {
		// A Reflector tells unstructured kinds apart by what it is shown.
		expected.(*unstructured.Unstructured).SetGroupVersionKind(r.Kind)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tee{
		resource: r, like: expected, log: stream.NewLog(room), line: newLine(lw), begun: time.Now(),
		count: count, heard: make(map[string]state),
		ready: make(chan struct{}), ended: make(chan struct{}), failed: make(chan struct{}), cancel: cancel,
	}
	reflector := cache.NewReflectorWithOptions(t.line, expected, entry{t}, cache.ReflectorOptions{Name: "watchlab", Backoff: backoff()})
	go func() {
		defer close(t.ended)
		reflector.RunWithContext(ctx)
	}()
	return t, nil
}

// backoff is how long a Tee waits between attempts at a server that does not answer:
// a quarter of a second, doubled up to four, each up to half as long again. client-go
// waits for up to a minute, which would be in every gap that is told of; as long as a
// server needs to start, this is some five requests.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 4 * time.Second}
}

// Like returns an empty object of the type that the Tee hears, as a Reflector
// is told what to expect.
func (t *Tee) Like() runtime.Object { return t.like }

// Begun is when the log's times count from.
func (t *Tee) Begun() time.Time { return t.begun }

// Visible returns how many events there are so far.
func (t *Tee) Visible() uint64 { return t.log.Visible() }

// Seal ends what is shown: whatever the cluster says later is left out. It
// returns how many events there are.
func (t *Tee) Seal() uint64 { return t.log.Seal() }

// Wait returns when the initial list is there, or with what went wrong, or
// with ctx's error.
func (t *Tee) Wait(ctx context.Context) error {
	select {
	case <-t.ready:
		return nil
	case <-t.failed:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("cluster: %s were not listed: %w", t.resource.Resource, errors.Join(t.line.lastError(), ctx.Err()))
	}
}

// Source returns a source of what the tee hears, for one pipeline.
func (t *Tee) Source() *source.Memory {
	return source.NewLive(t.resource.Kind, t.log)
}

// Storm returns the first events as a storm.
func (t *Tee) Storm(upto uint64) *storm.Storm {
	s := t.log.Storm(upto)
	s.Name, s.Resource, s.Kind = "live-"+t.resource.Resource, t.resource.GroupVersionResource, t.resource.Kind
	return s
}

// Breaks tells how often there was no watch so far, and for how long.
func (t *Tee) Breaks() Breaks { return t.line.sofar() }

// Refused returns how many events there was no room for.
func (t *Tee) Refused() uint64 { return t.log.Refused() }

// Close ends the watch and waits for its end. What has been heard stays.
func (t *Tee) Close() {
	t.line.close()
	t.cancel()
	<-t.ended
}

// take writes an object down as it came.
func (t *Tee) take(obj any, deleted bool) error {
	o, acc, err := t.object(obj)
	if err != nil {
		return err
	}
	key := storm.ObjectKey(acc.GetNamespace(), acc.GetName())
	t.write(key, o, state{acc.GetUID(), acc.GetResourceVersion(), deleted})
	return nil
}

// write writes down what became of a key. Only the Reflector's goroutine does.
func (t *Tee) write(key string, o runtime.Object, now state) {
	t.log.Append(key, o, now.gone, time.Since(t.begun))
	t.mu.Lock()
	t.heard[key] = now
	t.mu.Unlock()
}

// object is what a Reflector hands over, as an object and its metadata.
func (t *Tee) object(obj any) (runtime.Object, metav1.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, nil, t.failedBy(fmt.Errorf("cluster: a %T is no object", obj))
	}
	acc, err := meta.Accessor(o)
	if err != nil {
		return nil, nil, t.failedBy(fmt.Errorf("cluster: %w", err))
	}
	return o, acc, nil
}

func (t *Tee) failedBy(err error) error {
	t.fail.Do(func() {
		t.err = err
		close(t.failed)
	})
	return err
}

// entry is the store of the Tee's Reflector: it keeps nothing, it writes down.
type entry struct{ t *Tee }

var (
	_ cache.ReflectorStore         = entry{}
	_ cache.ReflectorBookmarkStore = entry{}
)

func (e entry) Add(obj any) error    { return e.say(obj, false) }
func (e entry) Update(obj any) error { return e.say(obj, false) }
func (e entry) Delete(obj any) error { return e.say(obj, true) }
func (e entry) Resync() error        { return nil }

func (e entry) say(obj any, deleted bool) error {
	e.t.line.said()
	return e.t.take(obj, deleted)
}

// Bookmark is no event, but says that the watch goes on.
func (e entry) Bookmark(string) error {
	e.t.line.said()
	return nil
}

// Replace takes a list: at first it is the initial list, later what changed is
// found by comparing.
func (e entry) Replace(list []any, version string) error {
	t := e.t
	if t.line.listed() {
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

// catchUp writes down how a list differs from what was heard last: first what is
// gone, in order of key, then what is new or changed, in the order of the list.
func (t *Tee) catchUp(list []any, version string) error {
	visible := t.log.Visible()
	last := make(map[string]runtime.Object)
	for _, i := range t.log.State(visible) {
		e := &t.log.Events(uint64(i), uint64(i)+1)[0]
		last[e.Key] = e.Object
	}
	listed := sets.New[string]()
	var added, modified, deleted, unchanged int
	// remove writes down that what was there is gone; what it was last is all that is
	// known of it.
	remove := func(key string, uid types.UID) {
		t.write(key, last[key], state{uid, version, true})
		deleted++
	}
	var changed []func()
	for _, obj := range list {
		o, acc, err := t.object(obj)
		if err != nil {
			return err
		}
		key, now := storm.ObjectKey(acc.GetNamespace(), acc.GetName()), state{uid: acc.GetUID(), version: acc.GetResourceVersion()}
		listed.Insert(key)
		was, known := t.heard[key]
		switch {
		case !known || was.gone:
			added++
		case was.uid != now.uid:
			changed = append(changed, func() { remove(key, was.uid) })
			added++
		case was.version == now.version && now.version != "":
			unchanged++
			continue
		default:
			modified++
		}
		changed = append(changed, func() { t.write(key, o, now) })
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if !listed.Has(key) {
			remove(key, t.heard[key].uid)
		}
	}
	for _, write := range changed {
		write()
	}
	t.line.found(added, modified, deleted, unchanged)
	return nil
}
