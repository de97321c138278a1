package store

import (
	"k8s.io/client-go/tools/cache"
)

func clientgoVariant() Variant {
	return Variant{
		Name:       "clientgo",
		Summary:    "client-go's ThreadSafeStore: maps under one lock for readers and writers",
		Upstream:   "k8s.io/client-go v0.37.2",
		Guarantees: guarantees(false),
		New: func(o Options) (Store, error) {
			o = o.complete()
			s := cache.NewIndexer(o.KeyFunction, o.Indexers, cache.WithStoreMetrics(o.Identifier, o.MetricsProvider))
			return s.(Store), nil
		},
	}
}
