package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
	telemetry "watchlab/bench/telemetry/probe"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// informer is the informer pipeline: client-go's own controller with the
// variant as its queue, an indexer with a namespace index, a handler that adds
// keys to a client-go workqueue, and one worker that looks each key up.
//
// In-order variants get no KnownObjects, as informers have it by default today;
// per-key variants get the indexer, as informers had it.
type informer struct {
	name       string
	build      func(known cache.KeyListerGetter) (deltafifo.Queue, error)
	guarantees impls.Guarantees
	load       load
	material   *material
	rate       pace.Pace
	stall      time.Duration

	open bool

	score   *score
	src     source.Source
	st      *stamps
	log     *ledger
	indexer cache.Indexer
	queue   *entrance
	process *processor
	worker  *worker
	taps    *taps

	tellSource func()

	readers *readers
	control cache.Controller

	expiry  *expiry
	markErr error
	verdict *judge
	stalled error
}

var _ lab.Workload = (*informer)(nil)

func (w *informer) Setup(ctx context.Context) error {
	var err error
	w.score = w.material.score(w.rate)
	w.score.keys()
	w.score.final()
	// What serves the source is of its stage, too.
	profile.Do(ctx, stageSource, func(context.Context) { w.src, err = w.score.source() })
	if err != nil {
		return err
	}
	events := len(w.score.Events)
	w.st = newStamps(events, w.rate.Paced(), w.load.stamps)
	w.st.budget = w.score.budget
	w.taps = newTaps(ctx, w.st, w.score)
	if err := w.assemble(events, w.score.Initial, w.score.Events[0].Object); err != nil {
		return err
	}
	if w.load.readers > 0 {
		w.readers = newReaders(w.load.readers, w.indexer, w.score.Storm, w.st)
	}
	w.queue.last.Store(uint64(events))
	w.taps.informs(&w.process.newest)
	w.tellSource = w.taps.sourceTold(w.src)
	u := newUpstream(ctx, w.taps, w.score)
	w.process.upstream, w.worker.upstream = u, u
	w.taps.depth(w.queue.Len, w.taps.meanSize(), w.tellSource, u.look(w.st, w.queue, &w.process.newest, w.worker.queue))
	return nil
}

// assemble builds the pipeline for so many events of objects like the one given,
// the first of them an initial list.
func (w *informer) assemble(events, initial int, like runtime.Object) error {
	w.log = newLedger(w.st, events)
	w.indexer = cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	q, err := w.build(w.indexer)
	if err != nil {
		return err
	}
	w.queue = &entrance{Queue: q, st: w.st, taps: w.taps}
	w.worker = newWorker(w.st, w.indexer, newHandling(w.load.cost), events, initial)
	w.process = &processor{
		indexer: w.indexer, handler: w.worker, log: w.log,
		done: make(chan struct{}), seen: make([]bool, events+1),
	}
	lw := w.src.ListerWatcher()
	if w.score != nil && slices.ContainsFunc(w.score.Marks, isRelist) {
		if w.expiry = newExpiry(w.src); w.expiry != nil {
			lw = w.expiry
		}
	}
	w.control = cache.New(&cache.Config{
		Queue:         w.queue.withBatch(),
		ListerWatcher: lw,
		ObjectType:    like,
		Process:       w.process.Process,
		ProcessBatch:  w.process.ProcessBatch,
	})
	return nil
}

func (w *informer) Run(ctx context.Context, rec *cell.Recorder) error {
	p := pace.On(w.score.schedule)
	defer func() { _ = p.Close() }()
	played, err := w.run(ctx, rec, func(ctx context.Context) error {
		tap := w.taps.tap()
		defer tap.close()
		release := func(seq uint64) {
			w.st.release(seq)
			tap.released(seq)
		}
		p.Start(w.st.begin())
		if len(w.score.Marks) == 0 {
			return w.src.Play(ctx, p, release)
		}
		marks := &marker{marks: w.score.Marks, play: w.mark}
		return w.src.Play(ctx, p, func(seq uint64) {
			marks.before(seq)
			release(seq)
		})
	})
	if played {
		w.report(rec, p)
	}
	return err
}

// mark plays a mark of the storm. A resync is called from another goroutine than
// the Reflector's stream, as client-go does.
func (w *informer) mark(m storm.Mark) {
	switch {
	case m.Type == storm.MarkResync:
		if err := w.queue.Resync(); err != nil && w.markErr == nil {
			w.markErr = fmt.Errorf("%s: Resync: %w", w.name, err)
		}
	case w.expiry != nil:
		w.expiry.expire()
		w.taps.expired()
	}
}

// run runs the pipeline while play releases the events, and until all have been
// worked on. It returns false where there is nothing to report: there was an
// error, or the initial list didn't come through.
func (w *informer) run(ctx context.Context, rec *cell.Recorder, play func(context.Context) error) (played bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	var controller, worker sync.WaitGroup
	w.queue.tap, w.process.tap, w.worker.tap = w.taps.tap(), w.taps.tap(), w.taps.tap()
	defer func() {
		w.queue.tap.close()
		w.process.tap.close()
		w.worker.tap.close()
	}()
	defer worker.Wait()
	defer w.worker.queue.ShutDown()
	defer controller.Wait()
	defer cancel()
	defer w.worker.handling.on.Store(false)
	w.process.stages = profile.Switch(inner, stagePop, stageStore, stageHandle)
	worker.Go(func() { profile.Do(inner, stageWork, func(context.Context) { w.worker.run() }) })
	// The Reflector is the controller's child, and of this stage; the controller's
	// own goroutine is the one that processes, and says so when it begins to.
	controller.Go(func() { profile.Do(inner, stageSource, w.control.RunWithContext) })

	for _, done := range []<-chan struct{}{w.control.HasSyncedChecker().Done(), w.worker.ready} {
		if err := w.awaitOr(ctx, done, &w.worker.progress); err != nil || w.stalled != nil {
			return false, err
		}
	}

	w.worker.handling.on.Store(true)
	rec.Begin()
	if w.readers != nil {
		w.readers.start(inner)
	}
	profile.Do(ctx, stageSource, func(ctx context.Context) { err = play(ctx) })
	if err == nil {
		err = w.awaitOr(ctx, w.process.done, w.log.progress)
	}
	// The worker takes what is left, and ends.
	w.worker.queue.ShutDown()
	if err == nil {
		worker.Wait()
	}
	if w.readers != nil {
		w.readers.stop()
	}
	rec.End()
	w.worker.handling.on.Store(false)
	cancel()
	controller.Wait()
	if w.readers != nil {
		err = errors.Join(err, w.readers.wait())
	}
	if err != nil {
		return false, err
	}
	if w.markErr != nil {
		return false, w.markErr
	}
	if w.process.err != nil {
		return false, fmt.Errorf("%s: %w", w.name, w.process.err)
	}
	return true, nil
}

// awaitOr waits; that the pipeline stood still is for Check to tell. Where the
// source was listed again, events may have been skipped or come twice, so that
// counting doesn't tell the end; then it is over when the queue has taken all
// and is empty. So it is where it was not known beforehand how many events there
// are.
func (w *informer) awaitOr(ctx context.Context, done <-chan struct{}, progress *atomic.Uint64) error {
	err := awaitSettled(ctx, done, progress, w.stall, w.settled)
	if err == nil && w.src.Relists() > 0 && !w.open {
		err = awaitSettled(ctx, nil, progress, w.stall, w.settled)
	}
	return keepStall(err, &w.stalled)
}

func (w *informer) settled() bool {
	if w.open && w.process.newest.Load() < w.queue.last.Load() {
		return false
	}
	return (w.open || w.src.Relists() > 0) && w.queue.tookAll() && w.queue.Len() == 0
}

func (w *informer) report(rec *cell.Recorder, p *pace.Pacer) {
	s := w.score.Storm
	relists := w.src.Relists()
	w.verdict = w.log.judge(s, w.score.keys(), promise{
		total:    w.guarantees.Order == impls.OrderTotal,
		latest:   w.guarantees.Coalesces == impls.CoalesceLatest,
		relisted: relists > 0,
		listed:   w.queue.listed.Load(),
	})
	if relists > 0 {
		completeByKey(s, w.st.popped, false)
		completeByKey(s, w.st.stored, false)
	}
	w.worker.judge(&w.verdict.v, s, w.score.keys())
	w.compareState(&w.verdict.v)
	rec.Count(uint64(len(s.Events)-s.Initial), w.verdict.out)
	rec.Note("hand-overs", float64(len(w.log.ends)))
	rec.Note("worked", float64(len(w.worker.log)))
	noteSource(rec, w.src, len(s.Events))
	stretches := []stretch{
		{ReleasedEnqueued, w.st.released, w.st.enqueued},
		{EnqueuedPopped, w.st.enqueued, w.st.popped},
	}
	if w.st.every {
		stretches = append(stretches,
			stretch{PoppedStored, w.st.popped, w.st.stored},
			stretch{StoredHandled, w.st.stored, w.st.handled},
		)
	}
	// Before the events' own, of which the last-named speaks for an unpaced cell.
	w.reportReaders(rec)
	w.st.report(rec, p, s.Initial, stretches...)
	w.st.timeline(rec, s.Initial, w.st.popped)
	if w.tellSource != nil {
		w.tellSource()
	}
	w.taps.rest(stretches...)
	w.taps.journeys("popped", true)
}

// reportReaders tells what was looked up and listed, and how far behind the source
// that was, where every event was stamped.
func (w *informer) reportReaders(rec *cell.Recorder) {
	var fresh *freshness
	if w.st.every {
		fresh = freshnessOf(w.st, w.score.Initial)
		w.worker.staleness(fresh).report(rec)
	}
	if w.readers != nil {
		w.readers.report(rec, fresh)
	}
}

// compareState compares what the indexer holds with what the storm left.
func (w *informer) compareState(v *violations) {
	final := w.score.final()
	for key, seq := range final {
		switch obj, ok, err := w.indexer.GetByKey(key); {
		case err != nil || !ok:
			v.diverged.add("%s is not in the indexer", key)
		case sequence(obj) != seq:
			v.diverged.add("%s is in the indexer as event %d left it, not event %d", key, sequence(obj), seq)
		}
	}
	for _, key := range w.indexer.ListKeys() {
		if _, ok := final[key]; !ok {
			v.diverged.add("%s is in the indexer and was deleted", key)
		}
	}
}

func (w *informer) Check() error {
	var err error
	if w.stalled != nil {
		err = fmt.Errorf("%w: %w", lab.ErrLost, w.stalled)
	}
	switch {
	case w.verdict != nil:
		err = errors.Join(err, w.verdict.v.err())
	case err == nil:
		err = errors.New("the workload has not been run")
	}
	return err
}

func (w *informer) Teardown() error {
	if w.queue != nil {
		w.queue.Close()
	}
	var err error
	if w.src != nil {
		err = w.src.Close()
	}
	w.src, w.control, w.queue, w.process, w.worker, w.readers, w.indexer, w.log, w.st, w.taps = nil, nil, nil, nil, nil, nil, nil, nil, nil, nil
	return err
}

// entrance stamps what a Reflector puts into the queue.
type entrance struct {
	deltafifo.Queue
	st   *stamps
	taps *taps

	tap *tap

	last, newest atomic.Uint64

	listed atomic.Uint64
}

var _ cache.ReflectorBookmarkStore = (*entrance)(nil)

func (e *entrance) took(kind telemetry.Type, obj any) {
	seq := sequence(obj)
	e.st.enqueue(seq)
	e.tap.entered(kind, seq)
	e.upTo(seq)
}

// upTo is called by the Reflector's goroutine alone.
func (e *entrance) upTo(seq uint64) {
	if seq > e.newest.Load() {
		e.newest.Store(seq)
	}
}

// tookAll reports whether the queue has the last event.
func (e *entrance) tookAll() bool {
	last := e.last.Load()
	return last > 0 && e.newest.Load() >= last
}

func (e *entrance) Add(obj any) error {
	err := e.Queue.Add(obj)
	e.took(telemetry.Added, obj)
	return err
}

func (e *entrance) Update(obj any) error {
	err := e.Queue.Update(obj)
	e.took(telemetry.Modified, obj)
	return err
}

func (e *entrance) Delete(obj any) error {
	err := e.Queue.Delete(obj)
	e.took(telemetry.Deleted, obj)
	return err
}

func (e *entrance) Replace(list []any, resourceVersion string) error {
	err := e.Queue.Replace(list, resourceVersion)
	seq := parseSequence(resourceVersion)
	e.listed.Store(seq)
	e.tap.replaced(len(list))
	e.upTo(seq)
	return err
}

// Bookmark passes a bookmark on where the queue takes them.
func (e *entrance) Bookmark(resourceVersion string) error {
	if q, ok := e.Queue.(cache.ReflectorBookmarkStore); ok {
		return q.Bookmark(resourceVersion)
	}
	return nil
}

// withBatch returns the entrance with a batch path where the queue has one, as
// a controller looks for it by type.
func (e *entrance) withBatch() cache.Queue {
	if q, ok := e.Queue.(deltafifo.BatchQueue); ok {
		return &batchEntrance{e, q}
	}
	return e
}

type batchEntrance struct {
	*entrance
	batch deltafifo.BatchQueue
}

var _ cache.QueueWithBatch = (*batchEntrance)(nil)

func (e *batchEntrance) PopBatch(batch cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	return e.batch.PopBatch(batch, single)
}
