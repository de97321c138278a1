package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
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
	inflate   string // of a [stack]
	decoder   string // of a [stack]; empty for that of the wire
	opts      deltafifo.Options
	store     string // see [Config.stagesOf]
	workqueue string // as store
	r         *round
	handling  *handling
	worker    *worker
	handler   *handler
	informer  cache.SharedIndexInformer
	readers   *readers // nil without [Config.Readers]
	expire    func()   // lets the Reflector's watch expire; nil for a storm without relists
	intake    intake
	recorder  *recorder     // nil for client-go's own informer, whose queue is hidden
	resyncErr error         // joined errors of the storm's resyncs
	listed    time.Duration // from the start of the informer until its store has the initial list
}

func (f *informerStages) setup(ctx context.Context, r *round) (err error) {
	r.storm.keys()
	r.storm.final()
	if err := r.open(ctx); err != nil {
		return err
	}
	like := r.storm.Events[0].Object
	if api, ok := r.source.(*source.APIServer); ok {
		if like, err = f.decode(ctx, r.st, api, like); err != nil {
			return err
		}
	}
	f.handling = newHandling(r.prepared.HandlerCost)
	if err := f.assemble(ctx, r, len(r.storm.Events), like); err != nil {
		return err
	}
	if n := r.prepared.Readers; n > 0 {
		f.readers = newReaders(n, f.informer.GetIndexer(), r.storm.Storm, r.st)
	}
	return nil
}

// decode sets the stages of a client of the API server, stamps and labels what it decodes, and returns
// an object of the type of its objects.
func (f *informerStages) decode(ctx context.Context, st *observe.Stamps, api *source.APIServer, like runtime.Object) (runtime.Object, error) {
	if f.decoder != "" {
		if err := api.SetStages(f.inflate, f.decoder); err != nil {
			return nil, err
		}
	}
	if st.Sampling != observe.None || pprof.Labelled(ctx) {
		if err := st.ObserveDecoding(api, pprof.Switch(ctx, stageDecode, stageSource)); err != nil {
			return nil, err
		}
	}
	return api.Like(like)
}

// assemble builds the pipeline for a number of events. like has the type of the objects.
func (f *informerStages) assemble(ctx context.Context, r *round, events int, like runtime.Object) error {
	f.r, f.intake.st = r, r.st
	queue, err := workqueue.New(cmp.Or(f.workqueue, defaultWorkqueue), workqueue.Options[string]{})
	if err != nil {
		return err
	}
	r.cleanupFunc(queue.ShutDown)
	f.handler = &handler{
		log: observe.NewCallLog(r.st, events), handling: f.handling, queue: queue,
		seen: make([]bool, events+1), left: events, done: make(chan struct{}),
	}
	f.worker = &worker{queue: queue, log: observe.NewLookUps(r.st, events), initial: r.st.Initial(), ready: make(chan struct{})}
	if f.worker.initial == 0 {
		close(f.worker.ready)
	}
	lw := r.source.ListerWatcher()
	if slices.ContainsFunc(r.storm.Marks, isRelist) {
		lw, f.expire = expiring(r.source)
	}
	if err := f.build(ctx, events, lw, like); err != nil {
		return err
	}
	f.worker.indexer = f.informer.GetIndexer()
	if _, err := f.informer.AddEventHandler(f.handler); err != nil {
		return err
	}
	watched := observe.Stages{Length: f.waiting, Log: f.handler.log, LookUps: f.worker.log, Source: r.source}
	if f.recorder != nil {
		watched.Log = f.recorder.log
	}
	watched.Backlogs, _ = f.informer.(informer.BacklogReporter)
	r.telemetry.Watch(watched)
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
	st := f.r.st
	byNamespace := cache.MetaNamespaceIndexFunc
	if f.variant == ClientGoInformer {
		if st.Sampling == observe.All {
			byNamespace = func(obj any) ([]string, error) {
				// client-go calls an index function while it stores an object.
				st.Store(observe.Sequence(obj))
				return cache.MetaNamespaceIndexFunc(obj)
			}
			f.handler.deleted = st.Store
		}
		f.informer = cache.NewSharedIndexInformer(lw, like, 0, cache.Indexers{cache.NamespaceIndex: byNamespace})
		return f.informer.SetTransform(func(obj any) (any, error) {
			seq := observe.Sequence(obj)
			st.EnqueueOnce(seq) // A relist transforms objects that the queue already had.
			f.intake.took(seq)
			return obj, nil
		})
	}
	f.recorder = &recorder{intake: &f.intake, log: observe.NewStoreLog(st, events), stages: pprof.Switch(ctx, stagePop, stageStore)}
	f.informer, err = informer.New(lw, like, informer.Options{
		Variant: f.variant, Queue: f.opts, Unthrottled: !f.opts.Throttle, Indexers: cache.Indexers{cache.NamespaceIndex: byNamespace},
		Store: f.store, WrapQueue: f.recorder.wrapQueue, WrapIndexer: f.recorder.wrapIndexer,
	})
	return err
}

func (f *informerStages) progress() uint64 {
	n := f.handler.log.Published() + f.worker.log.Published()
	if f.recorder != nil {
		n += f.recorder.log.Published()
	}
	return n
}

func (f *informerStages) play(ctx context.Context, rec *cell.Recorder) error {
	p := pace.On(f.r.storm.schedule)
	defer func() { _ = p.Close() }()
	if err := f.r.source.Ready(p); err != nil {
		return err
	}
	return f.run(ctx, rec, func(ctx context.Context) error {
		p.Start(f.r.st.Begin())
		for _, m := range f.r.storm.Marks {
			err := f.r.source.Play(ctx, p, m.After, f.r.st.ReleaseAt)
			if err == nil {
				err = p.Wait(ctx, int(m.After)-f.r.storm.Initial)
			}
			if err != nil {
				return err
			}
			f.mark(m, m.After+1)
		}
		return f.r.source.Play(ctx, p, uint64(len(f.r.storm.Events)), f.r.st.ReleaseAt)
	})
}

func isRelist(m storm.Mark) bool { return m.Type == storm.MarkRelist }
func isResync(m storm.Mark) bool { return m.Type == storm.MarkResync }

// mark plays a mark of the storm, before the release of an event. Resync is called from another
// goroutine than the Reflector's stream, as in client-go.
func (f *informerStages) mark(m storm.Mark, before uint64) {
	if isRelist(m) {
		f.expire()
		f.r.telemetry.Expired()
		return
	}
	if q := f.recorder.queue.Load(); q != nil {
		began := f.r.st.Now()
		f.resyncErr = errors.Join(f.resyncErr, (*q).Resync())
		f.r.st.ControlCall(before, began)
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
// are handled. It returns errStalled if the initial list did not arrive, and incomplete after
// a later stall, as what it lost is checked.
func (f *informerStages) run(ctx context.Context, rec *cell.Recorder, play func(context.Context) error) (err error) {
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
	var stalled error
	if errors.Is(err, errStalled) {
		stalled, err = incomplete{err}, nil
	}
	// The worker drains the queue and ends.
	f.worker.queue.ShutDown()
	if err == nil {
		working.Wait()
	}
	if f.readers != nil {
		f.readers.until = f.r.st.Now()
		f.readers.over.Store(true)
	}
	rec.End()
	f.handling.on.Store(false)
	cancel()
	running.Wait()
	if f.readers != nil {
		f.readers.wg.Wait()
		err = errors.Join(err, cmp.Or(f.readers.errs...))
	}
	if f.recorder != nil {
		f.recorder.log.Finish()
		err = errors.Join(err, f.recorder.err)
	}
	if f.resyncErr != nil {
		err = errors.Join(err, fmt.Errorf("resync: %w", f.resyncErr))
	}
	return cmp.Or(err, stalled)
}

// await waits for done. Relists and a coalescing queue repeat or skip events, so a count does not find the end. Then the end is reached when the queue has
// taken and handed over everything and nothing moves.
func (f *informerStages) await(ctx context.Context, done <-chan struct{}) error {
	err := await(ctx, done, f.progress, f.r.stall, f.settled)
	if err == nil && f.r.source.Relists() > 0 {
		err = await(ctx, nil, f.progress, f.r.stall, f.settled)
	}
	return err
}

func (f *informerStages) settled() bool {
	last := uint64(len(f.r.storm.Events))
	// Handlers see the version of every last event but a deletion, which a list may hide.
	hidden := f.r.storm.Events[last-1].Type == watch.Deleted
	if f.handler.newest.Load() < last && !hidden {
		return false
	}
	newest := max(f.intake.newest.Load(), observe.ParseSequence(f.informer.LastSyncResourceVersion()))
	if newest < last || f.waiting() > 0 || f.handler.busy.Load() {
		return false
	}
	// Last, since a source may have to ask a server.
	return f.r.guarantees.Coalesces == impls.CoalesceLatest || f.r.source.Relists() > 0
}

func (f *informerStages) check(rec *cell.Recorder) observe.Outcome {
	s, st := f.r.storm, f.r.st
	relists := f.r.source.Relists()
	e := observe.Expectations{
		Total:    f.r.guarantees.Order == impls.OrderTotal,
		Latest:   f.r.guarantees.Coalesces == impls.CoalesceLatest,
		Relisted: relists > 0,
		Resyncs:  slices.ContainsFunc(s.Marks, isResync),
		Listed:   uint64(len(s.Events)),
	}
	o := observe.Outcome{Boundaries: append(st.DecodingBoundaries(), observe.ReleasedEnqueued)}
	if f.recorder != nil {
		e.Listed = f.intake.listed.Load()
		c := observe.Check(s.keys(), e, f.recorder.log)
		o.Violations, o.Out = c.Violations, c.Out
		rec.Note("hand-overs", float64(f.recorder.log.HandOvers()))
		o.Boundaries = append(o.Boundaries, observe.EnqueuedPopped)
		if st.Sampling == observe.All {
			o.Boundaries = append(o.Boundaries, observe.PoppedStored)
		}
	}
	e.Calls = true
	calls := observe.Check(s.keys(), e, f.handler.log)
	if f.recorder == nil {
		o.Out = calls.Out
	}
	// The handler sees a violation of the queue too. It is reported once, for the queue.
	if o.Violations == (observe.Violations{}) {
		o.Violations = calls.Violations
	}
	if st.Sampling == observe.All {
		o.Boundaries = append(o.Boundaries, observe.StoredHandled)
	}
	f.worker.log.Check(&o.Violations, calls)
	f.compareState(&o.Violations)
	rec.Note("worked", float64(f.worker.log.Len()))
	if f.r.prepared.Wire.InitialList != "" {
		rec.Note("initial-list-ns", float64(f.listed))
	}
	noteSource(rec, f.r.source, len(s.Events))
	var fresh *observe.Freshness
	if st.Sampling == observe.All {
		fresh = st.Freshness()
		fresh.Report(rec, observe.Staleness, f.worker.log.Reads())
	}
	if f.readers != nil {
		f.readers.report(rec, fresh)
	}
	return o
}

// compareState compares the indexer's content with the storm's final state.
func (f *informerStages) compareState(v *observe.Violations) {
	final, indexer := f.r.storm.final(), f.informer.GetIndexer()
	for key, seq := range final {
		switch obj, ok, err := indexer.GetByKey(key); {
		case err != nil || !ok:
			v.Add(lab.ErrDiverged, "%s is not in the indexer", key)
		case observe.Sequence(obj) != seq:
			v.Add(lab.ErrDiverged, "%s is in the indexer as event %d left it, not event %d", key, observe.Sequence(obj), seq)
		}
	}
	for _, key := range indexer.ListKeys() {
		if _, ok := final[key]; !ok {
			v.Add(lab.ErrDiverged, "%s is in the indexer and was deleted", key)
		}
	}
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

// handler is the event handler of the informer pipeline: it logs its calls, does
// what [Config.HandlerCost] asks for, and adds keys to the workqueue. An informer
// calls it from one goroutine.
type handler struct {
	log      *observe.Log
	handling *handling
	queue    workqueue.Queue[string]
	stages   pprof.Stages  // labels the informer's goroutine at the first call
	seen     []bool        // events of the calls so far
	left     int           // number of missing events
	done     chan struct{} // closed when left reaches 0
	newest   atomic.Uint64 // newest event of the calls so far
	busy     atomic.Bool   // a call is in progress
	deleted  func(uint64)  // stamps deletions; nil if something else does
}

var _ cache.ResourceEventHandler = (*handler)(nil)

// OnAdd implements [cache.ResourceEventHandler].
func (h *handler) OnAdd(obj any, isInInitialList bool) {
	if isInInitialList {
		h.call(cache.Replaced, obj)
		return
	}
	h.call(cache.Added, obj)
}

// OnUpdate implements [cache.ResourceEventHandler]. An update by the same version is
// a resync's, or a list's.
func (h *handler) OnUpdate(old, obj any) {
	if observe.Sequence(old) == observe.Sequence(obj) {
		h.call(cache.Sync, obj)
		return
	}
	h.call(cache.Updated, obj)
}

// OnDelete implements [cache.ResourceEventHandler].
func (h *handler) OnDelete(obj any) {
	if h.deleted != nil {
		h.deleted(observe.Sequence(obj))
	}
	h.call(cache.Deleted, obj)
}

func (h *handler) call(t cache.DeltaType, obj any) {
	h.busy.Store(true)
	defer h.busy.Store(false)
	if h.log.HandOvers() == 0 {
		h.stages.To(0)
	}
	h.handling.do(1)
	// The indexer has accepted the object, so its key is valid.
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		h.queue.Add(key)
	}
	h.log.Call(t, obj)
	seq := observe.Sequence(obj)
	if seq == 0 || seq >= uint64(len(h.seen)) || h.seen[seq] {
		return
	}
	h.seen[seq] = true
	if seq > h.newest.Load() {
		h.newest.Store(seq)
	}
	if h.left--; h.left == 0 {
		close(h.done)
	}
}

// worker is the last stage of the informer pipeline: one goroutine that takes keys from
// the workqueue and looks them up, as controllers do.
type worker struct {
	indexer cache.KeyGetter
	queue   workqueue.Queue[string]
	log     *observe.LookUps
	initial int           // objects of the initial list
	ready   chan struct{} // closed after initial look-ups
}

func (w *worker) run(context.Context) {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			w.log.Finish()
			return
		}
		obj, _, _ := w.indexer.GetByKey(key) // never an error with an indexer in memory
		w.log.Add(key, obj)
		w.queue.Done(key)
		if w.log.Len() == w.initial {
			close(w.ready)
		}
	}
}

// intake records, on the Reflector's goroutine, what an informer's queue has taken.
type intake struct {
	st     *observe.Stamps
	newest atomic.Uint64 // newest event
	listed atomic.Uint64 // resourceVersion of the last list
}

// took: the queue has all events up to seq.
func (i *intake) took(seq uint64) {
	if seq > i.newest.Load() {
		i.newest.Store(seq)
	}
}

// recorder stamps the events that a Reflector puts into an informer's queue, logs the
// queue's hand-overs, and stamps the indexer's stores. The goroutine of client-go's
// controller does the last two.
type recorder struct {
	*intake
	log            *observe.Log
	stages         pprof.Stages                    // labels the controller's goroutine: pop or store
	queue          atomic.Pointer[deltafifo.Queue] // nil until the informer runs
	popped, stored int64                           // of the current hand-over; 0 if it does not read the clock
	err            error
}

// hand calls process for a hand-over and logs it.
func (r *recorder) hand(deltas []cache.Delta, batch bool, process func() error) error {
	r.stages.To(1)
	r.popped, r.stored = r.log.Begin(len(deltas)), 0
	err := process()
	if err != nil && r.err == nil {
		// client-go's controller ignores the error.
		r.err = err
	}
	r.log.Add(deltas, batch, r.popped, r.stored)
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
	seq := observe.Sequence(obj)
	q.r.st.Enqueue(seq)
	q.r.took(seq)
	return err
}

// calls stamps an object of a paced cell before the queue takes it, and returns the object.
func (q *recordedQueue) calls(obj any) any {
	if st := q.r.st; st.Paced {
		st.Call(observe.Sequence(obj))
	}
	return obj
}

func (q *recordedQueue) Add(obj any) error    { return q.took(q.calls(obj), q.Queue.Add(obj)) }
func (q *recordedQueue) Update(obj any) error { return q.took(q.calls(obj), q.Queue.Update(obj)) }
func (q *recordedQueue) Delete(obj any) error { return q.took(q.calls(obj), q.Queue.Delete(obj)) }

func (q *recordedQueue) Replace(list []any, resourceVersion string) error {
	err := q.Queue.Replace(list, resourceVersion)
	seq := observe.ParseSequence(resourceVersion)
	q.r.listed.Store(seq)
	q.r.st.Replace(list)
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
	if i.r.popped != 0 {
		i.r.stored = i.r.st.Now()
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

// readers list the namespaces of an indexer in turn, each from another one on. Like
// generated listers, they append to their own slice. They do not pause: each keeps a
// processor busy, and its allocations count as the cell's. Between two lists a reader lets
// others run. Without that, readers that wait for no lock keep all processors for 10 ms at
// a time, and the generator, the writer and the worker wait for the Go scheduler.
type readers struct {
	indexer    cache.Indexer
	namespaces []string
	st         *observe.Stamps

	since, until int64 // begin and end of the reading, in nanoseconds since the stamps' epoch
	over         atomic.Bool
	wg           sync.WaitGroup
	logs         [][]read // by reader
	errs         []error  // by reader, which ends at its first error
}

// read is one list.
type read struct {
	observe.Read
	objects int
}

func newReaders(n int, indexer cache.Indexer, s *storm.Storm, st *observe.Stamps) *readers {
	r := &readers{
		indexer: indexer, namespaces: namespacesOf(s), st: st,
		logs: make([][]read, n), errs: make([]error, n),
	}
	for i := range r.logs {
		r.logs[i] = make([]read, 0, 1<<14)
	}
	return r
}

// namespacesOf returns the namespaces of a storm, sorted; the empty one, which
// lists everything, for objects without.
func namespacesOf(s *storm.Storm) []string {
	seen := map[string]bool{}
	for i := range s.Events {
		namespace, _, _ := cache.SplitMetaNamespaceKey(s.Events[i].Key) // of a key of the generator
		seen[namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func (r *readers) start(ctx context.Context) {
	r.since = r.st.Now()
	for i := range r.logs {
		r.wg.Go(func() {
			pprof.Do(ctx, stageRead, func(context.Context) { r.errs[i] = r.read(i) })
		})
	}
}

func (r *readers) read(i int) error {
	everything := labels.Everything()
	for n := i; !r.over.Load(); n++ {
		var list []any
		begin := r.st.Now()
		err := cache.ListAllByNamespace(r.indexer, r.namespaces[n%len(r.namespaces)], everything, func(o any) {
			list = append(list, o)
		})
		if err != nil {
			return err
		}
		r.logs[i] = append(r.logs[i], read{observe.Read{Begin: begin, End: r.st.Now()}, len(list)})
		goruntime.Gosched()
	}
	return nil
}

// report records the lists, and, with fresh, their staleness. A list shows at least the
// objects stored at its begin; the reader uses it at its end.
func (r *readers) report(rec *cell.Recorder, fresh *observe.Freshness) {
	var lists []observe.Read
	objects := 0
	for _, l := range slices.Concat(r.logs...) {
		lists = append(lists, l.Read)
		objects += l.objects
		rec.Latency(observe.Listed, time.Duration(l.End-l.Begin))
	}
	rec.Note("reads/s", float64(len(lists))/time.Duration(r.until-r.since).Seconds())
	rec.Note("objects/read", float64(objects)/float64(max(1, len(lists))))
	if fresh != nil {
		fresh.Report(rec, observe.ListStaleness, lists)
	}
}
