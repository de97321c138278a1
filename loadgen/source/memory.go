package source

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/stream"
	"watchlab/loadgen/storm"
)

// ErrClosed is returned by lists and watches of a source that was closed.
var ErrClosed = errors.New("source is closed")

// window is how many events an unpaced [Memory] releases ahead of the slowest
// watch, and how many the channel of a watch holds: enough to wake the other
// side once per half of it rather than at every event.
const window = 128

// Memory hands the storm's events over in this process: the objects as they
// are, without a copy or an encoding. Each watch has one goroutine, which sends
// to the watch's channel; this hop is inherent to watch.Interface.
//
// A paced Play is an open loop: it releases on schedule whether or not
// anybody takes, and what a watch has not taken waits for it. An unpaced one is
// a closed loop: it waits while nobody watches, or the slowest watch has 128
// events to come beyond the 128 that lie in its channel. There, a release says when the source was allowed to go on,
// not when the event was due, so that a latency counted from it says little.
//
// Lists are typed (such as *v1.PodList) where client-go's scheme knows the
// kind; since such a list holds values, the structs of its items are copies.
// Limits are ignored, as an API server's watch cache does with version 0.
// Selectors are refused. There are no bookmarks but the one that ends the
// initial events. Everything is retained, so that no watch is too late.
type Memory struct {
	name string
	kind schema.GroupVersionKind

	storm  *storm.Storm
	stream history

	invalid error

	snapshots atomic.Int64

	mu sync.Mutex

	watches map[*memoryWatch]struct{}

	feeds sync.WaitGroup
}

// history is what a [Memory] shows: a storm of which a part is visible, or one
// that is still being written.
type history interface {
	Events(from, to uint64) []storm.Event
	State(at uint64) []int32
	Start(version string, sendInitialEvents *bool, bookmarks bool) (stream.Start, error)
	ListAt(version string, match metav1.ResourceVersionMatch) (uint64, error)
	Follow(at uint64) *stream.Follower
	WaitRoom(ctx context.Context, window uint64) error
	Raise(to uint64)
	Visible() uint64
}

var (
	_ history = (*stream.Stream)(nil)
	_ history = (*stream.Log)(nil)
)

// NewMemory returns the in-process source of a storm. What is wrong with the
// storm (see [storm.Storm.Validate]) is returned by Play and by each list and
// watch.
func NewMemory(s *storm.Storm) *Memory {
	m := &Memory{name: "storm " + s.Name, kind: s.Kind, storm: s, watches: map[*memoryWatch]struct{}{}}
	if m.invalid = s.Validate(); m.invalid != nil {
		s = &storm.Storm{}
	}
	m.stream = stream.New(s, 0)
	return m
}

// NewLive returns a source of a log that somebody else writes: nothing is
// released, and Play is not to be called.
func NewLive(kind schema.GroupVersionKind, log *stream.Log) *Memory {
	return &Memory{
		name: "live " + kind.Kind, kind: kind, storm: &storm.Storm{}, stream: log,
		watches: map[*memoryWatch]struct{}{},
	}
}

// Name returns "memory".
func (m *Memory) Name() string { return MemoryName }

// ListerWatcher returns the source itself.
func (m *Memory) ListerWatcher() cache.ListerWatcher { return memoryListerWatcher{m} }

// Relists returns how often the whole state was asked for after the first
// time.
func (m *Memory) Relists() int { return int(max(m.snapshots.Load()-1, 0)) }

// Play releases the events after the initial list; see [Source] and [Memory].
func (m *Memory) Play(ctx context.Context, p *pace.Pacer, released func(seq uint64)) error {
	if m.invalid != nil {
		return m.invalid
	}
	unpaced := !p.Paced()
	for i, e := range m.storm.Events[m.storm.Initial:] {
		if err := p.Wait(ctx, i); err != nil {
			return err
		}
		if unpaced {
			if err := m.stream.WaitRoom(ctx, window); err != nil {
				return err
			}
		}
		if released != nil {
			released(e.Seq)
		}
		m.stream.Raise(e.Seq)
	}
	return nil
}

// Disconnect ends all watches, as a lost connection would. Clients are free to
// watch again from where they were.
func (m *Memory) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watches {
		w.Stop()
	}
}

// Close ends all watches and waits for their goroutines.
func (m *Memory) Close() error {
	m.mu.Lock()
	for w := range m.watches {
		w.Stop()
	}
	m.watches = nil
	m.mu.Unlock()
	m.feeds.Wait()
	return nil
}

// memoryListerWatcher is what a Memory shows to a Reflector. It says nothing
// about WatchList, and so supports it (client-go v0.37,
// util/watchlist.DoesClientNotSupportWatchListSemantics).
type memoryListerWatcher struct{ m *Memory }

var _ cache.ListerWatcherWithContext = memoryListerWatcher{}

func (lw memoryListerWatcher) List(opts metav1.ListOptions) (runtime.Object, error) {
	return lw.m.list(opts)
}

func (lw memoryListerWatcher) ListWithContext(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return lw.m.list(opts)
}

func (lw memoryListerWatcher) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return lw.m.watch(context.Background(), opts)
}

func (lw memoryListerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return lw.m.watch(ctx, opts)
}

// check refuses what a memory source cannot do.
func (m *Memory) check(opts metav1.ListOptions) error {
	m.mu.Lock()
	closed := m.watches == nil
	m.mu.Unlock()
	switch {
	case m.invalid != nil:
		return m.invalid
	case closed:
		return ErrClosed
	case opts.LabelSelector != "" || opts.FieldSelector != "" || opts.Continue != "":
		return apierrors.NewBadRequest("the memory source has no selectors and no continue")
	}
	return nil
}

// object returns the object of the event with that index, which is visible.
func (m *Memory) object(i int32) runtime.Object {
	return m.stream.Events(uint64(i), uint64(i)+1)[0].Object
}

func (m *Memory) list(opts metav1.ListOptions) (runtime.Object, error) {
	if err := m.check(opts); err != nil {
		return nil, err
	}
	at, err := m.stream.ListAt(opts.ResourceVersion, opts.ResourceVersionMatch)
	if err != nil {
		return nil, err
	}
	state := m.stream.State(at)
	objects := make([]runtime.Object, len(state))
	for i, e := range state {
		objects[i] = m.object(e)
	}
	list, err := m.listOf(objects)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	acc, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	acc.SetResourceVersion(strconv.FormatUint(at, 10))
	m.snapshots.Add(1)
	return list, nil
}

// listOf returns the typed list of the objects, or, for a kind that client-go
// doesn't know, a list that holds them as they are.
func (m *Memory) listOf(objects []runtime.Object) (runtime.Object, error) {
	kind := m.kind
	kind.Kind += "List"
	list, err := scheme.Scheme.New(kind)
	if runtime.IsNotRegisteredError(err) {
		return &metainternalversion.List{Items: objects}, nil
	}
	if err != nil {
		return nil, err
	}
	return list, meta.SetList(list, objects)
}

func (m *Memory) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := m.check(opts); err != nil {
		return nil, err
	}
	start, err := m.stream.Start(opts.ResourceVersion, opts.SendInitialEvents, opts.AllowWatchBookmarks)
	if err != nil {
		return nil, err
	}
	w := &memoryWatch{
		memory: m,
		start:  start,
		ch:     make(chan watch.Event, window),
		stop:   make(chan struct{}),
	}
	if start.Mark {
		if w.mark, err = m.bookmark(start.At); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watches == nil {
		return nil, ErrClosed
	}
	m.watches[w] = struct{}{}
	if start.State {
		m.snapshots.Add(1)
	}
	w.follower = m.stream.Follow(start.At)
	m.feeds.Go(func() { w.feed(ctx) })
	return w, nil
}

// bookmark returns the bookmark that ends the initial events: an object of the
// storm's kind with nothing but a version and the annotation.
func (m *Memory) bookmark(at uint64) (runtime.Object, error) {
	var o runtime.Object
	switch {
	case m.stream.Visible() > 0:
		// Of the type of the objects, since a Reflector compares types.
		o = reflect.New(reflect.TypeOf(m.object(0)).Elem()).Interface().(runtime.Object)
	case scheme.Scheme.Recognizes(m.kind):
		var err error
		if o, err = scheme.Scheme.New(m.kind); err != nil {
			return nil, err
		}
	default:
		o = &unstructured.Unstructured{}
	}
	if u, ok := o.(runtime.Unstructured); ok {
		u.SetUnstructuredContent(map[string]any{})
		u.GetObjectKind().SetGroupVersionKind(m.kind)
	}
	acc, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	acc.SetResourceVersion(strconv.FormatUint(at, 10))
	acc.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o, nil
}

// memoryWatch is one watch of a Memory.
type memoryWatch struct {
	memory   *Memory
	follower *stream.Follower
	start    stream.Start

	mark runtime.Object
	ch   chan watch.Event

	stop chan struct{}

	stopped atomic.Bool
}

// Stop ends the watch; its channel is closed soon afterwards.
func (w *memoryWatch) Stop() {
	if w.stopped.CompareAndSwap(false, true) {
		close(w.stop)
	}
}

// ResultChan returns the channel of events.
func (w *memoryWatch) ResultChan() <-chan watch.Event { return w.ch }

// feed sends what the watch is due until it is stopped.
func (w *memoryWatch) feed(ctx context.Context) {
	m := w.memory
	defer func() {
		w.follower.Close()
		m.mu.Lock()
		delete(m.watches, w)
		m.mu.Unlock()
		close(w.ch)
	}()
	if w.start.State {
		for _, e := range m.stream.State(w.start.At) {
			if !w.send(ctx, watch.Event{Type: watch.Added, Object: m.object(e)}) {
				return
			}
		}
		if w.start.Mark && !w.send(ctx, watch.Event{Type: watch.Bookmark, Object: w.mark}) {
			return
		}
	}
	at := w.start.At
	for {
		upto := w.follower.Poll()
		if upto <= at {
			select {
			case <-w.follower.Wake():
			case <-w.stop:
				return
			case <-ctx.Done():
				return
			}
			continue
		}
		events := m.stream.Events(at, upto)
		for i := range events {
			if !w.send(ctx, watch.Event{Type: events[i].Type, Object: events[i].Object}) {
				return
			}
			at++
			w.follower.Seen(at, window)
		}
	}
}

// send returns false where the watch ended first.
func (w *memoryWatch) send(ctx context.Context, e watch.Event) bool {
	if w.stopped.Load() {
		return false
	}
	// Mostly there is room, and asking for one channel is cheaper than for
	// three.
	select {
	case w.ch <- e:
		return true
	default:
	}
	select {
	case w.ch <- e:
		return true
	case <-w.stop:
		return false
	case <-ctx.Done():
		return false
	}
}
