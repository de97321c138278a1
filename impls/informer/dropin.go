package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// NewSharedIndexInformer is [cache.NewSharedIndexInformer] with the queue
// [DefaultVariant]. It has the shape of controller-runtime's
// cache.Options.NewInformer:
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Cache: cache.Options{NewInformer: informer.NewSharedIndexInformer}})
func NewSharedIndexInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	b, err := Options{}.blueprint()
	if err != nil {
		// The default variant is registered by the package that this one is
		// built on.
		panic(err)
	}
	return newInformer(lw, example, Options{ResyncPeriod: max(0, resync), Indexers: indexers}, b)
}

// Func returns a [NewSharedIndexInformer] for the queue that opts choose. The
// resync period and the indexers are those that the function is called with,
// and the indexers of opts in addition; on a name that both have, the caller's
// win. The error is as that of [New], so that the function needs none.
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

// ForFactory returns what InformerFor of a client-go SharedInformerFactory
// takes, for a client of type C, such as kubernetes.Interface. An informer that
// is put into a factory before anybody has asked it for that type is the one that
// the factory's listers and other users of the type share:
//
//	newPods, err := informer.ForFactory(&v1.Pod{}, listPods, opts)
//	factory.InformerFor(&v1.Pod{}, newPods)
//	factory.Core().V1().Pods().Lister()
//
// The informers that client-go generates have an index of namespaces, which
// their listers use; opts.Indexers should have it, too. The error is as that of
// [New].
func ForFactory[C any](example runtime.Object, lw func(C) cache.ListerWatcher, opts Options) (func(C, time.Duration) cache.SharedIndexInformer, error) {
	build, err := Func(opts)
	if err != nil {
		return nil, err
	}
	return func(client C, resync time.Duration) cache.SharedIndexInformer {
		return build(lw(client), example, resync, nil)
	}, nil
}

// merged returns the indexers of both, b's where both have a name, in a map that
// AddIndexers may add to.
func merged(a, b cache.Indexers) cache.Indexers {
	out := make(cache.Indexers, len(a)+len(b))
	for _, from := range []cache.Indexers{a, b} {
		for name, f := range from {
			out[name] = f
		}
	}
	return out
}
