package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/pprof"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// ClientGoInformer names the variant of the informer pipeline that is client-go's
// own cache.NewSharedIndexInformer. The others are impls/informer.
const ClientGoInformer = "clientgo-informer"

// informerStages is the informer pipeline: a shared informer, a handler that adds
// keys to a workqueue, and one worker that looks each key up.
type informerStages struct {
	variant   string // a queue's, or ClientGoInformer
	decoder   string // of a [stack]; empty for that of the wire
	opts      deltafifo.Options
	store     string // see [Config.stagesOf]
	workqueue string // as store
	open      bool   // the number of events is not known in advance
	w         *workload
	src       source.Source
	handling  *handling
	worker    *worker
	handler   *handler
	informer  cache.SharedIndexInformer
	readers   *readers      // nil without [Config.Readers]
	expire    func()        // lets the Reflector's watch expire; nil for a storm without relists
	recorder  *recorder     // nil for client-go's own informer, whose queue is hidden
	last      atomic.Uint64 // last event of the storm; 0 until it is known
	newest    atomic.Uint64 // newest event that the queue took
	resyncErr error         // joined errors of the storm's resyncs
	listed    time.Duration // from the start of the informer until its store has the initial list
}

func (f *informerStages) setup(ctx context.Context, w *workload) (err error) {
	w.score.keys()
	w.score.final()
	// The goroutines that serve a source belong to its stage.
	pprof.Do(ctx, stageSource, func(ctx context.Context) { f.src, err = w.score.source(ctx) })
	if err != nil {
		return err
	}
	w.source = f.src
	w.cleanup(f.src.Close)
	if api, ok := f.src.(*source.APIServer); ok && f.decoder != "" {
		if err := api.SetDecoder(f.decoder); err != nil {
			return err
		}
	}
	like, err := w.st.observe(ctx, f.src, w.score.Events[0].Object)
	if err != nil {
		return err
	}
	events := len(w.score.Events)
	f.handling = newHandling(w.material.HandlerCost)
	if err := f.assemble(ctx, w, events, like); err != nil {
		return err
	}
	if n := w.material.Readers; n > 0 {
		f.readers = newReaders(n, f.informer.GetIndexer(), w.score.Storm, w.st)
	}
	f.last.Store(uint64(events))
	return nil
}

// assemble builds the pipeline for a number of events. like has the type of the objects.
func (f *informerStages) assemble(ctx context.Context, w *workload, events int, like runtime.Object) error {
	f.w = w
	var opts workqueue.Options[string]
	if all, name := w.telemetry.upstream(); all != nil {
		opts.Name, opts.MetricsProvider = name, all
		all.NewRetriesMetric(name) // This queue has no retries.
	}
	queue, err := workqueue.New(cmp.Or(f.workqueue, defaultWorkqueue), opts)
	if err != nil {
		return err
	}
	w.cleanupFunc(queue.ShutDown)
	f.handler = newHandler(w.st, f.handling, queue, events)
	f.worker = newWorker(w.st, queue, events)
	lw := f.src.ListerWatcher()
	if s := w.score; s != nil && slices.ContainsFunc(s.Marks, isRelist) {
		lw, f.expire = expiring(f.src)
	}
	if err := f.build(ctx, events, lw, like); err != nil {
		return err
	}
	f.worker.indexer = f.informer.GetIndexer()
	if _, err := f.informer.AddEventHandler(f.handler); err != nil {
		return err
	}
	if w.telemetry != nil {
		w.telemetry.work = newTail(&f.worker.log, &f.worker.worked)
		w.telemetry.source(f.src)
		log := f.handler.log
		if f.recorder != nil {
			log = f.recorder.log
		}
		w.telemetry.informer()
		w.telemetry.backlogs, _ = f.informer.(informer.BacklogReporter)
		w.telemetry.queue(f.waiting, log)
	}
	return nil
}

func (f *informerStages) waiting() int {
	if f.recorder == nil || f.recorder.queue.Load() == nil {
		return 0
	}
	return (*f.recorder.queue.Load()).Len()
}

// build builds the informer and installs the stamps.
func (f *informerStages) build(ctx context.Context, events int, lw cache.ListerWatcher, like runtime.Object) (err error) {
	st := f.w.st
	byNamespace := cache.MetaNamespaceIndexFunc
	if f.variant == ClientGoInformer {
		if st.every {
			byNamespace = func(obj any) ([]string, error) {
				// client-go calls an index function while it stores an object.
				f.stampStored(sequence(obj))
				return cache.MetaNamespaceIndexFunc(obj)
			}
			f.handler.deleted = f.stampStored
		}
		f.informer = cache.NewSharedIndexInformer(lw, like, 0, cache.Indexers{cache.NamespaceIndex: byNamespace})
		return f.informer.SetTransform(func(obj any) (any, error) {
			seq := sequence(obj)
			// A relist transforms objects that the queue already had.
			if seq < uint64(len(st.enqueued)) && st.enqueued[seq] == 0 {
				st.enqueue(seq)
			}
			f.took(seq)
			return obj, nil
		})
	}
	f.recorder = &recorder{informerStages: f, log: newDeliveryLog(st, events), stages: pprof.Switch(ctx, stagePop, stageStore)}
	f.informer, err = informer.New(lw, like, informer.Options{
		Variant: f.variant, Queue: f.opts, Unthrottled: !f.opts.Throttle, Indexers: cache.Indexers{cache.NamespaceIndex: byNamespace},
		Store: f.store, WrapQueue: f.recorder.wrapQueue, WrapIndexer: f.recorder.wrapIndexer,
	})
	return err
}

// stampStored stamps an event at its first store.
func (f *informerStages) stampStored(seq uint64) {
	if stored := f.w.st.stored; seq > 0 && seq < uint64(len(stored)) && stored[seq] == 0 {
		f.w.st.put(&stored[seq])
	}
}

// took records, on the Reflector's goroutine, that the queue has all events up to seq.
func (f *informerStages) took(seq uint64) {
	if seq > f.newest.Load() {
		f.newest.Store(seq)
	}
}

func (f *informerStages) progress() uint64 {
	n := f.handler.log.published.Load() + f.worker.worked.Load()
	if f.recorder != nil {
		n += f.recorder.log.published.Load()
	}
	return n
}

func (f *informerStages) play(ctx context.Context, w *workload, rec *cell.Recorder) error {
	p := pace.On(w.score.schedule)
	defer func() { _ = p.Close() }()
	if err := f.src.Ready(p); err != nil {
		return err
	}
	return f.run(ctx, rec, func(ctx context.Context) error {
		p.Start(w.st.begin())
		for _, m := range w.score.Marks {
			err := f.src.Play(ctx, p, m.After, w.st.releaseAt)
			if err == nil {
				err = p.Wait(ctx, int(m.After)-w.score.Initial)
			}
			if err != nil {
				return err
			}
			f.mark(m, m.After+1)
		}
		return f.src.Play(ctx, p, uint64(len(w.score.Events)), w.st.releaseAt)
	})
}

func isRelist(m storm.Mark) bool { return m.Type == storm.MarkRelist }
func isResync(m storm.Mark) bool { return m.Type == storm.MarkResync }

// mark plays a mark of the storm, before the release of an event. Resync is called from another
// goroutine than the Reflector's stream, as in client-go.
func (f *informerStages) mark(m storm.Mark, before uint64) {
	if isRelist(m) {
		f.expire()
		f.w.telemetry.expired()
		return
	}
	if q := f.recorder.queue.Load(); q != nil {
		began := f.w.st.now()
		f.resyncErr = errors.Join(f.resyncErr, (*q).Resync())
		f.w.st.other(before, began)
	}
}

// expiring returns a source's ListerWatcher, and a function that lets a Reflector's watch
// expire: it disconnects the watch and answers the attempt to resume it with 410 Gone. The
// Reflector lists again after two pauses of client-go's, 2 to 5 s together.
func expiring(src source.Source) (expiring cache.ListerWatcher, expire func()) {
	var expired atomic.Bool // until the next attempt to resume a watch
	lw := src.ListerWatcher()
	inner := cache.ToListerWatcherWithContext(lw)
	expiring = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			anew := o.SendInitialEvents != nil && *o.SendInitialEvents
			if !anew && o.ResourceVersion != "" && expired.CompareAndSwap(true, false) {
				return nil, apierrors.NewResourceExpired("the resource version is too old: the storm has a relist here")
			}
			return inner.WatchWithContext(ctx, o)
		},
	}, lw)
	return expiring, func() {
		expired.Store(true)
		src.Disconnect()
	}
}

// run runs the informer and the worker while play releases the events, until all events
// are handled. It returns errStalled only if the initial list did not arrive; what a later
// stall lost is checked.
func (f *informerStages) run(ctx context.Context, rec *cell.Recorder, play func(context.Context) error) (err error) {
	w := f.w
	inner, cancel := context.WithCancel(ctx)
	var running, working sync.WaitGroup
	defer working.Wait()
	defer f.worker.queue.ShutDown()
	defer running.Wait()
	defer cancel()
	defer f.handling.on.Store(false)
	f.handler.stages = pprof.Switch(inner, stageHandle)
	start := time.Now()
	working.Go(func() { pprof.Do(inner, stageWork, f.worker.run) })
	running.Go(func() { pprof.Do(inner, stageSource, f.informer.RunWithContext) })

	for _, done := range []<-chan struct{}{f.informer.HasSyncedChecker().Done(), f.worker.ready} {
		if err := f.await(ctx, done); err != nil {
			return err
		}
	}

	f.listed = time.Since(start)
	f.handling.on.Store(true)
	rec.Begin()
	if f.readers != nil {
		f.readers.start(inner)
	}
	pprof.Do(ctx, stageSource, func(ctx context.Context) { err = play(ctx) })
	if err == nil {
		err = f.await(ctx, f.handler.done)
	}
	if errors.Is(err, errStalled) {
		w.stalled, err = err, nil
	}
	// The worker drains the queue and ends.
	f.worker.queue.ShutDown()
	if err == nil {
		working.Wait()
	}
	if f.readers != nil {
		f.readers.stop()
	}
	rec.End()
	f.handling.on.Store(false)
	cancel()
	running.Wait()
	if f.readers != nil {
		err = errors.Join(err, f.readers.wait())
	}
	if f.recorder != nil {
		f.recorder.log.finish()
		err = errors.Join(err, f.recorder.err)
	}
	if f.resyncErr != nil {
		err = errors.Join(err, fmt.Errorf("resync: %w", f.resyncErr))
	}
	return err
}

// await waits for done. Relists, a coalescing queue and live streams repeat or skip
// events, so a count does not find the end. Then the end is reached when the queue has
// taken and handed over everything and nothing moves.
func (f *informerStages) await(ctx context.Context, done <-chan struct{}) error {
	err := await(ctx, done, f.progress, f.w.stall, f.settled)
	if err == nil && f.src.Relists() > 0 && !f.open {
		err = await(ctx, nil, f.progress, f.w.stall, f.settled)
	}
	return err
}

func (f *informerStages) settled() bool {
	last := f.last.Load()
	if last == 0 {
		return false
	}
	// Handlers see the version of every last event but a deletion, which a list may hide.
	hidden := !f.open && f.w.score.Events[last-1].Type == watch.Deleted
	if f.handler.newest.Load() < last && !hidden {
		return false
	}
	newest := max(f.newest.Load(), parseSequence(f.informer.LastSyncResourceVersion()))
	if newest < last || f.waiting() > 0 || f.handler.busy.Load() {
		return false
	}
	// Last, since a source may have to ask a server.
	return f.open || f.w.guarantees.Coalesces == impls.CoalesceLatest || f.src.Relists() > 0
}

func (f *informerStages) check(w *workload, rec *cell.Recorder) outcome {
	s, st := w.score.Storm, w.st
	relists := f.src.Relists()
	e := expectations{
		total:    w.guarantees.Order == impls.OrderTotal,
		latest:   w.guarantees.Coalesces == impls.CoalesceLatest,
		relisted: relists > 0,
		resyncs:  slices.ContainsFunc(s.Marks, isResync),
		calls:    true,
		listed:   f.last.Load(),
	}
	if f.recorder != nil {
		e.listed = f.recorder.listed.Load()
	}
	calls := f.handler.log.check(s, w.score.keys(), e)
	o := outcome{broken: calls.v, out: calls.out, popped: "popped", lookedUp: true}
	o.intervals = append(st.decoding.intervals(), interval{ReleasedEnqueued, st.released, st.enqueued})
	if f.recorder != nil {
		e.calls = false
		c := f.recorder.log.check(s, w.score.keys(), e)
		// The handler sees a violation of the queue too. It is reported once, for the queue.
		if c.v != (violations{}) {
			o.broken = c.v
		}
		o.out = c.out
		rec.Note("hand-overs", float64(len(f.recorder.log.ends)))
		o.intervals = append(o.intervals, interval{EnqueuedPopped, st.enqueued, st.popped})
		if st.every {
			o.intervals = append(o.intervals, interval{PoppedStored, st.popped, st.stored})
		}
	}
	o.taken = st.popped
	if f.recorder == nil {
		o.taken = st.stored
	}
	if relists > 0 {
		completeByKey(s, st.popped, false)
		completeByKey(s, st.stored, false)
	}
	if st.every {
		o.intervals = append(o.intervals, interval{StoredHandled, st.stored, st.handled})
	}
	f.worker.check(&o.broken, s, w.score.keys(), calls)
	f.compareState(&o.broken)
	rec.Note("worked", float64(len(f.worker.log)))
	if w.material != nil && w.material.Wire.InitialList != "" {
		rec.Note("initial-list-ns", float64(f.listed))
	}
	noteSource(rec, f.src, len(s.Events))
	var fresh *freshness
	if st.every {
		fresh = freshnessOf(st)
		fresh.report(rec, Staleness, f.worker.lookUps())
	}
	if f.readers != nil {
		f.readers.report(rec, fresh)
	}
	return o
}

// compareState compares the indexer's content with the storm's final state.
func (f *informerStages) compareState(v *violations) {
	final, indexer := f.w.score.final(), f.informer.GetIndexer()
	for key, seq := range final {
		switch obj, ok, err := indexer.GetByKey(key); {
		case err != nil || !ok:
			v[diverged].add("%s is not in the indexer", key)
		case sequence(obj) != seq:
			v[diverged].add("%s is in the indexer as event %d left it, not event %d", key, sequence(obj), seq)
		}
	}
	for _, key := range indexer.ListKeys() {
		if _, ok := final[key]; !ok {
			v[diverged].add("%s is in the indexer and was deleted", key)
		}
	}
}

// recorder stamps the events that a Reflector puts into an informer's queue, logs the
// queue's hand-overs, and stamps the indexer's stores. The goroutine of client-go's
// controller does the last two.
type recorder struct {
	*informerStages
	log            *deliveryLog
	stages         pprof.Stages                    // labels the controller's goroutine: pop or store
	queue          atomic.Pointer[deltafifo.Queue] // nil until the informer runs
	listed         atomic.Uint64                   // resourceVersion of the last list
	due            bool                            // the hand-over reads the clock
	popped, stored int64
	err            error
}

// hand calls process for a hand-over and logs it.
func (r *recorder) hand(deltas []cache.Delta, batch bool, process func() error) error {
	r.stages.To(1)
	r.popped, r.stored = 0, 0
	if r.due = r.log.due(len(deltas)); r.due {
		r.popped = r.log.st.now()
	}
	err := process()
	if err != nil && r.err == nil {
		// client-go's controller ignores the error.
		r.err = err
	}
	r.log.add(deltas, batch, r.popped, r.stored)
	r.stages.To(0)
	return err
}

func (r *recorder) wrapQueue(q deltafifo.Queue) deltafifo.Queue {
	r.queue.Store(&q)
	e := &recordedQueue{Queue: q, r: r}
	e.onSingle = e.single
	if b, ok := q.(deltafifo.BatchQueue); ok {
		eb := &recordedBatchQueue{recordedQueue: e, inner: b}
		eb.onBatch = eb.handBatch
		return eb
	}
	return e
}

func (r *recorder) wrapIndexer(i cache.Indexer) cache.Indexer {
	t, ok := i.(cache.TransactionStore)
	if !ok {
		return i
	}
	recorded := &recordedIndexer{Indexer: i, transactions: t, r: r}
	if s, ok := i.(store.Swapper); ok {
		return &recordedSwapper{recorded, s}
	}
	return recorded
}

type recordedQueue struct {
	deltafifo.Queue
	r        *recorder
	process  cache.PopProcessFunc // the controller's, for the current Pop
	onSingle cache.PopProcessFunc // a method value, as each evaluation of one allocates
}

var (
	_ cache.ReflectorBookmarkStore = (*recordedQueue)(nil)
	_ cache.TransformingStore      = (*recordedQueue)(nil)
	_ cache.QueueWithBatch         = (*recordedBatchQueue)(nil)
)

// took stamps an object after the queue has taken it, and returns the queue's error.
func (q *recordedQueue) took(obj any, err error) error {
	seq := sequence(obj)
	q.r.w.st.enqueue(seq)
	q.r.took(seq)
	return err
}

// calls stamps an object of a paced cell before the queue takes it, and returns the object.
func (q *recordedQueue) calls(obj any) any {
	if st := q.r.w.st; st.paced {
		st.call(sequence(obj))
	}
	return obj
}

func (q *recordedQueue) Add(obj any) error    { return q.took(q.calls(obj), q.Queue.Add(obj)) }
func (q *recordedQueue) Update(obj any) error { return q.took(q.calls(obj), q.Queue.Update(obj)) }
func (q *recordedQueue) Delete(obj any) error { return q.took(q.calls(obj), q.Queue.Delete(obj)) }

func (q *recordedQueue) Replace(list []any, resourceVersion string) error {
	err := q.Queue.Replace(list, resourceVersion)
	seq := parseSequence(resourceVersion)
	q.r.listed.Store(seq)
	q.r.w.st.replace(list)
	q.r.took(seq)
	return err
}

func (q *recordedQueue) Bookmark(resourceVersion string) error {
	if b, ok := q.Queue.(cache.ReflectorBookmarkStore); ok {
		return b.Bookmark(resourceVersion)
	}
	return nil
}

func (q *recordedQueue) Transformer() cache.TransformFunc {
	if t, ok := q.Queue.(cache.TransformingStore); ok {
		return t.Transformer()
	}
	return nil
}

func (q *recordedQueue) Pop(process cache.PopProcessFunc) (any, error) {
	q.process = process
	return q.Queue.Pop(q.onSingle)
}

func (q *recordedQueue) single(obj any, isInInitialList bool) error {
	deltas, _ := obj.(cache.Deltas)
	return q.r.hand(deltas, false, func() error { return q.process(obj, isInInitialList) })
}

// recordedBatchQueue is a recordedQueue with a batch path, which a controller finds by its type.
type recordedBatchQueue struct {
	*recordedQueue
	inner   deltafifo.BatchQueue
	batch   cache.ProcessBatchFunc
	onBatch cache.ProcessBatchFunc
}

func (q *recordedBatchQueue) PopBatch(batch cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	q.batch, q.process = batch, single
	return q.inner.PopBatch(q.onBatch, q.onSingle)
}

func (q *recordedBatchQueue) handBatch(deltas []cache.Delta, isInInitialList bool) error {
	return q.r.hand(deltas, true, func() error { return q.batch(deltas, isInInitialList) })
}

type recordedIndexer struct {
	cache.Indexer
	transactions cache.TransactionStore
	r            *recorder
}

var _ cache.TransactionStore = (*recordedIndexer)(nil)

// stored stamps the current hand-over after a store: with several deltas, the last counts.
// It returns the store's error.
func stored[E any](i *recordedIndexer, err E) E {
	if i.r.due {
		i.r.stored = i.r.log.st.now()
	}
	return err
}

func (i *recordedIndexer) Add(obj any) error    { return stored(i, i.Indexer.Add(obj)) }
func (i *recordedIndexer) Update(obj any) error { return stored(i, i.Indexer.Update(obj)) }
func (i *recordedIndexer) Delete(obj any) error { return stored(i, i.Indexer.Delete(obj)) }

func (i *recordedIndexer) Replace(list []any, resourceVersion string) error {
	return stored(i, i.Indexer.Replace(list, resourceVersion))
}

func (i *recordedIndexer) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	return stored(i, i.transactions.Transaction(txns...))
}

// recordedSwapper is a recordedIndexer of a store that says what a write replaced, which the informer
// finds by its type.
type recordedSwapper struct {
	*recordedIndexer
	swapper store.Swapper
}

var _ store.Swapper = (*recordedSwapper)(nil)

func (i *recordedSwapper) Swap(old []any, txns ...cache.Transaction) *cache.TransactionError {
	return stored(i.recordedIndexer, i.swapper.Swap(old, txns...))
}
