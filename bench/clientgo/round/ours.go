//go:build ours

package round

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/informer"
)

func newInformer(impl string, lw cache.ListerWatcher, like runtime.Object) (cache.SharedIndexInformer, error) {
	return informer.New(lw, like, informer.Options{
		Variant: impl, Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
}
