// Package deltafifo defines the queue between the Reflector and the store: the
// contract, its options and the variants.
//
// The contract is client-go's own ([cache.Queue], [cache.QueueWithBatch] of
// v0.37) plus Len. An instance drops into [cache.Config]:
//
//	q, err := deltafifo.New("cond", deltafifo.Options{})
//	ctrl := cache.New(&cache.Config{Queue: q, …})
//
// # Two deliveries
//
// [PerKey] is the delivery of DeltaFIFO. Pop returns all events of one key since
// its last pop, oldest first. Two consecutive Deleted deltas of a key become one.
// With KnownObjects set, Delete ignores an object that is neither queued nor
// known. With KnownObjects nil, it ignores an object that is not queued.
//
// [InOrder] is the delivery of RealFIFO. Pop returns one delta at a time, in arrival order.
// PopBatch returns at most BatchSize consecutive deltas with distinct keys. A batch ends before the
// first repeated key and at the end of the initial list. ReplacedAll, SyncAll and Bookmark deltas
// are never batched. With KnownObjects nil, Replace, Resync and Bookmark queue one delta each
// (ReplacedAll, SyncAll, Bookmark), as in today's informers. With KnownObjects set, Replace queues
// tombstones and Replaced deltas, Resync queues Sync deltas, and bookmarks are dropped.
//
// # What every variant guarantees
//
//   - No loss, no duplicates: each event that Add, Update or Delete accepts
//     is popped exactly once, apart from the merges named above.
//   - Sequential events of one key are popped in their order.
//   - HasSynced turns true once: when the items of the first Replace have
//     been processed, or at once if another call came first.
//   - After Close, queued events are still popped. Then Pop and PopBatch
//     return [cache.ErrFIFOClosed]. Close unblocks waiting callers. Producer calls
//     after Close, and those that wait for room at Close, return nil and have no
//     effect: a Reflector logs the object of a failed call. Upstream still queues
//     events.
//   - The transformer runs once per object from the API server. It never runs
//     on a tombstone or on the object of a Sync delta.
//   - The consumer owns what process receives, unless [Options.HandOver] is
//     lent.
//   - The queue keeps no reference to what it has delivered, dropped or refused,
//     and owned deltas of one pop share no memory with those of another.
//   - A panic of process leaves the queue usable.
//
// # What is not guaranteed
//
// Guarantees.Unlocked says whether producers block while process runs, and Guarantees.Throttles
// whether a long queue makes them wait for it: always with client-go's queues, with
// [Options.Throttle] here. Without it and with a slow process, the queue grows without limit. A process
// that calls its queue must not be throttled, as upstream: beyond the limit it would wait for itself.
//
// If producers do not block, Replace and Resync treat keys in process as queued. KnownObjects may
// then lag behind by the deltas in process, but not by more.
//
// The variant channel has a goroutine from New to Close. Its queue is not collected without Close,
// unlike upstream's and the other variants'.
//
// The caller gets the panic of a transformer, of a key function, also on a transformed object, and of
// KnownObjects in Replace and Resync; events that are queued are not lost. A Delete is the exception:
// the consumer looks KnownObjects up, only for a key that is not queued, and a look-up in the caller,
// as client-go's, would cost each Delete a joined key and the store's lock. If that look-up panics, the
// object counts as known, as where the store returns an error, and the deletion is delivered. With
// per-key delivery, the transformer runs also on the object of a Delete that is then ignored: the caller
// gets its error.
//
// An object without a key gives a [cache.KeyError] and is not queued.
package deltafifo

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// Queue is client-go's queue plus Len.
type Queue interface {
	cache.Queue
	// Len returns the number of queued deltas with in-order delivery, and of
	// queued keys with per-key delivery. Deltas in process do not count. O(1).
	// The result may be stale when the caller reads it.
	Len() int
}

// BatchQueue is the interface of a variant with PopBatch.
type BatchQueue interface {
	cache.QueueWithBatch
	// Len is that of [Queue].
	Len() int
}

// Delivery is the form in which the consumer receives deltas.
type Delivery string

const (
	PerKey  Delivery = "per-key"  // all queued deltas of one key together, as DeltaFIFO does
	InOrder Delivery = "in-order" // in arrival order, as RealFIFO does
)

// DefaultBatchSize is the batch size of RealFIFO (client-go v0.37, the_real_fifo.go).
const DefaultBatchSize = 1000

// Options configures a queue, in the words of client-go. The zero value is valid for every variant.
type Options struct {
	// KeyFunction returns the key of an object; nil means [cache.MetaNamespaceKeyFunc]. It must be
	// deterministic and safe for concurrent use.
	KeyFunction cache.KeyFunc
	// KnownObjects is the store of the consumer. Replace queues tombstones for known objects that
	// its list lacks. Resync queues all known objects. For nil see the package comment.
	KnownObjects cache.KeyListerGetter
	// Transformer changes objects before they are queued; nil means no change. It
	// must be safe for concurrent use.
	Transformer cache.TransformFunc
	Delivery    Delivery // [PerKey] or [InOrder]; empty means the first mode of the variant
	// Capacity is the maximum number of queued deltas; 0 means unbounded. The deltas of one Replace
	// or Resync count as one, so that they are queued together. Producers block when the queue is
	// full. They return when there is room or when the queue is closed; then nothing was queued.
	// process must not add to a bounded queue: no other goroutine makes room.
	Capacity int
	// Throttle makes producers wait while process runs, if at least 2 × BatchSize deltas were queued
	// when it began, as client-go's RealFIFO does. A call waits for one process at most. The wait
	// ends as one for room does. Each of several shards has its part of the number.
	Throttle bool
	// HandOver defines who owns the slices that process receives: [impls.Owned]
	// (also if empty) or [impls.Lent]. With Lent a pop does not allocate.
	// client-go's controller keeps no slice, so Lent is safe for it.
	HandOver  impls.Ownership
	BatchSize int // maximum number of deltas per PopBatch; 0 means [DefaultBatchSize]
	Shards    int // 0 means the variant's default
}

// Label returns the guarantees g of a variant's mode as these options change them.
func (o Options) Label(g impls.Guarantees) impls.Guarantees {
	g.Bounded = o.Capacity > 0
	if g.Throttles == impls.ThrottlesByOption {
		g.Throttles = impls.ThrottlesNever
		if o.Throttle {
			g.Throttles = impls.Throttles
		}
	}
	if o.Shards == 1 && o.Delivery == PerKey {
		g.Order = impls.OrderPerKey
	}
	if o.HandOver != "" && o.HandOver != impls.Owned {
		g.HandsOver = o.HandOver
	}
	return g
}

// Variant is an implementation of this family.
type Variant = impls.Variant[Options, Queue]

var registry = impls.NewRegistry[Options, Queue](impls.DeltaFIFO)

func init() {
	for _, v := range baselines() {
		registry.Register(v)
	}
	registry.Register(condVariant())
	registry.Register(channelVariant())
	registry.Register(ringVariant())
	registry.Register(shardedVariant())
}

// Register adds a variant from another module. It panics if the name is taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, baselines first.
func Variants() []Variant { return registry.Variants() }

// Lookup returns the named variant. The error wraps [impls.ErrUnknownVariant] and
// lists the registered names.
func Lookup(name string) (Variant, error) { return registry.Lookup(name) }

// New builds a queue of the named variant. The error wraps
// [impls.ErrUnknownVariant] or [impls.ErrOptions] and lists the allowed values.
func New(name string, opts Options) (Queue, error) { return registry.New(name, opts) }

// limits is what a variant supports; complete refuses other options.
type limits struct {
	deliveries []Delivery
	maxShards  int
	upstream   bool // a baseline: without Capacity, BatchSize and HandOver
	atomicOnly bool // KnownObjects must be nil
}

// complete checks the options against the limits of a variant and sets the defaults.
func (o Options) complete(l limits) (Options, error) {
	fail := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("%w: %s", impls.ErrOptions, fmt.Sprintf(format, args...))
	}
	if err := keys.CheckShards(o.Shards, l.maxShards); err != nil {
		return Options{}, err
	}
	if o.Delivery == "" {
		o.Delivery = l.deliveries[0]
	}
	switch {
	case o.Capacity < 0:
		return fail("Capacity %d is negative (0 means unbounded)", o.Capacity)
	case o.Capacity > 0 && l.upstream:
		return fail("Capacity %d: this variant is unbounded (allowed: 0)", o.Capacity)
	case o.Capacity > ring.MaxCapacity:
		return fail("Capacity %d is too large (allowed: 0 to %d)", o.Capacity, ring.MaxCapacity)
	case !slices.Contains(l.deliveries, o.Delivery):
		return fail("Delivery %q is not supported (allowed: %q)", o.Delivery, l.deliveries)
	case o.BatchSize < 0:
		return fail("BatchSize %d is negative (0 means %d)", o.BatchSize, DefaultBatchSize)
	case o.BatchSize > 0 && l.upstream:
		return fail("BatchSize %d cannot be set on this variant (allowed: 0)", o.BatchSize)
	case o.HandOver != "" && o.HandOver != impls.Owned && o.HandOver != impls.Lent:
		return fail("HandOver %q (allowed: %s, %s)", o.HandOver, impls.Owned, impls.Lent)
	case o.HandOver == impls.Lent && l.upstream:
		return fail("HandOver %s is not supported (allowed: %s)", impls.Lent, impls.Owned)
	case o.KnownObjects != nil && l.atomicOnly:
		return fail("KnownObjects must be nil: this variant hands over Replace and Resync as one delta each, and the consumer compares")
	}
	o.BatchSize = cmp.Or(o.BatchSize, DefaultBatchSize)
	return o, nil
}

// newVariant returns a variant that completes the options before it builds.
func newVariant(name, summary string, l limits, build func(Options) (Queue, error), g ...impls.Guarantees) Variant {
	return Variant{Name: name, Summary: summary, Guarantees: g, New: func(o Options) (Queue, error) {
		o, err := o.complete(l)
		if err != nil {
			return nil, err
		}
		return build(o)
	}}
}
