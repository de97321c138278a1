// Package cache: this file joins the copy of client-go's package (upstream_test.go). Its types stand
// where client-go's tests construct queues and informers, and build a variant instead.
package cache

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	clientgofeatures "k8s.io/client-go/features"
)

// The variants under test. The file variants_test.go sets them, because it may import packages that
// import this one.
var (
	WatchlabNew      func(WatchlabOptions) WatchlabQueue
	WatchlabInformer func(ListerWatcher, runtime.Object, time.Duration) SharedIndexInformer // nil means upstream's
	// WatchlabDelivery is that of the queues that upstream's controllers and informers build.
	WatchlabDelivery string
)

// WatchlabOptions are what a test sets of the options of a queue.
type WatchlabOptions struct {
	Delivery     string // "per-key", "in-order", or "latest" for the FIFO
	KeyFunction  KeyFunc
	KnownObjects KeyListerGetter
	Transformer  TransformFunc
	BatchSize    int
}

type WatchlabQueue interface {
	Queue
	Len() int
}

// WatchlabMain closes all queues that the tests built and left open, before goleak looks.
type WatchlabMain struct{ M interface{ Run() int } }

func (m WatchlabMain) Run() int {
	code := m.M.Run()
	watchlabBuilt.Range(func(q, _ any) bool {
		q.(Queue).Close()
		return true
	})
	return code
}

var watchlabBuilt sync.Map // of Queue

func watchlabBuild(o WatchlabOptions) WatchlabQueue {
	q := WatchlabNew(o)
	watchlabBuilt.Store(q, nil)
	return q
}

// newQueueFIFO stands for the function of controller.go, which chooses the queue of a controller.
func newQueueFIFO(logger klog.Logger, _ any, state Store, transform TransformFunc, _ InformerNameAndResource, _ InformerMetricsProvider) (klog.Logger, Queue) {
	o := WatchlabOptions{Delivery: WatchlabDelivery, KeyFunction: MetaNamespaceKeyFunc, Transformer: transform}
	if o.Delivery == "per-key" || !clientgofeatures.FeatureGates().Enabled(clientgofeatures.AtomicFIFO) {
		o.KnownObjects = state
	}
	return logger, watchlabBuild(o)
}

// adaptedQueue builds its queue at the first call, because some tests set fields after construction.
type adaptedQueue struct {
	logger  klog.Logger
	keyFunc KeyFunc
	options func() WatchlabOptions
	once    sync.Once
	built   WatchlabQueue

	mu   sync.Mutex
	seen []seenItem // taken out by peek and not popped yet
}

type seenItem struct {
	obj     any
	initial bool
}

func (a *adaptedQueue) queue() WatchlabQueue {
	a.once.Do(func() { a.built = watchlabBuild(a.options()) })
	return a.built
}

func (a *adaptedQueue) Add(obj any) error    { return a.queue().Add(obj) }
func (a *adaptedQueue) Update(obj any) error { return a.queue().Update(obj) }
func (a *adaptedQueue) Delete(obj any) error { return a.queue().Delete(obj) }
func (a *adaptedQueue) Replace(list []any, version string) error {
	return a.queue().Replace(list, version)
}
func (a *adaptedQueue) Resync() error                 { return a.queue().Resync() }
func (a *adaptedQueue) HasSynced() bool               { return a.queue().HasSynced() }
func (a *adaptedQueue) HasSyncedChecker() DoneChecker { return a.queue().HasSyncedChecker() }
func (a *adaptedQueue) Close()                        { a.queue().Close() }
func (a *adaptedQueue) Transformer() TransformFunc    { return a.options().Transformer }

func (a *adaptedQueue) Pop(process PopProcessFunc) (any, error) {
	a.mu.Lock()
	if len(a.seen) > 0 {
		next := a.seen[0]
		a.seen = a.seen[1:]
		a.mu.Unlock()
		return next.obj, process(next.obj, next.initial)
	}
	a.mu.Unlock()
	return a.queue().Pop(process)
}

// peek returns all that is queued, where the tests read a field of upstream's struct. It pops the
// items; later calls of Pop return them.
func (a *adaptedQueue) peek() []any {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.queue().Len() > 0 {
		_, _ = a.queue().Pop(func(obj any, initial bool) error {
			a.seen = append(a.seen, seenItem{obj, initial})
			return nil
		})
	}
	objs := make([]any, len(a.seen))
	for i, item := range a.seen {
		objs[i] = item.obj
	}
	return objs
}

// adaptedRealFIFO stands for RealFIFO.
type adaptedRealFIFO struct {
	adaptedQueue
	emitAtomicEvents, emitDeltaTypeBookmark bool // the variants bind the second to the first
	batchSize                               int
}

func newAdaptedRealFIFO(key KeyFunc, known KeyListerGetter, transformer TransformFunc) *adaptedRealFIFO {
	return newAdaptedRealFIFOWithOptions(RealFIFOOptions{KeyFunction: key, KnownObjects: known, Transformer: transformer})
}

func newAdaptedRealFIFOWithOptions(opts RealFIFOOptions) *adaptedRealFIFO {
	f := &adaptedRealFIFO{emitAtomicEvents: opts.AtomicEvents}
	f.logger, f.keyFunc = klog.Background(), opts.KeyFunction
	f.options = func() WatchlabOptions {
		o := WatchlabOptions{
			Delivery: "in-order", KeyFunction: opts.KeyFunction, KnownObjects: opts.KnownObjects,
			Transformer: opts.Transformer, BatchSize: f.batchSize,
		}
		if f.emitAtomicEvents {
			o.KnownObjects = nil
		}
		return o
	}
	return f
}

func (f *adaptedRealFIFO) PopBatch(batch ProcessBatchFunc, single PopProcessFunc) error {
	if q, ok := f.queue().(QueueWithBatch); ok {
		return q.PopBatch(batch, single)
	}
	_, err := f.Pop(single)
	return err
}

func (f *adaptedRealFIFO) Bookmark(version string) error {
	return f.queue().(ReflectorBookmarkStore).Bookmark(version)
}

func (f *adaptedRealFIFO) keyOf(obj any) (string, error) {
	if f.keyFunc == nil {
		return (&RealFIFO{keyFunc: MetaNamespaceKeyFunc}).keyOf(obj)
	}
	return (&RealFIFO{keyFunc: f.keyFunc}).keyOf(obj)
}

func (f *adaptedRealFIFO) getItems() []Delta {
	items := []Delta{}
	for _, obj := range f.peek() {
		items = append(items, obj.(Deltas)...)
	}
	return items
}

// adaptedDeltaFIFO stands for DeltaFIFO. The variants always emit Replaced, as informers ask for.
type adaptedDeltaFIFO struct {
	adaptedQueue
	emitDeltaTypeReplaced bool // false: Pop reads Replaced as Sync
}

func newAdaptedDeltaFIFO(opts DeltaFIFOOptions) *adaptedDeltaFIFO {
	f := &adaptedDeltaFIFO{emitDeltaTypeReplaced: opts.EmitDeltaTypeReplaced}
	f.logger, f.keyFunc = klog.Background(), opts.KeyFunction
	f.options = func() WatchlabOptions {
		return WatchlabOptions{
			Delivery: "per-key", KeyFunction: opts.KeyFunction, KnownObjects: opts.KnownObjects, Transformer: opts.Transformer,
		}
	}
	return f
}

func (f *adaptedDeltaFIFO) Pop(process PopProcessFunc) (any, error) {
	var got any
	_, err := f.adaptedQueue.Pop(func(obj any, initial bool) error {
		got = f.named(obj.(Deltas))
		return process(got, initial)
	})
	return got, err
}

func (f *adaptedDeltaFIFO) named(deltas Deltas) Deltas {
	out := copyDeltas(deltas)
	for i := range out {
		if out[i].Type == Replaced && !f.emitDeltaTypeReplaced {
			out[i].Type = Sync
		}
	}
	return out
}

func (f *adaptedDeltaFIFO) itemsByKey() map[string]Deltas {
	items := map[string]Deltas{}
	for i, key := range f.listKeys() {
		items[key] = f.named(f.peek()[i].(Deltas))
	}
	return items
}

func (f *adaptedDeltaFIFO) list() []any {
	list := []any{}
	for _, obj := range f.peek() {
		list = append(list, obj.(Deltas).Newest().Object)
	}
	return list
}

func (f *adaptedDeltaFIFO) listKeys() []string {
	keys := []string{}
	for _, obj := range f.peek() {
		key, err := (&DeltaFIFO{keyFunc: f.keyFunc}).KeyOf(obj)
		if err != nil {
			panic(err)
		}
		keys = append(keys, key)
	}
	return keys
}

func (f *adaptedDeltaFIFO) get(obj any) (any, bool, error) {
	key, err := (&DeltaFIFO{keyFunc: f.keyFunc}).KeyOf(obj)
	deltas, ok := f.itemsByKey()[key]
	return deltas, ok, err
}

// adaptedFIFO stands for FIFO.
type adaptedFIFO struct{ adaptedQueue }

func newAdaptedFIFO(key KeyFunc) *adaptedFIFO {
	f := &adaptedFIFO{}
	f.keyFunc = key
	f.options = func() WatchlabOptions { return WatchlabOptions{Delivery: "latest", KeyFunction: key} }
	return f
}

// items reads what is queued: it pops all objects and adds them again.
func (f *adaptedFIFO) items() (keys []string, objs []any) {
	objs = f.peek()
	f.seen = nil
	for _, obj := range objs {
		key, err := f.keyFunc(obj)
		if err == nil {
			err = f.Add(obj)
		}
		if err != nil {
			panic(err)
		}
		keys = append(keys, key)
	}
	return keys, objs
}

func (f *adaptedFIFO) List() []any {
	_, objs := f.items()
	return objs
}

func (f *adaptedFIFO) ListKeys() []string {
	keys, _ := f.items()
	return keys
}

func (f *adaptedFIFO) Get(obj any) (any, bool, error) {
	key, err := f.keyFunc(obj)
	if err != nil {
		return nil, false, KeyError{obj, err}
	}
	return f.GetByKey(key)
}

func (f *adaptedFIFO) GetByKey(key string) (any, bool, error) {
	keys, objs := f.items()
	for i := range keys {
		if keys[i] == key {
			return objs[i], true, nil
		}
	}
	return nil, false, nil
}

// newAdaptedSharedInformer stands for NewSharedInformer.
func newAdaptedSharedInformer(lw ListerWatcher, example runtime.Object, resync time.Duration) SharedIndexInformer {
	if WatchlabInformer == nil {
		return NewSharedInformer(lw, example, resync).(SharedIndexInformer)
	}
	return &adaptedInformer{SharedIndexInformer: WatchlabInformer(lw, example, resync)}
}

// adaptedInformer remembers the handles that it gave out.
type adaptedInformer struct {
	SharedIndexInformer
	mu      sync.Mutex
	handles []ResourceEventHandlerRegistration
}

func (a *adaptedInformer) keep(h ResourceEventHandlerRegistration, err error) (ResourceEventHandlerRegistration, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.handles = append(a.handles, h)
	}
	return h, err
}

func (a *adaptedInformer) AddEventHandler(h ResourceEventHandler) (ResourceEventHandlerRegistration, error) {
	return a.keep(a.SharedIndexInformer.AddEventHandler(h))
}

func (a *adaptedInformer) AddEventHandlerWithResyncPeriod(h ResourceEventHandler, period time.Duration) (ResourceEventHandlerRegistration, error) {
	return a.keep(a.SharedIndexInformer.AddEventHandlerWithResyncPeriod(h, period))
}

func (a *adaptedInformer) AddEventHandlerWithOptions(h ResourceEventHandler, opts HandlerOptions) (ResourceEventHandlerRegistration, error) {
	return a.keep(a.SharedIndexInformer.AddEventHandlerWithOptions(h, opts))
}

// isRegistered, eventHandlerCount and isStarted stand for the functions of shared_informer_test.go,
// which read fields of upstream's struct.
func isRegistered(i SharedInformer, h ResourceEventHandlerRegistration) bool {
	a, ok := i.(*adaptedInformer)
	if !ok {
		return i.(*sharedIndexInformer).processor.getListener(h) != nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, own := range a.handles {
		if own == h {
			return isActive(h)
		}
	}
	return false
}

// isActive reports whether a handler has not ended. The goroutine of a removed handler ends soon.
func isActive(h ResourceEventHandlerRegistration) bool {
	select {
	case <-h.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan():
		return false
	case <-time.After(200 * time.Millisecond):
		return true
	}
}

func eventHandlerCount(i SharedInformer) (n int) {
	a, ok := i.(*adaptedInformer)
	if !ok {
		return len(i.(*sharedIndexInformer).processor.listeners)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.handles {
		if isActive(h) {
			n++
		}
	}
	return n
}

// isStarted asks by a setter that fails once the informer is started.
func isStarted(i SharedInformer) bool { return i.SetTransform(nil) != nil }
