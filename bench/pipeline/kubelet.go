package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/pprof"
	"watchlab/impls/merge"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// kubelet is the kubelet pipeline: source → Reflector → UndeltaStore → channel → merge → sync loop.
// With static pods, the file and http sources have channels to the merger too.
type kubelet struct {
	merging
	src    source.Source
	static *staticPods // kubelet's other sources; nil without static pods
	loop   *syncLoop
	listed uint64 // version of the last list
}

func (k *kubelet) setup(ctx context.Context, w *workload) (err error) {
	// The goroutines of the source carry the label of its stage.
	pprof.Do(ctx, stageSource, func(ctx context.Context) { k.src, err = w.score.source(ctx) })
	if err != nil {
		return err
	}
	w.source = k.src
	w.cleanup(k.src.Close)
	w.telemetry.source(k.src)
	if err := k.start(ctx, w); err != nil {
		return err
	}
	k.loop = newSyncLoop(k.merger, w.st, k.notices, w.score.Peak())
	if w.material.Static > 0 {
		if k.static, err = newStaticPods(w.material.Static); err != nil {
			return err
		}
		k.loop.static = k.static
		w.cleanup(k.static.close)
	}
	return nil
}

func (k *kubelet) play(ctx context.Context, w *workload, rec *cell.Recorder) (err error) {
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	ch, err := channelOf(inner, k.merger, merge.APISource)
	if err != nil {
		return err
	}
	syncTick, houseTick := time.NewTicker(syncPeriod), time.NewTicker(housekeepingPeriod)
	defer syncTick.Stop()
	defer houseTick.Stop()
	k.loop.syncTick, k.loop.housekeepingTick = syncTick.C, houseTick.C
	wg.Go(func() { pprof.Do(inner, stageSync, k.loop.run) })
	if k.static != nil {
		if err := k.static.run(inner, &wg, k.merger); err != nil {
			return err
		}
	}

	store := newPushStore(inner, w.st, ch, uint64(len(w.score.Events)))
	reflector := cache.NewReflectorWithOptions(k.src.ListerWatcher(), &v1.Pod{}, store, cache.ReflectorOptions{Name: "kubelet"})
	wg.Go(func() { pprof.Do(inner, stageSource, reflector.RunWithContext) })
	received := k.notices.published.Load
	if err := w.await(ctx, k.notices.first, received); err != nil {
		return err
	}

	p := pace.On(w.score.schedule)
	defer func() { _ = p.Close() }()
	if err := k.src.Ready(p); err != nil {
		return err
	}
	rec.Begin()
	stopChurn := func() error { return nil }
	if k.static != nil {
		stopChurn = k.static.churn()
	}
	p.Start(w.st.begin())
	pprof.Do(inner, stageSource, func(ctx context.Context) { err = k.src.Play(ctx, p, uint64(len(w.score.Events)), w.st.releaseAt) })
	if err == nil {
		err = w.await(ctx, store.pushedAll, store.progress.Load)
	}
	if err == nil {
		// The channel is unbuffered: the merger takes lastPod after it has merged the
		// previous list.
		if err = send(ctx, ch, merge.ADD, []*v1.Pod{lastPod}); err == nil {
			err = w.await(ctx, k.notices.last, received)
		}
	}
	rec.End()
	err = errors.Join(err, stopChurn())
	if err == nil && k.static != nil {
		err = await(ctx, nil, k.static.progress.Load, w.stall, k.static.settled)
	}
	cancel()
	wg.Wait()
	k.listed = store.listed
	return err
}

func (k *kubelet) check(w *workload, rec *cell.Recorder) outcome {
	if k.src.Relists() == 0 {
		k.listed = 0
	}
	o := k.match(w, rec, k.listed)
	if n := k.loop.errors; n > 0 {
		o.broken[diverged].add("the sync loop could not dispatch %d updates", n)
	}
	if k.static != nil {
		k.static.check(&o.broken)
		rec.Note("static-changes", float64(k.static.changes))
	}
	noteSource(rec, k.src, len(w.score.Events))
	o.intervals = append(o.intervals, interval{MergedHandled, w.st.popped, w.st.handled})
	return o
}

func noteSource(rec *cell.Recorder, src source.Source, events int) {
	rec.Note("relists", float64(src.Relists()))
	if api, ok := src.(*source.APIServer); ok {
		c, _ := api.Refresh() // A lost process has failed the play.
		rec.Note("wire-B/event", float64(c.WireBytes)/float64(max(1, events)))
		if c.Faults != nil {
			struck := 0
			for _, n := range c.Faults {
				struck += n
			}
			rec.Note("faults", float64(struck))
		}
	}
}

// pushStore is the Reflector's store: client-go's UndeltaStore. It pushes the whole list to the
// merger's channel after every change, as kubelet's api source does (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/apiserver.go). Only the Reflector's goroutine writes.
type pushStore struct {
	*cache.UndeltaStore
	st        *stamps
	last      uint64        // the storm's last event
	pushedAll chan struct{} // closed when a list that includes it was pushed
	progress  atomic.Uint64 // newest pushed event; other goroutines read it
	listed    uint64        // version of the last list
	changing  uint64        // event whose list is pushed; 0 for a list
}

var _ cache.ReflectorStore = (*pushStore)(nil)

func newPushStore(ctx context.Context, st *stamps, ch chan<- merge.PodUpdate, last uint64) *pushStore {
	s := &pushStore{st: st, last: last, pushedAll: make(chan struct{})}
	push := func(objs []any) {
		pods := make([]*v1.Pod, 0, len(objs))
		for _, o := range objs {
			if pod, ok := o.(*v1.Pod); ok {
				pods = append(pods, pod)
			}
		}
		st.call(s.changing)
		_ = send(ctx, ch, merge.SET, pods) // an error ends the round
	}
	s.UndeltaStore = cache.NewUndeltaStore(push, cache.MetaNamespaceKeyFunc)
	return s
}

// pushed records that a list with all events up to seq was pushed.
func (s *pushStore) pushed(seq uint64) {
	if before := s.progress.Swap(seq); seq >= s.last && before < s.last {
		close(s.pushedAll)
	}
}

func (s *pushStore) change(write func(any) error, obj any) error {
	seq := sequence(obj)
	s.changing = seq
	if err := write(obj); err != nil {
		return err
	}
	s.st.enqueue(seq)
	s.pushed(seq)
	return nil
}

func (s *pushStore) Add(obj any) error    { return s.change(s.UndeltaStore.Add, obj) }
func (s *pushStore) Update(obj any) error { return s.change(s.UndeltaStore.Update, obj) }
func (s *pushStore) Delete(obj any) error { return s.change(s.UndeltaStore.Delete, obj) }

func (s *pushStore) Replace(list []any, resourceVersion string) error {
	s.changing = 0
	if err := s.UndeltaStore.Replace(list, resourceVersion); err != nil {
		return err
	}
	s.st.replace(list)
	s.listed = parseSequence(resourceVersion)
	s.pushed(s.listed)
	return nil
}
