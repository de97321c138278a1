package informer

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/store"
)

// DefaultVariant is the queue of an informer with an empty Options.Variant.
const DefaultVariant = "cond"

// DefaultStore is the store of an informer with an empty Options.Store: what client-go does.
const DefaultStore = "clientgo"

// DefaultDecode is the decoder of an informer with an empty Options.Decode: what client-go does.
const DefaultDecode = "clientgo-json"

// Options configures an informer, stage by stage, each chosen by name. The zero value is valid:
// [DefaultVariant], [DefaultStore], no resyncs, no indexers. Fields other than those of the stages have the names and
// meaning of [cache.SharedIndexInformerOptions].
type Options struct {
	// Decode names the decoder in package decode, and Decoder has its options. [ForResource] and
	// [ForManager] use them; empty means [DefaultDecode]. The others take a ListerWatcher, which has
	// decoded, and refuse them. Informers with the same Decoder.Table share values.
	Decode  string
	Decoder decode.Options
	// Inflate names the reader of compressed answers in package inflate. It belongs to Decode, as Decoder
	// does; empty means [inflate.Default]. DisableCompression of a config wins.
	Inflate string
	Variant string // the queue in package deltafifo; empty means [DefaultVariant]
	// Queue has the options of the queue. KeyFunction, KnownObjects and Transformer must be nil,
	// because the informer sets them: keys are namespace/name, a queue with per-key delivery knows
	// the indexer, and SetTransform sets the transformer. An empty HandOver means [impls.Lent] if
	// the variant supports it, because the informer keeps only the objects. The queue throttles, as client-go's.
	Queue deltafifo.Options
	// Unthrottled lets the Reflector go on while the queue is long and an object is stored: the queue
	// then has no limit but Queue.Capacity.
	Unthrottled bool
	// Store names the store in package store; empty means [DefaultStore]. It is the informer's indexer.
	Store string
	// WrapQueue wraps the queue of the informer, for example with a recorder; nil
	// means no wrapper. Batches require that the result implements
	// cache.QueueWithBatch and the indexer implements cache.TransactionStore.
	WrapQueue func(deltafifo.Queue) deltafifo.Queue
	// WrapIndexer wraps the store; nil means no wrapper. A wrapper should implement [store.Swapper] if
	// the store does.
	WrapIndexer func(cache.Indexer) cache.Indexer
	Handlers    Handlers
	// ResyncPeriod is the resync period of handlers that set none, and the
	// interval of resync checks; 0 means no resyncs.
	ResyncPeriod      time.Duration
	Indexers          cache.Indexers // nil means none
	ObjectDescription string         // of the objects in the Reflector's log; empty means their type
	// Identifier names the informer in metrics. One that is not reserved produces no metrics.
	Identifier              cache.InformerNameAndResource
	InformerMetricsProvider cache.InformerMetricsProvider // nil means none; see the package comment
}

// Handlers bounds the notifications that wait for a handler, each on its own. With the zero value
// nothing bounds them, as with client-go (kubernetes/client-go#1326).
type Handlers struct {
	// Coalesce merges the updates of an object that wait for a handler: at most two notifications of an
	// object wait. No handler delays another. See the package comment for what handlers then miss.
	Coalesce bool
}

// blueprint builds the queue and the store of an informer.
type blueprint struct {
	store     func(store.Options) (store.Store, error)
	build     func(deltafifo.Options) (deltafifo.Queue, error)
	opts      deltafifo.Options
	wrap      func(deltafifo.Queue) deltafifo.Queue
	versioned bool // see impls.Guarantees.Versioned
	readOnly  bool // the decoded objects must not be changed
}

// blueprint validates the options of the queue and the name of the store. The error wraps
// [impls.ErrOptions] or [impls.ErrUnknownVariant].
func (o Options) blueprint() (blueprint, error) {
	fail := func(format string, args ...any) (blueprint, error) {
		return blueprint{}, fmt.Errorf("informer: %w: %s", impls.ErrOptions, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Decode != "" || !reflect.ValueOf(o.Decoder).IsZero():
		return fail("Decode %q is set (allowed: empty, because the ListerWatcher has decoded; use ForResource or ForManager)", o.Decode)
	case o.Inflate != "":
		return fail("Inflate %q is set (allowed: empty, because the ListerWatcher has read; use ForResource or ForManager)", o.Inflate)
	case o.Queue.KeyFunction != nil:
		return fail("Queue.KeyFunction is set (allowed: nil; an informer's keys are namespace/name)")
	case o.Queue.KnownObjects != nil:
		return fail("Queue.KnownObjects is set (allowed: nil; it is the informer's indexer)")
	case o.Queue.Transformer != nil:
		return fail("Queue.Transformer is set (allowed: nil; call SetTransform)")
	case o.ResyncPeriod < 0:
		return fail("ResyncPeriod %v is negative (0 means no resyncs)", o.ResyncPeriod)
	}
	o.Queue.Throttle = !o.Unthrottled
	v, err := deltafifo.Lookup(cmp.Or(o.Variant, DefaultVariant))
	if err != nil {
		return blueprint{}, fmt.Errorf("informer: %w", err)
	}
	s, err := store.Lookup(cmp.Or(o.Store, DefaultStore))
	if err != nil {
		return blueprint{}, fmt.Errorf("informer: %w", err)
	}
	b := blueprint{store: s.New, build: v.New, opts: o.Queue, wrap: o.WrapQueue}
	if g, ok := v.Mode(string(b.opts.Delivery)); ok {
		b.opts.Delivery, b.versioned = deltafifo.Delivery(g.Mode), g.Versioned()
	}
	if b.opts.HandOver == "" && lends(v, b.opts.Delivery) {
		b.opts.HandOver = impls.Lent
	}
	return b, nil
}

// lends reports whether a variant supports [impls.Lent].
func lends(v deltafifo.Variant, delivery deltafifo.Delivery) bool {
	q, err := v.New(deltafifo.Options{Delivery: delivery, HandOver: impls.Lent})
	if err != nil {
		return false
	}
	q.Close()
	return true
}

// queue builds the queue of an informer. Only with per-key delivery does it know the indexer. With
// in-order delivery Replace and Resync are one delta each, as in client-go's informers.
func (b blueprint) queue(known cache.KeyListerGetter, transform cache.TransformFunc) (deltafifo.Queue, error) {
	opts := b.opts
	opts.Transformer = transform
	if opts.Delivery == deltafifo.PerKey {
		opts.KnownObjects = known
	}
	q, err := b.build(opts)
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	return q, nil
}
