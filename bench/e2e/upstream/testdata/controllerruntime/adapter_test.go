package adapted_test

import (
	"os"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"watchlab/impls/decode"
	"watchlab/impls/deltafifo"
	"watchlab/impls/informer"
)

// newWatchlabCache is cache.New with our informers and decoder, unless the test brings its own.
func newWatchlabCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	name := os.Getenv("WATCHLAB_VARIANT")
	if config == nil || opts.NewInformer != nil || opts.HTTPClient != nil || name == "" {
		return cache.New(config, opts)
	}
	config, newInformer, err := informer.ForManager(config, informer.Options{
		Variant: name, Queue: deltafifo.Options{Delivery: deltafifo.Delivery(os.Getenv("WATCHLAB_DELIVERY"))},
		Decode: os.Getenv("WATCHLAB_DECODE"), Decoder: decode.Options{Scheme: opts.Scheme},
		Handlers: informer.Handlers{Coalesce: os.Getenv("WATCHLAB_HANDLERS") == "coalesce"},
	})
	if err != nil {
		return nil, err
	}
	opts.NewInformer = newInformer
	return cache.New(config, opts)
}
