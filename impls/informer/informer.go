// Package informer holds a shared informer that takes its queue from outside:
// a [cache.SharedIndexInformer] on any variant of package deltafifo.
//
// client-go's own (v0.37, shared_informer.go) builds the queue between its
// Reflector and its store itself, so that another cannot be had. This one puts
// the same parts together, client-go's controller, Reflector and indexer, around
// a queue of one's choice:
//
//	inf, err := informer.New(lw, &v1.Pod{}, informer.Options{Variant: "cond"})
//	inf.AddEventHandler(handler)
//	go inf.RunWithContext(ctx)
//
// [NewSharedIndexInformer] and [Func] have the shape of controller-runtime's
// cache.Options.NewInformer, [ForFactory] that of what a client-go
// SharedInformerFactory takes.
//
// # What it promises
//
// What client-go's does, in particular:
//
//   - The indexer holds an object before a handler is told of it.
//   - Each handler is told of one thing at a time, in the order in which the
//     indexer took them in. Handlers do not wait for each other, and the indexer
//     waits for none: what a handler has not been told yet waits in memory that
//     is its own, without a bound.
//   - A handler that is added late is told of all that the indexer holds, as
//     additions of the initial list, and then of what follows.
//   - HasSynced of a registration turns true when that handler has been told of
//     the whole initial list.
//   - An update that leaves the resourceVersion as it was, as a resync does, is
//     told only to the handlers whose resync is due.
//   - If a handler panics, [utilruntime.HandleCrash] is called, which by default
//     ends the process. Where it doesn't, the handler goes on with the next
//     event after a second; it never counts as synced if the event was of the
//     initial list.
//   - RemoveEventHandler does not wait for the call that is under way;
//     [cache.ShutDownEventHandler] does.
//   - Run returns when all handlers have returned.
//   - With KUBE_CACHE_MUTATION_DETECTOR set, handlers that change objects are
//     found out.
//
// # What differs
//
//   - A handler that is removed, or whose informer is stopped, is told of
//     nothing more than what it is being told of; upstream a few more may slip
//     through. Nor does it wait out the second after a panic.
//   - What a queue hands over at once is told of at once: all of it is in the
//     indexer by then.
//   - An error of the indexer or a delta that is not understood is logged;
//     upstream drops it.
//   - The queue says what is delivered how, not client-go's feature gates
//     InOrderInformers, AtomicFIFO and UnlockWhileProcessingFIFO. client-go's
//     controller heeds InOrderInformersBatchProcess still.
//   - informer_queued_items and informer_processing_latency_seconds are kept only
//     where Options.InformerMetricsProvider is set: the provider that
//     [cache.SetInformerMetricsProvider] sets for the whole process is not to be
//     had from outside of client-go. informer_store_resource_version is the
//     indexer's own and is as upstream.
//   - With a queue that folds updates together (Compaction) handlers are not told
//     of those that were folded away, and may be told of the deletion of what
//     they were never told of.
//
// # Cost
//
// One goroutine a handler, where upstream has two or three. Telling n handlers
// of a batch takes n times the lock of a handler's backlog, not once for each
// event, and wakes only handlers that sleep. Nothing is allocated for an event
// in a steady state, beyond what the queue and the indexer allocate. Adding a
// handler is O(objects), removing one O(handlers).
package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgofeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// informer is the parts of a shared informer, and where it is in its life.
type informer struct {
	lw          cache.ListerWatcher
	example     runtime.Object
	description string
	blueprint   blueprint
	// defaultResync is that of handlers that name no resync period.
	defaultResync time.Duration

	indexer     cache.Indexer
	distributor distributor
	process     processor
	mutations   cache.MutationDetector

	id       cache.InformerNameAndResource
	provider cache.InformerMetricsProvider
	// synced is closed when the indexer has the first list.
	synced chan struct{}

	// mu is held by who looks at or changes where the informer is in its life,
	// and while a handler joins. It is taken before the locks of process and
	// audience, and never while a handler is waited for.
	mu sync.Mutex
	// started and stopped turn true once each, in this order.
	started, stopped bool
	// controller is set when started is.
	controller cache.Controller
	// resyncCheck is how often is looked whether a resync is due. Fixed when
	// started is set.
	resyncCheck time.Duration
	// watchError and transform are fixed when started is set.
	watchError cache.WatchErrorHandlerWithContext
	transform  cache.TransformFunc
}

var _ cache.SharedIndexInformer = (*informer)(nil)

// New returns an informer of what lw lists and watches; example is of the type
// of the objects, whatever is of another type is dropped. The informer starts
// nothing before it is run, so that it may be dropped until then. The error says
// what is allowed and wraps [impls.ErrOptions] or [impls.ErrUnknownVariant].
func New(lw cache.ListerWatcher, example runtime.Object, opts Options) (cache.SharedIndexInformer, error) {
	if lw == nil {
		return nil, fmt.Errorf("informer: %w: no ListerWatcher", impls.ErrOptions)
	}
	b, err := opts.checked()
	if err != nil {
		return nil, err
	}
	return newInformer(lw, example, opts, b), nil
}

// checked returns the blueprint of options that are known to build a queue.
func (o Options) checked() (blueprint, error) {
	b, err := o.blueprint()
	if err != nil {
		return b, err
	}
	q, err := b.queue(cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc), nil)
	if err != nil {
		return b, err
	}
	q.Close()
	return b, nil
}

func newInformer(lw cache.ListerWatcher, example runtime.Object, opts Options, b blueprint) *informer {
	s := &informer{
		lw:            lw,
		example:       example,
		description:   opts.ObjectDescription,
		blueprint:     b,
		defaultResync: opts.ResyncPeriod,
		resyncCheck:   opts.ResyncPeriod,
		indexer: cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, merged(nil, opts.Indexers),
			cache.WithStoreMetrics(opts.Identifier, opts.InformerMetricsProvider)),
		mutations: cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
		id:        opts.Identifier,
		provider:  opts.InformerMetricsProvider,
		synced:    make(chan struct{}),
	}
	if opts.WrapIndexer != nil {
		s.indexer = opts.WrapIndexer(s.indexer)
	}
	s.process = processor{indexer: s.indexer, distributor: &s.distributor, mutations: s.mutations}
	return s
}

// Run implements [cache.SharedInformer].
func (s *informer) Run(stopCh <-chan struct{}) { s.RunWithContext(wait.ContextForChannel(stopCh)) }

// RunWithContext implements [cache.SharedInformer]. It may be called once.
func (s *informer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	first, err := s.start(logger)
	switch {
	case !first:
		logger.Info("Warning: the informer has been started already; to run it twice is not allowed")
		return
	case err != nil:
		// New has built such a queue, so that this takes a NewQueue that works
		// once only.
		utilruntime.HandleErrorWithContext(ctx, err, "The informer has no queue and stops")
	}
	// The handlers are stopped after the controller, which tells them.
	defer s.distributor.stop()
	defer s.setStopped()
	if err != nil {
		return
	}
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer end()
	watchers.Go(func() { s.mutations.Run(over.Done()) })
	watchers.Go(func() { s.watchSynced(ctx) })
	s.controller.RunWithContext(ctx)
}

// start makes the controller and starts the handlers. It returns false where
// that has been done before.
func (s *informer) start(logger klog.Logger) (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return false, nil
	}
	s.started = true
	q, err := s.blueprint.queue(s.indexer, s.transform)
	if err != nil {
		return true, err
	}
	if s.blueprint.wrap != nil {
		q = s.blueprint.wrap(q)
	}
	s.controller = cache.New(s.config(logger, measure(q, s.id, s.provider)))
	s.distributor.start()
	return true, nil
}

// config is what client-go's controller is to do. The caller holds mu.
func (s *informer) config(logger klog.Logger, q deltafifo.Queue) *cache.Config {
	reported := func(err error) error {
		if err != nil {
			utilruntime.HandleErrorWithLogger(logger, err, "The informer could not take in what its queue handed over")
		}
		return err
	}
	c := &cache.Config{
		Queue:             q,
		ListerWatcher:     s.lw,
		ObjectType:        s.example,
		ObjectDescription: s.description,
		FullResyncPeriod:  s.resyncCheck,
		ShouldResync:      s.distributor.shouldResync,
		Process: func(obj any, isInInitialList bool) error {
			return reported(s.process.Process(obj, isInInitialList))
		},
		WatchErrorHandlerWithContext: s.watchError,
	}
	if s.process.transacts() {
		c.ProcessBatch = func(deltas []cache.Delta, isInInitialList bool) error {
			return reported(s.process.ProcessBatch(deltas, isInInitialList))
		}
	}
	return c
}

// watchSynced waits for the first list to be in the indexer, and says so to all
// who ask.
func (s *informer) watchSynced(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.controller.HasSyncedChecker().Done():
		// DeltaFIFO says so just before it hands over the last item of the list
		// (client-go v0.37.2, delta_fifo.go, Pop). It holds its lock meanwhile, for
		// which HasSynced waits; other queues return at once.
		s.controller.HasSynced()
		// In this order: a handler that joins looks at synced after it has
		// joined, so that either it sees synced or is seen here.
		close(s.synced)
		s.distributor.upstreamHasSynced()
	}
}

func (s *informer) setStopped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// IsStopped implements [cache.SharedInformer].
func (s *informer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// HasSynced implements [cache.SharedInformer].
func (s *informer) HasSynced() bool { return cache.IsDone(syncedChecker{s}) }

// HasSyncedChecker implements [cache.SharedInformer].
func (s *informer) HasSyncedChecker() cache.DoneChecker { return syncedChecker{s} }

type syncedChecker struct{ s *informer }

func (c syncedChecker) Name() string          { return fmt.Sprintf("SharedIndexInformer %T", c.s.example) }
func (c syncedChecker) Done() <-chan struct{} { return c.s.synced }

// LastSyncResourceVersion implements [cache.SharedInformer]: that of the
// Reflector, which may be ahead of the indexer. The indexer's own is
// GetStore().LastStoreSyncResourceVersion().
func (s *informer) LastSyncResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller == nil {
		return ""
	}
	return s.controller.LastSyncResourceVersion()
}

// GetStore implements [cache.SharedInformer].
func (s *informer) GetStore() cache.Store { return s.indexer }

// GetIndexer implements [cache.SharedIndexInformer].
func (s *informer) GetIndexer() cache.Indexer { return s.indexer }

// AddIndexers implements [cache.SharedIndexInformer]. It may be called as long as
// the informer has not stopped. O(objects).
func (s *informer) AddIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("indexer was not added because the informer has stopped already")
	}
	return s.indexer.AddIndexers(indexers)
}

var errStarted = errors.New("informer has already started")

// SetWatchErrorHandler implements [cache.SharedInformer].
func (s *informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext implements [cache.SharedInformer].
func (s *informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.watchError = handler
	return nil
}

// SetTransform implements [cache.SharedInformer].
func (s *informer) SetTransform(transform cache.TransformFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.transform = transform
	return nil
}

// GetController implements [cache.SharedInformer]. What it returns tells how far
// the informer is, and cannot run it.
func (s *informer) GetController() cache.Controller { return onlooker{s} }

type onlooker struct{ s *informer }

func (o onlooker) Run(<-chan struct{})                 {}
func (o onlooker) RunWithContext(context.Context)      {}
func (o onlooker) HasSynced() bool                     { return o.s.HasSynced() }
func (o onlooker) HasSyncedChecker() cache.DoneChecker { return o.s.HasSyncedChecker() }

func (o onlooker) LastSyncResourceVersion() string {
	if clientgofeatures.FeatureGates().Enabled(clientgofeatures.InformerResourceVersion) {
		return o.s.LastSyncResourceVersion()
	}
	return ""
}
