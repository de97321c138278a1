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
//   - A list shows a point in time: all of a Transaction or a Replace, or nothing.
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
// # What is not guaranteed
//
// The order of a list. Whether a List of all objects waits for writers: Guarantees.Unlocked says so.
package store

import (
	"maps"

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
func guarantees(unlocked bool) []impls.Guarantees {
	return []impls.Guarantees{{
		Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Consumers: impls.ManyConsumers,
		Unlocked: unlocked, HandsOver: impls.Shared, Lists: impls.PointInTime, DropIn: "cache.Indexer",
	}}
}

// complete sets the defaults.
func (o Options) complete() Options {
	if o.KeyFunction == nil {
		o.KeyFunction = cache.DeletionHandlingMetaNamespaceKeyFunc
	}
	if o.Indexers = maps.Clone(o.Indexers); o.Indexers == nil {
		o.Indexers = cache.Indexers{} // upstream adds to it
	}
	return o
}
