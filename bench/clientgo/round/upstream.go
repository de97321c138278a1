//go:build !ours

package round

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// newInformer returns an informer of client-go. Programs with the tag ours have the variants of this project.
func newInformer(impl string, lw cache.ListerWatcher, like runtime.Object) (cache.SharedIndexInformer, error) {
	if impl != "" {
		return nil, fmt.Errorf("the program has no variant %q", impl)
	}
	return cache.NewSharedIndexInformer(lw, like, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), nil
}
