package informer

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// NewSharedIndexInformer is [cache.NewSharedIndexInformer] with the queue [DefaultVariant]. It has
// the shape of controller-runtime's cache.Options.NewInformer:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{NewInformer: informer.NewSharedIndexInformer}})
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	b, err := Options{}.blueprint()
	if err != nil {
		// This is a bug: package deltafifo registers the default variant.
		panic(err)
	}
	return newInformer(lw, example, Options{ResyncPeriod: max(0, resync), Indexers: indexers}, b)
}

// Func returns a [NewSharedIndexInformer] with the queue of opts. The arguments of the returned
// function set the resync period and the indexers. Indexers of opts are added; for the same name
// the argument wins. The error is that of [New], so the returned function has none.
func Func(opts Options) (func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer, error) {
	b, err := opts.checked()
	if err != nil {
		return nil, err
	}
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
		o := opts
		o.ResyncPeriod, o.Indexers = max(0, resync), merged(opts.Indexers, indexers)
		return newInformer(lw, example, o, b)
	}, nil
}

// ForFactory returns the constructor for InformerFor of a client-go SharedInformerFactory with a
// client of type C, such as kubernetes.Interface. If it is registered before the first use of the
// type, the listers of the factory share this informer:
//
//	newPods, err := informer.ForFactory(&v1.Pod{}, listPods, opts)
//	factory.InformerFor(&v1.Pod{}, newPods)
//	factory.Core().V1().Pods().Lister()
//
// Generated informers of client-go have a namespace index for their listers;
// opts.Indexers should have it too. The error is that of [New].
func ForFactory[C any](example runtime.Object, lw func(C) cache.ListerWatcher, opts Options) (func(C, time.Duration) cache.SharedIndexInformer, error) {
	build, err := Func(opts)
	if err != nil {
		return nil, err
	}
	return func(client C, resync time.Duration) cache.SharedIndexInformer {
		return build(lw(client), example, resync, nil)
	}, nil
}

// merged returns a new map with the indexers of both; for the same name b wins.
func merged(a, b cache.Indexers) cache.Indexers {
	out := make(cache.Indexers, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
