// Package queue defines the FIFO of keys with the latest object per key: the
// contract, its options and the variants.
//
// The contract is client-go's [cache.Queue] (v0.37) plus Len, with the semantics of [cache.FIFO]. A
// key is queued at most once, and Pop returns its newest object: memory is bounded by the keys. Delete removes the object from the
// queue, so consumers never receive a deletion. Replace drops all queued keys and queues its list.
// Resync does nothing, because every object that it would add is queued already.
//
// # What every variant guarantees
//
//   - Keys are popped in the order in which they were queued. An update of a
//     queued key keeps its position. If Guarantees.Order is per-shard, this
//     holds for the keys of each shard. If Guarantees.Consumers is many, consumers
//     skip a key that is in process until its process returns.
//   - The newest object of a queued key is popped exactly once, unless Delete
//     or Replace drops it first. A Pop that begins after a call has returned
//     sees the effect of that call.
//   - Replace is atomic: no consumer sees a part of it.
//   - HasSynced turns true once: when the keys of the first Replace have been
//     processed or deleted, or at once if another call came first. During the
//     very first call, HasSynced may turn true before its effect is visible.
//     If a Replace overlaps the first call, either may count as the first.
//     The deletion of a key of the list may show only at the next Pop or Len.
//   - After Close, queued keys are still popped. Then Pop returns
//     [cache.ErrFIFOClosed]. Close unblocks waiting callers. Producer calls after
//     Close return nil and have no effect: a Reflector logs the object of a failed
//     call. Upstream still queues objects.
//   - A panic of process leaves the queue usable.
//   - The queue holds no object that it has handed over, merged or dropped, and
//     not the slice of a Replace.
//
// # What is not guaranteed
//
// The order of the keys of one Replace is undefined, as is the position of a
// queued key that is deleted and added again.
//
// Upstream counts the keys of the first Replace as they are popped. So its HasSynced may lag behind
// a deletion, and turn true early after a second Replace. The other variants wait for the second
// list, if it arrives before the last process of the first list is about to return.
//
// Guarantees.Unlocked says whether producers block while process runs.
//
// The variant channel has a goroutine from New to Close. Its queue is not collected without Close,
// unlike upstream's and the other variants'.
//
// An object without a key gives a [cache.KeyError] and is not queued. That includes a tombstone,
// unless the key function accepts it, like [cache.DeletionHandlingMetaNamespaceKeyFunc]. If the key
// function panics, or the object is a nil pointer, the caller gets the panic and nothing is queued.
package queue

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// Queue is client-go's queue plus Len.
type Queue interface {
	cache.Queue
	// Len returns the number of queued keys. O(1). The result may be stale when
	// the caller reads it.
	Len() int
}

// MaxShards is the largest number of shards.
const MaxShards = 64

// Options configures a queue. The zero value is valid for every variant.
type Options struct {
	// KeyFunction returns the key of an object; nil means [cache.MetaNamespaceKeyFunc]. It must be
	// deterministic and safe for concurrent use.
	KeyFunction cache.KeyFunc
	Shards      int // at most [MaxShards]; 0 means the variant's default
}

// Label returns the guarantees of a mode as the options change them.
func (o Options) Label(g impls.Guarantees) impls.Guarantees {
	if o.Shards == 1 {
		g.Order = impls.OrderPerKey
	}
	return g
}

// Variant is an implementation of this family.
type Variant = impls.Variant[Options, Queue]

var registry = impls.NewRegistry[Options, Queue](impls.Queue)

func init() {
	registry.Register(clientgoFIFO())
	registry.Register(condVariant())
	registry.Register(channelVariant())
	registry.Register(ringVariant())
	registry.Register(shardedVariant())
}

// Register adds a variant from another module. It panics if the name is taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, baselines first.
func Variants() []Variant { return registry.Variants() }

// New builds a queue of the named variant. The error wraps
// [impls.ErrUnknownVariant] or [impls.ErrOptions] and lists the allowed values.
func New(name string, opts Options) (Queue, error) { return registry.New(name, opts) }

// complete checks the options of a variant and sets the defaults.
func (o Options) complete(maxShards int) (Options, error) {
	if err := keys.CheckShards(o.Shards, maxShards); err != nil {
		return Options{}, err
	}
	if o.KeyFunction == nil {
		o.KeyFunction = cache.MetaNamespaceKeyFunc
	}
	return o, nil
}
