// Package queue holds the latest-object-per-key FIFO: the contract, its options
// and the variants.
//
// The contract is client-go's [cache.Queue] (v0.37) plus Len, with the meaning
// of [cache.FIFO]: a key waits at most once, and what Pop hands over is the
// newest object of that key. Delete takes the object out of the queue, so a
// deletion is never seen. Replace drops what waits and queues its list. Resync
// does nothing, as every object that is held waits already.
//
// # What every variant guarantees
//
//   - Keys come out in the order in which they began to wait; an update of a
//     waiting key keeps its place. Where Guarantees.Consumers is many, this
//     holds for the keys of each shard, and a key that a consumer has in hand
//     is passed over by the others until that one is done with it.
//   - The newest object of a key that began to wait is popped exactly
//     once, unless it is deleted or replaced away first. What a call has brought
//     that has returned is never overlooked by a Pop that begins afterwards.
//   - A Replace takes effect at one moment: no consumer sees a part of it.
//   - HasSynced turns true once, when the keys of the first Replace have been
//     processed or deleted, or at once if anything else came before it. While the
//     very first call is under way, it may be true before what that brings can be
//     seen; where a Replace overlaps that call, either may count as the first,
//     whatever the order in which they are queued. That a key of the list was
//     deleted may show at the next Pop or Len only.
//   - After Close, what waits is still popped; then Pop returns
//     [cache.ErrFIFOClosed]. Close unblocks those that wait. What comes after
//     Close is either queued and popped, as upstream, or refused with
//     [cache.ErrFIFOClosed], as by all variants of ours.
//   - A panic of process leaves the queue usable.
//
// # What is not guaranteed
//
// The order of the keys of one Replace, and the place of a key that is deleted
// and added again while it waits. Upstream counts the keys of the first Replace
// by how many are taken, so that its HasSynced may lag behind a deletion, and
// run ahead where another Replace follows; ours then wait for the list that took
// the place of the first, if that came before the last process of the first was
// about to return. Whether producers wait while process
// runs depends on the variant (see Guarantees.Unlocked).
//
// Errors: an object without a key gives a [cache.KeyError] and is not queued.
package queue

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// Queue is client-go's queue plus Len.
type Queue interface {
	cache.Queue
	// Len returns how many keys wait. O(1); the value may be out of date by
	// the time it is read.
	Len() int
}

const (
	// MaxCapacity is the largest Capacity.
	MaxCapacity = 1 << 24
	// MaxShards is the largest number of shards.
	MaxShards = 64
)

// Options build a queue. The zero value is valid for every variant.
type Options struct {
	// KeyFunction makes an object's key; nil means
	// [cache.MetaNamespaceKeyFunc]. It must be deterministic and safe for
	// concurrent use.
	KeyFunction cache.KeyFunc
	// Capacity is how many keys may wait before producers do; 0 means unbounded.
	// Only a call that brings a new key waits for room: an update of a key that
	// waits already, Delete and Replace do not, and the keys that a Replace
	// brings don't count. Who waits goes on when there is room; when Context
	// ends, whose error it returns; or when the queue is closed, when it returns
	// [cache.ErrFIFOClosed]; after an error nothing was queued. process must not
	// produce new keys into a bounded queue, as nobody else makes room.
	Capacity int
	// Context ends the waits of producers for room; nil stands for one that
	// never ends. Where there is room it is not looked at.
	Context context.Context
	// Shards is how many independent parts the queue has, at most [MaxShards];
	// 0 leaves it to the variant.
	Shards int
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

// limits is what a variant supports beyond the contract.
type limits struct {
	capacity bool
	shards   bool
}

// complete checks the options against what a variant supports and fills in the
// defaults.
func (o Options) complete(l limits) (Options, error) {
	fail := func(format string, args ...any) (Options, error) {
		return Options{}, fmt.Errorf("%w: %s", impls.ErrOptions, fmt.Sprintf(format, args...))
	}
	switch {
	case o.Capacity < 0:
		return fail("Capacity %d is negative (0 means unbounded)", o.Capacity)
	case o.Capacity > 0 && !l.capacity:
		return fail("Capacity %d: this variant is unbounded (allowed: 0)", o.Capacity)
	case o.Capacity > MaxCapacity:
		return fail("Capacity %d is too large (allowed: 0 to %d)", o.Capacity, MaxCapacity)
	case o.Shards < 0:
		return fail("Shards %d is negative (0 leaves it to the variant)", o.Shards)
	case o.Shards > 1 && !l.shards:
		return fail("Shards %d: this variant has one part (allowed: 0, 1)", o.Shards)
	case o.Shards > MaxShards:
		return fail("Shards %d are too many (allowed: 0 to %d)", o.Shards, MaxShards)
	}
	if o.KeyFunction == nil {
		o.KeyFunction = cache.MetaNamespaceKeyFunc
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	return o, nil
}
