package deltafifo

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// base is embedded in all variants but the baselines.
type base struct {
	// keys, known, transformer and ctx are those of [Options].
	keys        keys.Func
	known       cache.KeyListerGetter
	transformer cache.TransformFunc
	initial     *keys.InitialList
	ctx         context.Context
	// atomicLists: Replace and Resync are one delta each (in-order delivery
	// without KnownObjects).
	atomicLists bool
	// lend: process borrows its slices ([impls.Lent]).
	lend bool
	// send queues an item and executes a command. Replace, Resync and Bookmark
	// call it. It is nil in sharded, which has its own versions of them.
	send func(item) error
}

func newBase(o Options, name string) base {
	return base{
		keys:        keys.NewFunc(o.KeyFunction),
		known:       o.KnownObjects,
		transformer: o.Transformer,
		initial:     keys.NewInitialList(name),
		ctx:         o.Context,
		atomicLists: o.Delivery == InOrder && o.KnownObjects == nil,
		lend:        o.HandOver == impls.Lent,
	}
}

// Bookmark queues a Bookmark delta, or nothing where KnownObjects is set or
// delivery is per key.
func (b *base) Bookmark(resourceVersion string) error {
	if !b.atomicLists {
		return nil
	}
	return b.send(item{obj: cache.BookmarkInfo{ResourceVersion: resourceVersion}, kind: bookmark})
}

// Resync queues one SyncAll delta with in-order delivery and KnownObjects nil; a
// Sync delta for each known object that is neither queued nor in process where
// KnownObjects is set; otherwise nothing. O(known).
func (b *base) Resync() error {
	if b.atomicLists {
		return b.send(item{obj: cache.SyncAllInfo{}, kind: syncAll})
	}
	if b.known == nil {
		return nil
	}
	return b.send(item{kind: resyncCommand})
}

// Replace queues one ReplacedAll delta with in-order delivery and KnownObjects
// nil. Otherwise it queues a Replaced delta for each object of the list, and
// tombstones for queued, processed and known objects that the list lacks; nothing
// of another call comes between them, and together they use one of Capacity.
// After an error nothing is queued. O(list + queued + known).
func (b *base) Replace(list []any, resourceVersion string) error {
	if !b.atomicLists {
		for _, obj := range list {
			if err := b.keys.Check(obj); err != nil {
				return err
			}
		}
	}
	objs, err := transformAll(b.transformer, list)
	switch {
	case err != nil:
		return err
	case b.atomicLists:
		return b.send(item{obj: cache.ReplacedAllInfo{ResourceVersion: resourceVersion, Objects: objs}, kind: replacedAll})
	default:
		return b.send(item{obj: &replacement{list: objs}, kind: replaceCommand})
	}
}

// HasSynced implements [cache.Queue].
func (b *base) HasSynced() bool { return b.initial.HasSynced() }

// HasSyncedChecker implements [cache.Queue].
func (b *base) HasSyncedChecker() cache.DoneChecker { return b.initial }

// Transformer implements [cache.TransformingStore].
func (b *base) Transformer() cache.TransformFunc { return b.transformer }
