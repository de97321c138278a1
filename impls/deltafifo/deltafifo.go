// Package deltafifo holds the queue between the Reflector and the store: the
// contract, its options and the variants.
//
// The contract is client-go's own ([cache.Queue], [cache.QueueWithBatch] of
// v0.37) plus Len, so that an instance drops into [cache.Config] as it is:
//
//	q, err := deltafifo.New("cond", deltafifo.Options{})
//	ctrl := cache.New(&cache.Config{Queue: q, …})
//
// # Two deliveries
//
// [PerKey] is DeltaFIFO's: Pop hands over everything that happened to one key
// since it was last popped, oldest first. Two consecutive Deleted deltas of a
// key become one. Delete of an object that is neither queued nor known is
// ignored where KnownObjects is set; where it is nil, of one that isn't queued.
//
// [InOrder] is RealFIFO's: Pop hands over one delta at a time in arrival
// order; PopBatch a run of consecutive deltas with no key twice, at most
// BatchSize of them, which ends before the first repeated key, at the end of
// the initial list, and around a ReplacedAll, SyncAll or Bookmark delta, each
// of which travels alone. With KnownObjects nil, Replace, Resync and Bookmark
// are one delta each (ReplacedAll, SyncAll, Bookmark), as today's informers
// have it; with KnownObjects set, Replace is taken apart into tombstones and
// Replaced deltas, Resync into Sync deltas, and bookmarks are dropped.
//
// # What every variant guarantees
//
//   - Nothing lost, nothing duplicated: an event accepted by Add, Update or
//     Delete is handed over exactly once, save for the folding named above.
//   - Events of one key that were added one after the other are handed over
//     in that order.
//   - HasSynced turns true once, when the items of the first Replace have been
//     processed, or at once if anything else came before it.
//   - After Close, what is queued is still handed over; then Pop and PopBatch
//     return [cache.ErrFIFOClosed]. Close unblocks those that wait. What comes
//     after Close is either queued and handed over, as upstream, or refused with
//     [cache.ErrFIFOClosed], as by all variants of ours.
//   - The transformer is applied once to each object that comes from the API
//     server; never to a tombstone nor to the object of a Sync delta.
//   - What process receives is the consumer's: it is not touched again, save
//     with [Options.HandOver] lent.
//   - A panic of process leaves the queue usable.
//
// # What is not guaranteed
//
// Whether producers wait while process runs depends on the variant (see
// Guarantees.Unlocked). Where they don't, Replace and Resync count what is
// being processed as queued, so that KnownObjects may lag behind by what is in
// process's hands, and by no more.
//
// Errors: an object without a key gives a [cache.KeyError] and is not queued.
package deltafifo

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// Queue is client-go's queue plus Len.
type Queue interface {
	cache.Queue
	// Len returns how much waits: deltas with in-order delivery, keys with
	// per-key delivery. What process holds no longer waits. O(1); the value may
	// be out of date by the time it is read.
	Len() int
}

// BatchQueue is what a variant with a batch path satisfies too.
type BatchQueue interface {
	cache.QueueWithBatch
	Len() int
}

// Delivery is the shape in which deltas reach the consumer.
type Delivery string

const (
	// PerKey delivers the accumulated deltas of one key, as DeltaFIFO does.
	PerKey Delivery = "per-key"
	// InOrder delivers deltas in arrival order, as RealFIFO does.
	InOrder Delivery = "in-order"
)

// Compaction says which waiting deltas may be dropped.
type Compaction string

const (
	// None drops nothing, save one of two deletions in a row with per-key
	// delivery.
	None Compaction = "none"
	// Latest hands over the newest delta of a key only, whatever it is: also a
	// Deleted one of an object that the consumer has never seen, and after a
	// deletion the Added one of the next object of that key. The key keeps its
	// place, so that order is kept per key: only with per-key delivery. What
	// waits is at most the keys, and some thousand events not yet folded.
	Latest Compaction = "latest"
)

// DefaultBatchSize is RealFIFO's (client-go v0.37, the_real_fifo.go).
const DefaultBatchSize = 1000

// Options build a queue. The words are client-go's. The zero value is valid
// for every variant.
type Options struct {
	// KeyFunction makes an object's key; nil means
	// [cache.MetaNamespaceKeyFunc]. It must be deterministic and safe for
	// concurrent use.
	KeyFunction cache.KeyFunc
	// KnownObjects is what the consumer of the queue holds. Replace makes
	// tombstones for those that its list lacks, Resync queues all of them.
	// Nil: see the package comment.
	KnownObjects cache.KeyListerGetter
	// Transformer is applied to objects before they are queued; nil for none.
	// It must be safe for concurrent use.
	Transformer cache.TransformFunc
	// Delivery chooses the shape; empty means the variant's first mode.
	Delivery Delivery
	// Capacity is how many deltas may wait before producers do; 0 means
	// unbounded. What Replace and Resync bring takes one place, so that they
	// stay in one piece. A producer that waits goes on when there is room; when
	// Context ends, whose error it returns; or when the queue is closed, when it
	// returns [cache.ErrFIFOClosed]; after an error nothing was queued. process
	// must not produce into a bounded queue, as nobody else makes room.
	Capacity int
	// Context ends the waits of producers for room; nil stands for one that
	// never ends. Where there is room it is not looked at.
	Context context.Context
	// Compaction says what may be dropped while it waits; empty means [None].
	Compaction Compaction
	// HandOver says whose the slices are that process gets: [impls.Owned],
	// which empty means, or [impls.Lent], with which nothing is allocated for a
	// hand-over. client-go's controller keeps none.
	HandOver impls.Ownership
	// BatchSize is the most that PopBatch hands over at once; 0 means
	// [DefaultBatchSize].
	BatchSize int
	// Shards is how many independent parts the queue has; 0 leaves it to the
	// variant.
	Shards int
}

// Label returns the guarantees of a variant's mode as these options change
// them.
func (o Options) Label(g impls.Guarantees) impls.Guarantees {
	g.Bounded = o.Capacity > 0
	if o.Compaction == Latest {
		g.Coalesces = impls.CoalesceLatest
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
	registry.Register(clientgoDeltaFIFO())
	registry.Register(clientgoRealFIFO())
	registry.Register(clientgoRealFIFOBatch())
	registry.Register(condVariant())
	registry.Register(channelVariant())
	registry.Register(ringVariant())
	registry.Register(shardedVariant())
}

// Register adds a variant from another module. It panics where the name is
// taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, the baselines first.
func Variants() []Variant { return registry.Variants() }

// Lookup returns the named variant, or an error that names those there are.
func Lookup(name string) (Variant, error) { return registry.Lookup(name) }

// New builds a queue of the named variant. The error wraps
// [impls.ErrUnknownVariant] or [impls.ErrOptions] and says what is allowed.
func New(name string, opts Options) (Queue, error) { return registry.New(name, opts) }

// limits is what a variant supports beyond the contract; complete refuses the
// rest.
type limits struct {
	deliveries []Delivery
	capacity   bool
	batch      bool
	shards     bool
	compaction bool
	lend       bool
	// atomicOnly: KnownObjects must be nil.
	atomicOnly bool
}

// complete checks the options against what a variant supports and fills in the
// defaults.
func (o Options) complete(l limits) (Options, error) {
	fail := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("%w: %s", impls.ErrOptions, fmt.Sprintf(format, args...))
	}
	if o.Delivery == "" {
		o.Delivery = l.deliveries[0]
	}
	supported := false
	for _, d := range l.deliveries {
		supported = supported || d == o.Delivery
	}
	switch {
	case o.Delivery != PerKey && o.Delivery != InOrder:
		return fail("Delivery %q (allowed: %s, %s)", o.Delivery, PerKey, InOrder)
	case !supported:
		return fail("Delivery %q is not supported (allowed: %q)", o.Delivery, l.deliveries)
	case o.Capacity < 0:
		return fail("Capacity %d is negative (0 means unbounded)", o.Capacity)
	case o.Capacity > 0 && !l.capacity:
		return fail("Capacity %d: this variant is unbounded (allowed: 0)", o.Capacity)
	case o.Capacity > ring.MaxCapacity:
		return fail("Capacity %d is too large (allowed: 0 to %d)", o.Capacity, ring.MaxCapacity)
	case o.BatchSize < 0:
		return fail("BatchSize %d is negative (0 means %d)", o.BatchSize, DefaultBatchSize)
	case o.BatchSize > 0 && !l.batch:
		return fail("BatchSize %d cannot be set on this variant (allowed: 0)", o.BatchSize)
	case o.Shards < 0:
		return fail("Shards %d is negative (0 leaves it to the variant)", o.Shards)
	case o.Shards > 1 && !l.shards:
		return fail("Shards %d: this variant has one part (allowed: 0, 1)", o.Shards)
	case o.Compaction != "" && o.Compaction != None && o.Compaction != Latest:
		return fail("Compaction %q (allowed: %s, %s)", o.Compaction, None, Latest)
	case o.Compaction == Latest && !l.compaction:
		return fail("Compaction %s is not supported (allowed: %s)", Latest, None)
	case o.Compaction == Latest && o.Delivery != PerKey:
		return fail("Compaction %s keeps order per key only: Delivery must be %s, not %s", Latest, PerKey, o.Delivery)
	case o.HandOver != "" && o.HandOver != impls.Owned && o.HandOver != impls.Lent:
		return fail("HandOver %q (allowed: %s, %s)", o.HandOver, impls.Owned, impls.Lent)
	case o.HandOver == impls.Lent && !l.lend:
		return fail("HandOver %s is not supported (allowed: %s)", impls.Lent, impls.Owned)
	case isNilPointer(o.KnownObjects):
		return fail("KnownObjects holds a nil %T (leave it unset for none)", o.KnownObjects)
	case o.KnownObjects != nil && l.atomicOnly:
		return fail("KnownObjects must be nil: this variant hands over Replace and Resync as one delta each, and the consumer compares")
	}
	if o.BatchSize == 0 {
		o.BatchSize = DefaultBatchSize
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	return o, nil
}

// isNilPointer reports an interface that isn't nil but holds a nil pointer:
// the commonest way to pass "no store" by mistake.
func isNilPointer(k cache.KeyListerGetter) bool {
	if k == nil {
		return false
	}
	v := reflect.ValueOf(k)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
