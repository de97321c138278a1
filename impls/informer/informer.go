// Package informer is a [cache.SharedIndexInformer] whose stages are chosen by name.
//
// client-go's shared informer (v0.37, shared_informer.go) constructs its queue between Reflector
// and store, so that the caller cannot replace it. This informer combines the same parts,
// client-go's controller and Reflector, with the chosen stages:
//
//  1. decode: Options.Decode, a decoder of package decode.
//  2. queue: Options.Variant, a queue of package deltafifo, with Options.Queue.
//  3. store: Options.Store, an indexer of package store; Options.WrapIndexer wraps it.
//  4. handlers: Options.Handlers bounds what waits for them.
//
// # How to use it
//
// With a ListerWatcher, whose client decodes:
//
//	inf, err := informer.New(lw, &v1.Pod{}, informer.Options{Variant: "cond", Store: "snapshot"})
//	inf.AddEventHandler(handler)
//	go inf.RunWithContext(ctx)
//
// With a decoder, [ForResource] makes the client too, for an informer alone and for a client-go
// SharedInformerFactory, and [ForManager] serves a manager of controller-runtime. A bare Reflector
// takes a [decode.NewListWatch]. Each has an example. Without a decoder, [NewSharedIndexInformer] and
// [Func] have the signature of controller-runtime's cache.Options.NewInformer, and [ForFactory] has
// that of SharedInformerFactory.InformerFor.
//
// # What it guarantees
//
// The guarantees are client-go's, in particular those below. A list of the indexer shows what
// Guarantees.Lists of the store says: a point in time.
//
//   - The indexer stores an object before a handler receives its
//     notification.
//   - Each handler receives one notification at a time, in the order in which
//     the indexer changed. Handlers do not wait for each other, and the
//     indexer waits for no handler. Each handler has its own unbounded backlog
//     of notifications. Options.Handlers changes this; see below.
//   - A handler that is added later first receives all objects of the
//     indexer, as additions of the initial list.
//   - HasSynced of a registration turns true when its handler has received
//     the whole initial list.
//   - An update with an unchanged resourceVersion, as from a resync, goes
//     only to handlers whose resync is due.
//   - If a handler panics, [utilruntime.HandleCrash] runs, which by default
//     ends the process. Otherwise the handler continues with the next event
//     after 1 s. Its registration never counts as synced if the event was
//     part of the initial list.
//   - RemoveEventHandler does not wait for a running call;
//     [cache.ShutDownEventHandler] does.
//   - Run returns when all handlers have returned.
//   - KUBE_CACHE_MUTATION_DETECTOR detects handlers that change objects.
//
// # Bounded backlogs
//
// The backlog of a slow handler grows without limit, as with client-go (kubernetes/client-go#1326).
// [BacklogReporter] shows how far each handler is behind; client-go's metrics have no place for it.
//
// Handlers.Coalesce merges the updates of an object that wait for a handler. No handler delays the
// indexer or another handler:
//
//	waits         comes        waits then
//	nothing       any          it
//	add a         update a→b   add b
//	add a         delete b     add a, delete b
//	update a→b    update b→c   update a→c
//	update a→b    delete c     delete c
//	delete a      add b        delete a, add b
//	any           a resync     the same; if nothing waits, the resync
//
// So a handler still receives consistent notifications of a key, in order: an addition of what it does
// not have, updates from the object that it received last, the deletion of what it has, and the last
// state. It receives the addition and the deletion of every object, also of one that came and went while
// it was busy: who waits for a deletion, as reads of controller-runtime's EnableReadYourWritesConsistency
// do, sees it. It misses intermediate states only. Objects keep the order of their first notification
// that waits; between objects there is no other order. An addition of the initial list that is merged
// away counts as received for HasSynced.
//
// What waits is bounded by the objects of the store and those that were deleted since the handler is
// busy.
//
// # Differences from client-go
//
//   - After removal or stop, a handler receives no further notification;
//     upstream may still deliver a few. It also skips the rest of the 1 s
//     wait after a panic.
//   - Notifications of a batch start when the indexer has stored the whole
//     batch.
//   - An indexer error or an unknown delta is logged; upstream drops it.
//   - The queue determines delivery, and the feature gates InOrderInformers,
//     AtomicFIFO and UnlockWhileProcessingFIFO have no effect.
//     InOrderInformersBatchProcess still applies to client-go's controller.
//   - informer_queued_items and informer_processing_latency_seconds require
//     Options.InformerMetricsProvider, because client-go does not export the
//     provider of [cache.SetInformerMetricsProvider]. The indexer sets
//     informer_store_resource_version itself, as upstream.
//   - SetTransform(nil) keeps the transform that is set: factories generated
//     before client-go v0.37 call it if they have none (kubernetes#132367).
//   - With a queue whose Guarantees are not Versioned,
//     GetStore().LastStoreSyncResourceVersion is "", as client-go's without
//     AtomicFIFO: the store may lack older events than its newest.
//
// # Cost
//
// Each handler has one goroutine; upstream has two or three. A batch takes the lock of each handler's
// buffer once, not once per event, and wakes only sleeping handlers. It is one transaction of the
// store, with one key an event if the store is a [store.Swapper]; else with a read and a second key.
// The steady state allocates nothing per event, apart from queue and store. Adding a handler is
// O(objects), removing one O(handlers).
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
	"watchlab/impls/store"
)

// informer combines the parts of a shared informer with its lifecycle state.
type informer struct {
	lw          cache.ListerWatcher
	example     runtime.Object
	description string
	blueprint   blueprint
	// defaultResync is the resync period of handlers that set none; 0 means no resyncs.
	defaultResync time.Duration
	handlers      Handlers
	indexer       cache.Indexer
	distributor   distributor
	process       *processor
	mutations     cache.MutationDetector
	id            cache.InformerNameAndResource
	provider      cache.InformerMetricsProvider
	synced        chan struct{} // closed when the indexer has stored the first list

	// mu guards the lifecycle fields below, and is held while a handler is added. It is taken
	// before the locks of process and distributor. It is never held during a wait for a handler.
	mu               sync.Mutex
	started, stopped bool                               // change to true once, in this order
	controller       cache.Controller                   // set together with started
	resyncCheck      time.Duration                      // between resync checks; constant once started
	watchError       cache.WatchErrorHandlerWithContext // constant once started
	transform        cache.TransformFunc                // constant once started
}

var _ cache.SharedIndexInformer = (*informer)(nil)

// New returns an informer of the objects that lw lists and watches. example has the type of the
// objects; objects of other types are dropped. The informer starts no goroutine before Run, so it
// can be discarded until then. The error lists the allowed values and wraps [impls.ErrOptions] or
// [impls.ErrUnknownVariant].
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

// checked validates the options by building a store and a queue, and returns their blueprint.
func (o Options) checked() (blueprint, error) {
	b, err := o.blueprint()
	if err != nil {
		return b, err
	}
	opts := o.storeOptions()
	opts.Identifier = cache.InformerNameAndResource{} // the metrics are of the store that the informer keeps
	known, err := b.store(opts)
	if err != nil {
		return b, fmt.Errorf("informer: %w", err)
	}
	q, err := b.queue(known, nil)
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
		handlers:      opts.Handlers,
		mutations:     cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
		id:            opts.Identifier,
		provider:      opts.InformerMetricsProvider,
		synced:        make(chan struct{}),
	}
	indexer, err := b.store(opts.storeOptions())
	if err != nil {
		// checked has built a store of the variant, so this is a bug of it.
		panic(fmt.Errorf("informer: %w", err))
	}
	s.indexer = indexer
	if opts.WrapIndexer != nil {
		s.indexer = opts.WrapIndexer(s.indexer)
	}
	s.process = newProcessor(s.indexer, &s.distributor, s.mutations)
	if !b.versioned {
		s.indexer = unversioned{s.indexer}
	}
	return s
}

func (o Options) storeOptions() store.Options {
	return store.Options{
		KeyFunction: cache.DeletionHandlingMetaNamespaceKeyFunc, Indexers: o.Indexers,
		Identifier: o.Identifier, MetricsProvider: o.InformerMetricsProvider,
	}
}

func (s *informer) Run(stopCh <-chan struct{}) { s.RunWithContext(wait.ContextForChannel(stopCh)) }

// RunWithContext may be called once.
func (s *informer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	first, err := s.start(logger)
	switch {
	case !first:
		logger.Info("Warning: the informer has been started already; to run it twice is not allowed")
		return
	case err != nil:
		// New has built a queue with the same options, so this is a bug of the variant.
		utilruntime.HandleErrorWithContext(ctx, err, "The informer has no queue and stops")
	}
	// The handlers stop after the controller, which notifies them.
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

// start creates the controller and starts the handlers. It returns false if the
// informer was started before.
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

// config returns the configuration of client-go's controller. The caller holds mu.
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
	if s.process.transacts {
		c.ProcessBatch = func(deltas []cache.Delta, isInInitialList bool) error {
			return reported(s.process.ProcessBatch(deltas, isInInitialList))
		}
	}
	return c
}

// watchSynced waits until the indexer has the first list, and then notifies all waiters.
func (s *informer) watchSynced(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.controller.HasSyncedChecker().Done():
		// DeltaFIFO reports synced just before Pop returns the last item of the
		// list (client-go v0.37.2, delta_fifo.go). It holds its lock then, and
		// HasSynced waits for it. Other queues return at once.
		s.controller.HasSynced()
		// The order matters: a new handler checks synced after it is added. So
		// either it sees synced, or the loop below reaches it.
		close(s.synced)
		s.distributor.upstreamHasSynced()
	}
}

func (s *informer) setStopped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

func (s *informer) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *informer) HasSynced() bool                     { return cache.IsDone(syncedChecker{s}) }
func (s *informer) HasSyncedChecker() cache.DoneChecker { return syncedChecker{s} }

type syncedChecker struct{ s *informer }

func (c syncedChecker) Name() string          { return fmt.Sprintf("SharedIndexInformer %T", c.s.example) }
func (c syncedChecker) Done() <-chan struct{} { return c.s.synced }

// LastSyncResourceVersion returns the version of the Reflector, which may be ahead of the indexer. The
// version of the indexer is GetStore().LastStoreSyncResourceVersion(), "" if it has none.
func (s *informer) LastSyncResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.controller == nil {
		return ""
	}
	return s.controller.LastSyncResourceVersion()
}

func (s *informer) GetStore() cache.Store     { return s.indexer }
func (s *informer) GetIndexer() cache.Indexer { return s.indexer }

// unversioned is an indexer that receives the events of different keys out of order. So it may have
// the object of a version and lack one of an earlier version.
type unversioned struct{ cache.Indexer }

func (unversioned) LastStoreSyncResourceVersion() string { return "" }

// AddIndexers fails after the informer has stopped. O(objects).
func (s *informer) AddIndexers(indexers cache.Indexers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("indexer was not added because the informer has stopped already")
	}
	return s.indexer.AddIndexers(indexers)
}

var errStarted = errors.New("informer has already started")

func (s *informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return s.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

func (s *informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.watchError = handler
	return nil
}

// SetTransform sets the transform; nil keeps the one that is set. The error wraps [impls.ErrOptions] if
// objects of the decoder must not be changed.
func (s *informer) SetTransform(transform cache.TransformFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	if transform == nil {
		return nil
	}
	if s.blueprint.readOnly {
		return fmt.Errorf("informer: %w: a transform with the decoder shared-readonly, whose objects must not be changed (allowed: none, or the decoder shared)", impls.ErrOptions)
	}
	s.transform = transform
	return nil
}

// GetController returns the state of the informer; the result cannot run it.
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
