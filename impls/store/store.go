// Package store defines the cache behind an informer: the contract, its options and the variants.
//
// The contract is client-go's [cache.Indexer] with [cache.TransactionStore] (v0.37). Objects are
// stored by key and found by the values of index functions.
//
// # What every variant guarantees
//
//   - A read that begins after a write has returned sees the write. Reads of one goroutine never go
//     backwards, neither of a key nor between a list and a key.
//   - A list or an index shows no key twice, and no key whose object lacks the value that was asked for.
//   - Guarantees.Lists says what else a list shows of writes that go on at the same time. [Variant]s
//     with [impls.PointInTime] show all of a Transaction or a Replace, or nothing.
//   - The slice of a list is the caller's. The objects are shared: nobody may change them.
//   - A late AddIndexers indexes what is stored already. It fails, and changes nothing, if one of the
//     names is taken.
//   - The store holds no object that was deleted or replaced, once no reader uses it.
//   - An object without a key gives a [cache.KeyError] and changes nothing; the other objects of its
//     Transaction are stored.
//   - A panic of an index function, as upstream's for an error of one, leaves the store usable.
//
// # Snapshots
//
// The variant snapshot publishes an immutable version of its contents after each Transaction, Replace or
// single write. A read loads the newest version once and uses only that, without a lock. So it shows
// whole batches, and the next read of the goroutine shows the same version or a newer one. Writers wait
// for each other, and no reader waits for them. If an index function panics, nothing of the call is
// stored.
//
// Of n objects, m have the value that is asked for. Get and GetByKey are O(1), List and ListKeys O(n),
// ByIndex and Index O(m), IndexKeys O(m log m), ListIndexFuncValues O(values). A write is O(1) for each
// index value that the object gains or loses; it copies the nodes that it changes, each once in a batch.
// Replace and AddIndexers are O(n).
//
// An object takes 16 bytes, its key and 16 bytes, a slot of 10 to 16 bytes, and 12 bytes in each index.
// A read in progress keeps what its version holds, and no older version.
//
// # Lists per object
//
// A variant with [impls.PerObject] changes one object at a time, with all its index values: before one
// moment all reads see the old object and its values, after it the new one and its values. A list comes
// to one object after the other. It shows each as it is then. An object that is stored and has the
// value during the whole list is in it once. Between different keys nothing is promised:
//
//   - A list may show a later write and miss an earlier one of another key.
//   - While an object moves from one index value to another, it may be in the lists of both values or of
//     neither. A list has it at most once, also if it leaves the value and comes back. Index with several
//     values is a list of one value after the other, and may miss an object that moves between them.
//   - A Transaction is a sequence of writes, and a Replace one of writes and then removals: readers may see
//     any part of it, and writers may write in between. An object that stays during a Replace is in each
//     list. After it, all reads see the new contents.
//   - ListIndexFuncValues shows the values of objects that it comes to.
//
// # What is not guaranteed
//
// The order of a list. Whether a List of all objects waits for writers: Guarantees.Unlocked says so.
package store

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// Store is an informer's cache.
type Store interface {
	cache.Indexer
	cache.TransactionStore
}

// Swapper is an optional interface of a store. An informer that knows what a write replaced needs
// neither a read before it nor a second key of the object.
type Swapper interface {
	// Swap is Transaction. It puts the object that each transaction replaced or deleted into old, which
	// is as long as transactions: nil for none, and for a transaction that failed.
	Swap(old []any, transactions ...cache.Transaction) *cache.TransactionError
}

// Options configures a store. The zero value is valid for every variant.
type Options struct {
	// KeyFunction returns the key of an object; nil means
	// [cache.DeletionHandlingMetaNamespaceKeyFunc]. It must be deterministic and safe for concurrent use.
	KeyFunction cache.KeyFunc
	Indexers    cache.Indexers // nil means none; the store copies it
	// Identifier names the store in metrics. One that is not reserved produces no metrics.
	Identifier      cache.InformerNameAndResource
	MetricsProvider cache.InformerMetricsProvider // nil means the one that client-go was given
}

// Variant is an implementation of this family.
type Variant = impls.Variant[Options, Store]

var registry = impls.NewRegistry[Options, Store](impls.Store)

func init() {
	registry.Register(clientgoVariant())
	registry.Register(snapshotVariant())
	registry.Register(concurrentMapVariant())
}

// Register adds a variant from another module. It panics if the name is taken.
func Register(v Variant) { registry.Register(v) }

// Variants returns the variants, baselines first.
func Variants() []Variant { return registry.Variants() }

// Lookup returns the named variant. The error wraps [impls.ErrUnknownVariant] and lists the registered
// names.
func Lookup(name string) (Variant, error) { return registry.Lookup(name) }

// New builds a store of the named variant. The error wraps [impls.ErrUnknownVariant] or
// [impls.ErrOptions].
func New(name string, opts Options) (Store, error) { return registry.New(name, opts) }

// guarantees are those that all variants share. Stores are read and written by many goroutines.
func guarantees(lists impls.Consistency, unlocked bool) []impls.Guarantees {
	return []impls.Guarantees{{
		Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Consumers: impls.ManyConsumers,
		Unlocked: unlocked, HandsOver: impls.Shared, Lists: lists, DropIn: "cache.Indexer",
	}}
}

// complete sets the defaults.
func (o Options) complete() Options {
	if o.KeyFunction == nil {
		o.KeyFunction = cache.DeletionHandlingMetaNamespaceKeyFunc
	}
	return o
}
