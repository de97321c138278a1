package cache_test

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"watchlab/impls/store"
)

func init() {
	variant := os.Getenv("WATCHLAB_STORE")
	if variant == "" {
		return
	}
	cache.WatchlabStore = func(key cache.KeyFunc, indexers cache.Indexers) cache.WatchlabIndexer {
		return must(store.New(variant, store.Options{KeyFunction: key, Indexers: indexers}))
	}
	cache.WatchlabUndelta = func(push func([]any), key cache.KeyFunc) cache.Store {
		return must(store.NewUndeltaStore(variant, push, store.Options{KeyFunction: key}))
	}
	made := 0
	cache.WatchlabExpiration = func(key cache.KeyFunc, deleted chan<- string, policy cache.ExpirationPolicy, c clock.Clock) cache.Store {
		made++
		v := must(store.Lookup(variant))
		build := v.New
		v.Name = fmt.Sprintf("%s-%d", variant, made)
		v.New = func(o store.Options) (store.Store, error) {
			s, err := build(o)
			return deletions{s, o.KeyFunction, deleted}, err
		}
		store.Register(v)
		return must(store.NewExpirationCache(v.Name, policy, c, store.Options{KeyFunction: key}))
	}
}

// deletions sends the keys that an ExpirationCache deletes.
type deletions struct {
	store.Store
	key     cache.KeyFunc
	deleted chan<- string
}

func (d deletions) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	err := d.Store.Transaction(txns...)
	for _, t := range txns {
		if t.Type == cache.TransactionTypeDelete {
			d.deleted <- must(d.key(t.Object))
		}
	}
	return err
}
