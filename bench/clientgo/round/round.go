// Package round plays a storm through the shared informer of the client-go that the program is
// built with, and measures it as package lab does. It imports only what compiles with every
// supported minor; feature gates are set by the environment (KUBE_FEATURE_…).
//
//  1. [Request] names the storm and the number of events.
//  2. [Request.Play] builds the storm, plays a part of it as warm-up and then all of it.
//  3. The check finds lost, duplicated and reordered events, and a final state that differs.
package round

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	object "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/loadgen/storm"
)

// UnitRetained is the growth of the live heap from the initial list to the last event, with
// the informer still running. The objects of the storm do not count: they live before.
const UnitRetained = "retained-B"

const (
	window    = 128  // events in the channel of the watch, which is a closed loop
	warmUp    = 2000 // events after the initial list
	seed      = 1    // of the storm
	stallTime = 30 * time.Second
)

// Request is one round. Its JSON form is what the lab writes to the program.
type Request struct {
	Storm  string `json:"storm"`  // profile
	Pods   int    `json:"pods"`   // of the initial list
	Events int    `json:"events"` // after the initial list; 0 measures the initial list
}

// Play plays the round. The error wraps the broken invariants of package lab.
func (r Request) Play(ctx context.Context) (cell.Result, error) {
	profile, err := storm.NewProfile(r.Storm)
	if err != nil {
		return cell.Result{}, err
	}
	profile.Resize(0, r.Pods, 0)
	set, err := profile.Set(seed)
	if err != nil {
		return cell.Result{}, err
	}
	s := set.Storms[0]
	if n := s.Initial + max(r.Events, warmUp); len(s.Events) < n {
		s = s.AtLeast(n)
	}
	s = s.Fresh(false)
	warm := workload{storm: s.First(s.Initial + warmUp)}
	if _, err := warm.playOnce(ctx, new(cell.Recorder)); err != nil {
		return cell.Result{}, fmt.Errorf("warm-up: %w", err)
	}
	measured := workload{storm: s.First(s.Initial + r.Events)}
	return measured.playOnce(ctx, &cell.Recorder{Alone: true})
}

// workload is one play of a storm through an informer. A storm with nothing after the initial list
// measures that list.
type workload struct {
	storm *storm.Storm

	informer cache.SharedIndexInformer
	stream   chan watch.Event // of the watch
	handler
}

func (w *workload) playOnce(ctx context.Context, rec *cell.Recorder) (cell.Result, error) {
	c := lab.Cell{Name: "Informer", New: func() (lab.Workload, error) { return w, nil }}
	return lab.PlayCell(ctx, []lab.Comparison{{Cells: []lab.Cell{c}}}, c.BenchName(), rec)
}

func (w *workload) Setup(context.Context) error {
	w.stream = make(chan watch.Event, window)
	w.handler = newHandler(w.storm)
	w.informer = cache.NewSharedIndexInformer(w.listWatch(), w.storm.Events[0].Object, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	_, err := w.informer.AddEventHandler(&w.handler)
	return err
}

func (w *workload) Run(ctx context.Context, rec *cell.Recorder) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	live := liveHeap()
	onlyList := w.storm.Initial == len(w.storm.Events)
	if onlyList {
		rec.Begin()
	}
	go func() {
		defer close(ended)
		w.informer.Run(ctx.Done())
	}()
	err := w.await(ctx, w.listed, "the initial list")
	if err == nil && !onlyList {
		live = liveHeap()
		rec.Begin()
		err = w.play(ctx)
	}
	if err == nil {
		err = w.await(ctx, w.done, "the last event")
	}
	rec.End()
	retained := liveHeap() - live
	cancel()
	<-ended
	if err != nil {
		return err
	}
	n := uint64(len(w.storm.Events) - w.storm.Initial)
	if onlyList {
		n = uint64(w.storm.Initial)
	}
	rec.Count(n, n)
	rec.Note(UnitRetained, max(0, retained))
	return nil
}

// liveHeap returns the bytes of the heap after a collection.
func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// play releases the events after the initial list.
func (w *workload) play(ctx context.Context) error {
	timeout := time.NewTimer(stallTime)
	defer timeout.Stop()
	for _, e := range w.storm.Events[w.storm.Initial:] {
		select {
		case w.stream <- watch.Event{Type: e.Type, Object: e.Object}:
		case <-timeout.C:
			return fmt.Errorf("%w: event %d was not taken within %v", lab.ErrLost, e.Seq, stallTime)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *workload) await(ctx context.Context, done <-chan struct{}, what string) error {
	timeout := time.NewTimer(stallTime)
	defer timeout.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C:
		return fmt.Errorf("%w: %s did not arrive within %v", lab.ErrLost, what, stallTime)
	}
}

// Check compares what the handler saw, and the store, with the storm.
func (w *workload) Check() error {
	stored := map[string]uint64{}
	for _, o := range w.informer.GetStore().List() {
		m := o.(metav1.Object) // The handler had it before.
		stored[storm.ObjectKey(m.GetNamespace(), m.GetName())] = sequence(o)
	}
	err := w.broken
	if !maps.Equal(stored, w.storm.Final()) {
		err = errors.Join(err, fmt.Errorf("%w: the store has %d objects that are not those after the last event", lab.ErrDiverged, len(stored)))
	}
	return err
}

func (w *workload) Teardown() error { return nil }

// listWatch lists and watches the storm within the process. It supports WatchList. client-go v0.31 has
// only the functions without a context.
//
//nolint:staticcheck // see above
func (w *workload) listWatch() cache.ListerWatcher {
	initial := w.storm.Events[:w.storm.Initial]
	version := strconv.Itoa(w.storm.Initial)
	return &cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (object.Object, error) {
			list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: make([]object.RawExtension, len(initial))}
			for i := range initial {
				list.Items[i].Object = initial[i].Object
			}
			return list, nil
		},
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			watcher := watch.NewProxyWatcher(w.stream)
			if o.SendInitialEvents == nil || !*o.SendInitialEvents {
				return watcher, nil
			}
			end := w.storm.Events[0].Object.DeepCopyObject()
			m, err := meta.Accessor(end)
			if err != nil {
				return nil, err
			}
			m.SetResourceVersion(version)
			m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			go func() {
				for i := range initial {
					select {
					case w.stream <- watch.Event{Type: watch.Added, Object: initial[i].Object}:
					case <-watcher.StopChan():
						return
					}
				}
				select {
				case w.stream <- watch.Event{Type: watch.Bookmark, Object: end}:
				case <-watcher.StopChan():
				}
			}()
			return watcher, nil
		},
	}
}
