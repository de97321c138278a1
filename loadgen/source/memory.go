package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

// ErrClosed is the error of lists and watches of a closed source.
var ErrClosed = errors.New("source is closed")

// window is the number of events that an unpaced [Memory] releases ahead of the slowest watch.
// It is also the capacity of a watch's channel. Each side wakes the other once per half window
// instead of once per event.
const window = 128

// Memory delivers the storm's events within the process, without copies or encoding. Each
// watch has one goroutine that sends to the watch's channel, as watch.Interface requires.
//
// A paced Play is an open loop: it releases on schedule, and events wait for a slow watch. An
// unpaced Play is a closed loop. It waits while there is no watch, or while the slowest watch
// is 128 events behind, not counting the 128 in its channel. Release times then depend on the
// watches, so latencies from them mean little.
//
// Lists are untyped. Limits are ignored, as in an API server's watch cache with version 0. Selectors
// are rejected. The only bookmark is the end of the initial events. Memory retains all events, so no
// version is too old.
type Memory struct {
	storm     *storm.Storm // Play releases it
	byKey     []int32      // indexes of all keys in order of key
	position  store.Position
	snapshots atomic.Int64   // requests for the whole state
	feeds     sync.WaitGroup // goroutines of watches; Go is called with mu held
	played    int            // released events; only Play uses it

	mu      sync.Mutex
	watches map[*memoryWatch]struct{} // running watches; nil after Close
}

// NewMemory returns the in-process source of a valid storm.
func NewMemory(s *storm.Storm) *Memory {
	m := &Memory{storm: s, watches: map[*memoryWatch]struct{}{}}
	keys := make([]string, s.Keys)
	for i := range s.Events {
		keys[s.Events[i].KeyIndex] = s.Events[i].Key
	}
	for i := range keys {
		m.byKey = append(m.byKey, int32(i))
	}
	slices.SortFunc(m.byKey, func(a, b int32) int { return strings.Compare(keys[a], keys[b]) })
	m.position.Raise(uint64(s.Initial))
	return m
}

// bounds returns the positions that a client may request.
func (m *Memory) bounds() store.Bounds {
	return store.Bounds{Visible: m.position.Visible(), First: uint64(m.storm.Initial)}
}

// state returns the object of every key that exists at a position, in order of key. O(position + keys).
func (m *Memory) state(at uint64) []runtime.Object {
	last := make([]runtime.Object, len(m.byKey))
	for i := range m.storm.Events[:at] {
		e := &m.storm.Events[i]
		if last[e.KeyIndex] = e.Object; e.Type == watch.Deleted {
			last[e.KeyIndex] = nil
		}
	}
	state := make([]runtime.Object, 0, len(last))
	for _, k := range m.byKey {
		if last[k] != nil {
			state = append(state, last[k])
		}
	}
	return state
}

// ListerWatcher lists and watches the source. It supports WatchList, which is the default of
// a ListerWatcher (client-go v0.37, util/watchlist.DoesClientNotSupportWatchListSemantics).
func (m *Memory) ListerWatcher() cache.ListerWatcher {
	return &cache.ListWatch{ListWithContextFunc: m.list, WatchFuncWithContext: m.watch}
}

// Relists returns the number of requests for the whole state after the first one.
func (m *Memory) Relists() int { return int(max(m.snapshots.Load()-1, 0)) }

// Ready does nothing.
func (m *Memory) Ready(*pace.Pacer) error { return nil }

// Play releases the next events; see [Source] and [Memory].
func (m *Memory) Play(ctx context.Context, p *pace.Pacer, upto uint64, released func(seq uint64, at time.Time)) error {
	unpaced := !p.Paced()
	events := m.storm.Events[m.storm.Initial:]
	for ; m.played < len(events) && events[m.played].Seq <= upto; m.played++ {
		if err := p.Wait(ctx, m.played); err != nil {
			return err
		}
		if unpaced {
			if err := m.position.WaitRoom(ctx, window); err != nil {
				return err
			}
		}
		seq := events[m.played].Seq
		if released != nil {
			released(seq, time.Time{})
		}
		m.position.Raise(seq)
	}
	return nil
}

// Disconnect ends all watches; see [Source].
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

// check rejects options that a memory source does not support.
func (m *Memory) check(opts metav1.ListOptions) error {
	m.mu.Lock()
	closed := m.watches == nil
	m.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case opts.LabelSelector != "" || opts.FieldSelector != "" || opts.Continue != "":
		return apierrors.NewBadRequest("the memory source has no selectors and no continue")
	}
	return nil
}

func (m *Memory) list(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := m.check(opts); err != nil {
		return nil, err
	}
	at, err := m.bounds().ListAt(opts.ResourceVersion, opts.ResourceVersionMatch)
	if err != nil {
		return nil, err
	}
	list := &metainternalversion.List{Items: m.state(at)}
	list.ResourceVersion = strconv.FormatUint(at, 10)
	m.snapshots.Add(1)
	return list, nil
}

func (m *Memory) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := m.check(opts); err != nil {
		return nil, err
	}
	start, err := m.bounds().Start(opts.ResourceVersion, opts.SendInitialEvents, opts.AllowWatchBookmarks)
	if err != nil {
		return nil, err
	}
	w := &memoryWatch{memory: m, start: start, ch: make(chan watch.Event, window)}
	if start.Mark {
		if w.mark, err = m.bookmark(start.At); err != nil {
			return nil, fmt.Errorf("storm %s: %w", m.storm.Name, err)
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
	w.follower = m.position.Follow(start.At)
	w.ctx, w.stop = context.WithCancel(ctx)
	m.feeds.Go(w.feed)
	return w, nil
}

// bookmark returns the bookmark at the end of the initial events: an object of the storm's type, which a Reflector
// compares, with a version and the annotation.
func (m *Memory) bookmark(at uint64) (runtime.Object, error) {
	if len(m.storm.Events) == 0 {
		return nil, errors.New("no object has a type")
	}
	o := m.storm.Events[0].Object.DeepCopyObject()
	acc, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	acc.SetResourceVersion(strconv.FormatUint(at, 10))
	acc.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return o, nil
}

type memoryWatch struct {
	memory   *Memory
	follower *store.Follower
	start    store.Start
	mark     runtime.Object // sent after the initial events if start.Mark is set
	ch       chan watch.Event
	ctx      context.Context
	stop     context.CancelFunc // ends ctx and with it the watch
}

// Stop ends the watch. Its channel closes soon afterwards.
func (w *memoryWatch) Stop() { w.stop() }

// ResultChan returns the channel of events.
func (w *memoryWatch) ResultChan() <-chan watch.Event { return w.ch }

// feed sends the watch's events until the watch stops.
func (w *memoryWatch) feed() {
	m := w.memory
	defer func() {
		w.stop()
		w.follower.Close()
		m.mu.Lock()
		delete(m.watches, w)
		m.mu.Unlock()
		close(w.ch)
	}()
	if w.start.State {
		for _, o := range m.state(w.start.At) {
			if !w.send(watch.Event{Type: watch.Added, Object: o}) {
				return
			}
		}
		if w.start.Mark && !w.send(watch.Event{Type: watch.Bookmark, Object: w.mark}) {
			return
		}
	}
	at := w.start.At
	for {
		upto := w.follower.Poll()
		if upto <= at {
			select {
			case <-w.follower.Wake():
			case <-w.ctx.Done():
				return
			}
			continue
		}
		events := m.storm.Events[at:upto]
		for i := range events {
			if !w.send(watch.Event{Type: events[i].Type, Object: events[i].Object}) {
				return
			}
			at++
			w.follower.Seen(at, window)
		}
	}
}

// send returns false if the watch ends first.
func (w *memoryWatch) send(e watch.Event) bool {
	if w.ctx.Err() != nil {
		return false
	}
	// The channel usually has room, and a select with one channel is cheaper than one with two.
	select {
	case w.ch <- e:
		return true
	default:
	}
	select {
	case w.ch <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}
