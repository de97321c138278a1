package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
	"watchlab/impls"
	"watchlab/impls/merge"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// The periods of kubelet's tickers (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/kubelet.go).
const (
	syncPeriod         = time.Second
	housekeepingPeriod = 2 * time.Second
)

// kubelet is the kubelet pipeline: source → Reflector → UndeltaStore → channel
// → merge → sync loop, and, where static pods are asked for, the file and the
// http source → channel → merge as well. The sync loop's tickers run at kubelet's periods; its
// PLEG channel is there and silent, as no containers run.
type kubelet struct {
	name       string
	build      func() (merge.Merger, error)
	guarantees impls.Guarantees
	material   *material
	rate       pace.Pace
	stall      time.Duration

	score  *score
	src    source.Source
	merger merge.Merger
	static *staticPods

	listed uint64
	st     *stamps
	taps   *taps

	tellSource func()
	pods       *podManager
	loop       *SyncLoop
	judged     bool
	broken     violations
	stalled    error
}

var _ lab.Workload = (*kubelet)(nil)

func (w *kubelet) Setup(ctx context.Context) error {
	var err error
	w.score = w.material.score(w.rate)
	w.score.tellings()
	// What serves the source is of its stage, what the merger starts of its.
	profile.Do(ctx, stageSource, func(context.Context) { w.src, err = w.score.source() })
	if err != nil {
		return err
	}
	profile.Do(ctx, stageMerge, func(context.Context) { w.merger, err = w.build() })
	if err != nil {
		return err
	}
	w.st = newStamps(len(w.score.Events), w.rate.Paced(), StampsAll)
	w.st.budget = w.score.budget
	w.taps = newTaps(ctx, w.st, w.score)
	updates := w.merger.Updates()
	w.tellSource = w.taps.sourceTold(w.src)
	w.taps.depth(func() int { return len(updates) }, w.taps.meanSize(), w.tellSource)
	w.pods = newPodManager(w.st, w.score.Peak(), len(w.score.Events))
	if w.material.static > 0 {
		w.static, err = newStaticPods(w.material.static)
		w.pods.static = w.static
	}
	return err
}

func (w *kubelet) Run(ctx context.Context, rec *cell.Recorder) error {
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	playing, pushing := w.taps.tap(), w.taps.tap()
	w.pods.tap = w.taps.tap()
	defer func() {
		playing.close()
		pushing.close()
		w.pods.tap.close()
	}()
	defer wg.Wait()
	defer cancel()

	ch, err := channelOf(inner, w.merger, merge.APISource)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	syncTick, houseTick := time.NewTicker(syncPeriod), time.NewTicker(housekeepingPeriod)
	defer syncTick.Stop()
	defer houseTick.Stop()
	w.loop = &SyncLoop{
		ConfigCh:       w.merger.Updates(),
		PlegCh:         make(chan PodLifecycleEvent),
		SyncCh:         syncTick.C,
		HousekeepingCh: houseTick.C,
		Handler:        w.pods,
		Pods:           w.pods,
		Observer:       w.pods,
		SourcesReady:   w.merger.SeenAllSources,
	}
	wg.Go(func() { profile.Do(inner, stageSync, w.loop.Run) })
	if w.static != nil {
		if err := w.static.run(inner, &wg, w.merger); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}

	store := newPushStore(inner, w.st, ch, uint64(len(w.score.Events)))
	store.tap = pushing
	reflector := cache.NewReflectorWithOptions(w.src.ListerWatcher(), &v1.Pod{}, store, cache.ReflectorOptions{Name: "kubelet"})
	wg.Go(func() { profile.Do(inner, stageSource, reflector.RunWithContext) })
	if err := w.awaitOr(ctx, w.pods.ready, &w.pods.progress); err != nil || w.stalled != nil {
		return err
	}

	rec.Begin()
	p := pace.On(w.score.schedule)
	defer func() { _ = p.Close() }()
	stopChurn := func() error { return nil }
	if w.static != nil {
		stopChurn = w.static.churn()
	}
	p.Start(w.st.begin())
	release := func(seq uint64) {
		w.st.release(seq)
		playing.released(seq)
	}
	profile.Do(inner, stageSource, func(ctx context.Context) { err = w.src.Play(ctx, p, release) })
	if err == nil {
		err = w.awaitOr(ctx, store.pushedAll, &store.progress)
	}
	if err == nil && w.stalled == nil {
		// The merger takes this when it is done with the list before.
		select {
		case ch <- merge.PodUpdate{Pods: []*v1.Pod{lastPod}, Op: merge.ADD, Source: merge.APISource}:
			err = w.awaitOr(ctx, w.pods.finished, &w.pods.progress)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	rec.End()
	err = errors.Join(err, stopChurn())
	if err == nil && w.static != nil && w.stalled == nil {
		w.static.finish()
		err = w.awaitOr(ctx, w.static.settled, &w.static.progress)
	}
	cancel()
	wg.Wait()
	w.listed = store.listed
	if err != nil || w.stalled != nil {
		return err
	}
	w.report(rec)
	return nil
}

func (w *kubelet) awaitOr(ctx context.Context, done <-chan struct{}, progress *atomic.Uint64) error {
	return keepStall(await(ctx, done, progress, w.stall), &w.stalled)
}

func (w *kubelet) report(rec *cell.Recorder) {
	s := w.score.Storm
	relists := w.src.Relists()
	folds := w.guarantees.Coalesces != impls.CoalesceNone || relists > 0
	listed := uint64(0)
	if relists > 0 {
		listed = w.listed
	}
	broken, out := w.score.tellings().match(w.pods.notices, w.st, s, folds, listed)
	if n := w.loop.Errors(); n > 0 {
		broken.diverged.add("the sync loop could not dispatch %d updates", n)
	}
	if w.static != nil {
		w.static.judge(&broken)
		rec.Note("static-changes", float64(w.static.changes))
	}
	w.broken, w.judged = broken, true
	rec.Count(uint64(len(s.Events)-s.Initial), out)
	rec.Note("notifications", float64(len(w.pods.notices)))
	noteSource(rec, w.src, len(s.Events))
	stretches := []stretch{
		{ReleasedEnqueued, w.st.released, w.st.enqueued},
		{EnqueuedMerged, w.st.enqueued, w.st.popped},
		{MergedHandled, w.st.popped, w.st.handled},
	}
	w.st.report(rec, pace.On(w.score.schedule), s.Initial, stretches...)
	w.st.timeline(rec, s.Initial, w.st.popped)
	w.tellSource()
	w.taps.rest(stretches...)
	w.taps.journeys("merged", false)
}

// noteSource notes what the source has to tell.
func noteSource(rec *cell.Recorder, src source.Source, events int) {
	rec.Note("relists", float64(src.Relists()))
	if api, ok := src.(*source.APIServer); ok {
		rec.Note("wire-B/event", float64(api.Server().WireBytes())/float64(max(1, events)))
		if inj := api.Injector(); inj != nil {
			struck := 0
			for _, n := range inj.Counts() {
				struck += n
			}
			rec.Note("faults", float64(struck))
		}
	}
}

func (w *kubelet) Check() error {
	if w.stalled != nil {
		return fmt.Errorf("%w: %w", lab.ErrLost, w.stalled)
	}
	if !w.judged {
		return errors.New("the workload has not been run")
	}
	return w.broken.err()
}

func (w *kubelet) Teardown() error {
	var err error
	if w.src != nil {
		err = w.src.Close()
	}
	if w.merger != nil {
		w.merger.Close()
	}
	if w.static != nil {
		err = errors.Join(err, w.static.close())
		w.static = nil
	}
	w.src, w.merger, w.st, w.taps, w.pods = nil, nil, nil, nil, nil
	return err
}

// pushStore is what the Reflector writes to: client-go's UndeltaStore, which
// pushes the whole list to the merger's channel after every change, as
// kubelet's api source does (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/apiserver.go). It is the Reflector's goroutine alone that
// writes.
type pushStore struct {
	*cache.UndeltaStore
	st *stamps

	last      uint64
	pushedAll chan struct{}
	progress  atomic.Uint64

	listed uint64
	tap    *tap
}

var _ cache.ReflectorStore = (*pushStore)(nil)

func newPushStore(ctx context.Context, st *stamps, ch chan<- merge.PodUpdate, last uint64) *pushStore {
	push := func(objs []any) {
		pods := make([]*v1.Pod, 0, len(objs))
		for _, o := range objs {
			if pod, ok := o.(*v1.Pod); ok {
				pods = append(pods, pod)
			}
		}
		select {
		case ch <- merge.PodUpdate{Pods: pods, Op: merge.SET, Source: merge.APISource}:
		case <-ctx.Done():
		}
	}
	return &pushStore{
		UndeltaStore: cache.NewUndeltaStore(push, cache.MetaNamespaceKeyFunc),
		st:           st, last: last,
		pushedAll: make(chan struct{}),
	}
}

// pushed notes that a list with all up to seq has been pushed.
func (s *pushStore) pushed(seq uint64) {
	if before := s.progress.Swap(seq); seq >= s.last && before < s.last {
		close(s.pushedAll)
	}
}

func (s *pushStore) change(write func(any) error, obj any) error {
	if err := write(obj); err != nil {
		return err
	}
	seq := sequence(obj)
	s.st.enqueue(seq)
	s.tap.enqueued(seq)
	s.pushed(seq)
	return nil
}

func (s *pushStore) Add(obj any) error    { return s.change(s.UndeltaStore.Add, obj) }
func (s *pushStore) Update(obj any) error { return s.change(s.UndeltaStore.Update, obj) }
func (s *pushStore) Delete(obj any) error { return s.change(s.UndeltaStore.Delete, obj) }

func (s *pushStore) Replace(list []any, resourceVersion string) error {
	if err := s.UndeltaStore.Replace(list, resourceVersion); err != nil {
		return err
	}
	s.tap.replaced(len(list))
	s.listed = parseSequence(resourceVersion)
	s.pushed(s.listed)
	return nil
}
