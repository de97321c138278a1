package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
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
// the changes that are left of it.
type Tee struct {
	resource Resource
	// like is an empty object of the type that is heard.
	like  runtime.Object
	log   *stream.Log
	begun time.Time
	// relists counts lists of the cluster after the first.
	relists atomic.Int64

	synced sync.Once
	ready  chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}
	// err is why an object could not be taken. Set before failed is closed.
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
	return FollowListerWatcher(r, lw, room)
}

// FollowListerWatcher is [NewTee] of whatever can be listed and watched.
func FollowListerWatcher(r Resource, lw cache.ListerWatcher, room int) (*Tee, error) {
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
		resource: r, like: expected, log: stream.NewLog(room), begun: time.Now(),
		ready: make(chan struct{}), ended: make(chan struct{}), failed: make(chan struct{}), cancel: cancel,
	}
	reflector := cache.NewReflectorWithOptions(lw, expected, entry{t}, cache.ReflectorOptions{Name: "watchlab"})
	go func() {
		defer close(t.ended)
		reflector.RunWithContext(ctx)
	}()
	return t, nil
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
		return fmt.Errorf("cluster: %s were not listed: %w", t.resource.Resource, ctx.Err())
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

// Relists returns how often the cluster had to be listed after the first time.
func (t *Tee) Relists() int { return int(t.relists.Load()) }

// Refused returns how many events there was no room for.
func (t *Tee) Refused() uint64 { return t.log.Refused() }

// Close ends the watch and waits for its end. What has been heard stays.
func (t *Tee) Close() {
	t.cancel()
	<-t.ended
}

func (t *Tee) take(obj any, deleted bool) error {
	o, ok := obj.(runtime.Object)
	if !ok {
		return t.failedBy(fmt.Errorf("cluster: a %T is no object", obj))
	}
	acc, err := meta.Accessor(o)
	if err != nil {
		return t.failedBy(fmt.Errorf("cluster: %w", err))
	}
	t.log.Append(storm.ObjectKey(acc.GetNamespace(), acc.GetName()), o, deleted, time.Since(t.begun))
	return nil
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

var _ cache.ReflectorStore = entry{}

func (e entry) Add(obj any) error    { return e.t.take(obj, false) }
func (e entry) Update(obj any) error { return e.t.take(obj, false) }
func (e entry) Delete(obj any) error { return e.t.take(obj, true) }
func (e entry) Resync() error        { return nil }

// Replace takes a list: at first it is the initial list, later what changed is
// found by comparing.
func (e entry) Replace(list []any, _ string) error {
	t := e.t
	first := false
	t.synced.Do(func() { first = true })
	if first {
		for _, obj := range list {
			if err := t.take(obj, false); err != nil {
				return err
			}
		}
		t.log.EndInitial()
		close(t.ready)
		return nil
	}
	t.relists.Add(1)
	return t.catchUp(list)
}

// catchUp writes down how a list differs from what was heard last.
func (t *Tee) catchUp(list []any) error {
	state := t.log.State(t.log.Visible())
	known := make(map[string]runtime.Object, len(state))
	for _, i := range state {
		e := &t.log.Events(uint64(i), uint64(i)+1)[0]
		known[e.Key] = e.Object
	}
	listed := sets.New[string]()
	var errs []error
	for _, obj := range list {
		acc, err := meta.Accessor(obj)
		if err != nil {
			return t.failedBy(fmt.Errorf("cluster: %w", err))
		}
		key := storm.ObjectKey(acc.GetNamespace(), acc.GetName())
		listed.Insert(key)
		// Numbers of our own say nothing about the cluster's versions, so that
		// what didn't change can be told by nothing that is cheap. A second
		// update of the same is what client-go's own stores make of it.
		errs = append(errs, t.take(obj, false))
	}
	for key, obj := range known {
		if !listed.Has(key) {
			errs = append(errs, t.take(obj, true))
		}
	}
	return errors.Join(errs...)
}
