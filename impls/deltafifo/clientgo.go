package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

const clientGo = "k8s.io/client-go v0.37.2" // module and version of the baselines

// baselines returns the queues of client-go:
//
//   - DeltaFIFO, which informers used until InOrderInformers was locked on in
//     v1.36.
//   - RealFIFO without its batch path. With KnownObjects it behaves as in v1.33 to
//     v1.35. Without, it is the queue of a controller that sets no ProcessBatch.
//   - RealFIFO with atomic events and PopBatch, the default of informers (v0.37).
//     It releases the lock during process while less than two batches are queued.
func baselines() []Variant {
	perKey := impls.Guarantees{
		Mode: string(PerKey), Order: impls.OrderPerKey, Coalesces: impls.CoalesceDeltas,
		Consumers: impls.OneConsumer, Throttles: impls.Throttles, DropIn: "cache.Queue",
	}
	ordered := impls.Guarantees{
		Mode: string(InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone,
		Consumers: impls.OneConsumer, Unlocked: true, Throttles: impls.Throttles, DropIn: "cache.Queue",
	}
	batched := ordered
	batched.DropIn = "cache.QueueWithBatch"
	return []Variant{
		baseline("clientgo-deltafifo", "client-go's DeltaFIFO: deltas by key under one lock, held while the handler runs",
			perKey, limits{deliveries: []Delivery{PerKey}}, newDeltaFIFO),
		baseline("clientgo-realfifo", "client-go's RealFIFO, one delta at a time (Pop); locked while processing if KnownObjects is set",
			ordered, limits{deliveries: []Delivery{InOrder}}, func(o Options) (Queue, error) {
				q, err := newRealFIFO(o)
				return popOnly{q}, err
			}),
		baseline("clientgo-realfifo-batch", "client-go's RealFIFO as informers use it by default: PopBatch, atomic events, unlocked while processing unless 2,000 wait",
			batched, limits{deliveries: []Delivery{InOrder}, atomicOnly: true}, func(o Options) (Queue, error) {
				return newRealFIFO(o)
			}),
	}
}

func baseline(name, summary string, g impls.Guarantees, l limits, build func(Options) (Queue, error)) Variant {
	l.upstream, l.maxShards = true, 1
	v := newVariant(name, summary, l, build, g)
	v.Upstream = clientGo
	return v
}

func newDeltaFIFO(o Options) (Queue, error) {
	f := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction:           o.KeyFunction,
		KnownObjects:          o.KnownObjects,
		Transformer:           o.Transformer,
		EmitDeltaTypeReplaced: true,
	})
	length, err := keys.UpstreamLen(f)
	return &upstreamDeltaFIFO{f, length}, err
}

// newRealFIFO sets the options of informers (client-go v0.37, controller.go, newQueueFIFO). Without
// KnownObjects these are atomic events, bookmarks, and an unlocked process.
func newRealFIFO(o Options) (*upstreamRealFIFO, error) {
	atomicEvents := o.KnownObjects == nil
	f := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction:           o.KeyFunction,
		KnownObjects:          o.KnownObjects,
		Transformer:           o.Transformer,
		AtomicEvents:          atomicEvents,
		UnlockWhileProcessing: atomicEvents,
		EmitDeltaTypeBookmark: atomicEvents,
	})
	length, err := keys.UpstreamLen(f)
	return &upstreamRealFIFO{f, length}, err
}

type upstreamDeltaFIFO struct {
	*cache.DeltaFIFO
	length func() int
}

func (f *upstreamDeltaFIFO) Len() int { return f.length() }

type upstreamRealFIFO struct {
	*cache.RealFIFO
	length func() int
}

func (f *upstreamRealFIFO) Len() int { return f.length() }

// popOnly hides PopBatch, so that a controller uses Pop.
type popOnly struct{ withoutBatch }

type withoutBatch interface {
	Queue
	Bookmark(resourceVersion string) error
	Transformer() cache.TransformFunc
}

var (
	_ cache.TransformingStore      = popOnly{}
	_ cache.ReflectorBookmarkStore = popOnly{}
)
