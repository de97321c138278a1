package cache_test

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
	"watchlab/impls/queue"
	"watchlab/impls/store"
)

func init() {
	variant, delivery := os.Getenv("WATCHLAB_VARIANT"), os.Getenv("WATCHLAB_DELIVERY")
	shards, _ := strconv.Atoi(os.Getenv("WATCHLAB_SHARDS"))
	cache.WatchlabDelivery = delivery
	cache.WatchlabNew = func(o cache.WatchlabOptions) cache.WatchlabQueue {
		if o.Delivery == "latest" {
			return must(queue.New(upstream(variant, "fifo"), queue.Options{KeyFunction: o.KeyFunction, Shards: shards}))
		}
		return must(deltafifo.New(deltaFIFO(variant, o.Delivery, o.KnownObjects == nil), deltafifo.Options{
			KeyFunction: o.KeyFunction, KnownObjects: o.KnownObjects, Transformer: o.Transformer,
			Delivery: deltafifo.Delivery(o.Delivery), BatchSize: o.BatchSize, Shards: shards, Throttle: os.Getenv("WATCHLAB_THROTTLE") == "yes",
		}))
	}
	if of := os.Getenv("WATCHLAB_STORE"); of != "" {
		cache.WatchlabStore = func(key cache.KeyFunc, indexers cache.Indexers) cache.WatchlabIndexer {
			return must(store.New(of, store.Options{KeyFunction: key, Indexers: indexers}))
		}
	}
	if os.Getenv("WATCHLAB_INFORMER") != "" {
		handlers := informer.Handlers{Coalesce: os.Getenv("WATCHLAB_HANDLERS") == "coalesce"}
		cache.WatchlabInformer = func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration) cache.SharedIndexInformer {
			return must(informer.New(lw, example, informer.Options{
				Variant: deltaFIFO(variant, delivery, true), ResyncPeriod: resync,
				Queue:       deltafifo.Options{Delivery: deltafifo.Delivery(delivery), Shards: shards},
				Unthrottled: os.Getenv("WATCHLAB_THROTTLE") == "no", Handlers: handlers, Store: os.Getenv("WATCHLAB_STORE"),
			}))
		}
	}
}

// deltaFIFO returns the name of a variant in package deltafifo.
func deltaFIFO(variant, delivery string, atomic bool) string {
	switch {
	case delivery == "per-key":
		return upstream(variant, "deltafifo")
	case atomic:
		return upstream(variant, "realfifo-batch")
	default:
		return upstream(variant, "realfifo")
	}
}

// upstream returns the name of a variant; "clientgo" stands for the baselines of all families.
func upstream(variant, baseline string) string {
	if variant == "clientgo" {
		return "clientgo-" + baseline
	}
	return variant
}

func must[Q any](q Q, err error) Q {
	if err != nil {
		panic(fmt.Sprint("construction: ", err))
	}
	return q
}
