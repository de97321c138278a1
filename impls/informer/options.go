package informer

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// DefaultVariant is the queue of an informer that names none.
const DefaultVariant = "cond"

// Options build an informer. The zero value is valid: [DefaultVariant], no
// resyncs, no indexers. But for the queue, the words and their meaning are those
// of [cache.SharedIndexInformerOptions].
type Options struct {
	// Variant is the name of the queue in package deltafifo; empty means
	// [DefaultVariant].
	Variant string
	// Queue are the options of the queue. KeyFunction, KnownObjects and
	// Transformer are the informer's to set and must be nil: it knows objects by
	// namespace and name, gives a queue with per-key delivery its indexer, and
	// has its transformer from SetTransform. An empty HandOver means
	// [impls.Lent] where the variant lends, as the informer keeps nothing that it
	// is handed but the objects.
	Queue deltafifo.Options
	// NewQueue, if set, builds the queue, instead of a variant that is
	// registered. Delivery, if empty, is then in-order. It is called by New, to
	// see whether the options are allowed, and once more when the informer runs;
	// the first queue is closed at once.
	NewQueue func(deltafifo.Options) (deltafifo.Queue, error)

	// WrapQueue and WrapIndexer, where set, return what the informer uses instead
	// of the queue and the indexer that it has built, such as a recorder around
	// them. A wrapped queue has a batch path (cache.QueueWithBatch) if the wrapper
	// has one; batches need an indexer with cache.TransactionStore.
	WrapQueue   func(deltafifo.Queue) deltafifo.Queue
	WrapIndexer func(cache.Indexer) cache.Indexer

	ResyncPeriod time.Duration
	// Indexers are the indexer's. Nil for none.
	Indexers cache.Indexers
	// ObjectDescription is what the Reflector calls the objects in its log;
	// empty means their type.
	ObjectDescription string
	// Identifier names the informer in metrics. There are none unless it is
	// reserved.
	Identifier cache.InformerNameAndResource
	// InformerMetricsProvider makes the metrics; see the package comment.
	InformerMetricsProvider cache.InformerMetricsProvider
}

// blueprint is how an informer builds its queue.
type blueprint struct {
	build func(deltafifo.Options) (deltafifo.Queue, error)
	opts  deltafifo.Options
	wrap  func(deltafifo.Queue) deltafifo.Queue
}

// blueprint checks the options of the queue. The error wraps [impls.ErrOptions]
// or [impls.ErrUnknownVariant].
func (o Options) blueprint() (blueprint, error) {
	fail := func(format string, args ...any) (blueprint, error) {
		return blueprint{}, fmt.Errorf("informer: %w: %s", impls.ErrOptions, fmt.Sprintf(format, args...))
	}
	switch {
	case o.NewQueue != nil && o.Variant != "":
		return fail("both Variant %q and NewQueue are set (allowed: one of them)", o.Variant)
	case o.Queue.KeyFunction != nil:
		return fail("Queue.KeyFunction is set (allowed: nil; an informer's keys are namespace/name)")
	case o.Queue.KnownObjects != nil:
		return fail("Queue.KnownObjects is set (allowed: nil; it is the informer's indexer)")
	case o.Queue.Transformer != nil:
		return fail("Queue.Transformer is set (allowed: nil; call SetTransform)")
	case o.ResyncPeriod < 0:
		return fail("ResyncPeriod %v is negative (0 means no resyncs)", o.ResyncPeriod)
	}
	b := blueprint{build: o.NewQueue, opts: o.Queue, wrap: o.WrapQueue}
	if b.build == nil {
		name := o.Variant
		if name == "" {
			name = DefaultVariant
		}
		v, err := deltafifo.Lookup(name)
		if err != nil {
			return blueprint{}, fmt.Errorf("informer: %w", err)
		}
		if g, ok := v.Mode(string(b.opts.Delivery)); ok {
			b.opts.Delivery = deltafifo.Delivery(g.Mode)
		}
		if b.opts.HandOver == "" && lends(v, b.opts.Delivery) {
			b.opts.HandOver = impls.Lent
		}
		b.build = func(opts deltafifo.Options) (deltafifo.Queue, error) { return deltafifo.New(name, opts) }
	}
	if b.opts.Delivery == "" {
		b.opts.Delivery = deltafifo.InOrder
	}
	return b, nil
}

// lends reports whether a variant can lend what it hands over.
func lends(v deltafifo.Variant, delivery deltafifo.Delivery) bool {
	q, err := v.New(deltafifo.Options{Delivery: delivery, HandOver: impls.Lent})
	if err != nil {
		return false
	}
	q.Close()
	return true
}

// queue builds the queue of an informer. With per-key delivery it knows the
// indexer, with in-order delivery it doesn't, so that Replace and Resync come as
// one delta each: as informers had it, and have it.
func (b blueprint) queue(known cache.KeyListerGetter, transform cache.TransformFunc) (deltafifo.Queue, error) {
	opts := b.opts
	opts.Transformer = transform
	if opts.Delivery == deltafifo.PerKey {
		opts.KnownObjects = known
	}
	q, err := b.build(opts)
	switch {
	case err != nil:
		return nil, fmt.Errorf("informer: %w", err)
	case q == nil:
		return nil, fmt.Errorf("informer: %w: NewQueue returned no queue", impls.ErrOptions)
	}
	return q, nil
}
