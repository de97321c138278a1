package informer

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// SetBuild replaces the constructor of the queue of an informer.
func SetBuild(inf cache.SharedIndexInformer, build func(deltafifo.Options) (deltafifo.Queue, error)) {
	inf.(*informer).blueprint.build = build
}

// Measure adds metrics to a queue.
var Measure = measure
