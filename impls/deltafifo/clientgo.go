package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// clientGo is the module and version of the baselines.
const clientGo = "k8s.io/client-go v0.37.2"

// clientgoDeltaFIFO is client-go's DeltaFIFO, which informers used until
// InOrderInformers was locked on in v1.36.
func clientgoDeltaFIFO() Variant {
	return Variant{
		Name:     "clientgo-deltafifo",
		Summary:  "client-go's DeltaFIFO: deltas by key under one lock, held while the handler runs",
		Upstream: clientGo,
		Guarantees: []impls.Guarantees{{
			Mode: string(PerKey), Order: impls.OrderPerKey, Coalesces: impls.CoalesceDeltas,
			Consumers: impls.OneConsumer, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{deliveries: []Delivery{PerKey}})
			if err != nil {
				return nil, err
			}
			f := cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
				KeyFunction:           o.KeyFunction,
				KnownObjects:          o.KnownObjects,
				Transformer:           o.Transformer,
				EmitDeltaTypeReplaced: true,
			})
			length, err := keys.UpstreamLen(f)
			if err != nil {
				return nil, err
			}
			return &upstreamDeltaFIFO{f, length}, nil
		},
	}
}

// clientgoRealFIFO is client-go's RealFIFO without its batch path. With
// KnownObjects it behaves as in v1.33 to v1.35. Without, it is the queue of a
// controller that sets no ProcessBatch.
func clientgoRealFIFO() Variant {
	return Variant{
		Name:     "clientgo-realfifo",
		Summary:  "client-go's RealFIFO, one delta at a time (Pop); locked while processing if KnownObjects is set",
		Upstream: clientGo,
		Guarantees: []impls.Guarantees{{
			Mode: string(InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{deliveries: []Delivery{InOrder}})
			if err != nil {
				return nil, err
			}
			q, err := newRealFIFO(o)
			if err != nil {
				return nil, err
			}
			return popOnly{q}, nil
		},
	}
}

// clientgoRealFIFOBatch is the default of informers (v0.37): RealFIFO with atomic
// events and PopBatch. It releases the lock during process while less than two
// batches are queued.
func clientgoRealFIFOBatch() Variant {
	return Variant{
		Name:     "clientgo-realfifo-batch",
		Summary:  "client-go's RealFIFO as informers use it by default: PopBatch, atomic events, unlocked while processing unless 2,000 wait",
		Upstream: clientGo,
		Guarantees: []impls.Guarantees{{
			Mode: string(InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone,
			Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.QueueWithBatch",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{deliveries: []Delivery{InOrder}, atomicOnly: true})
			if err != nil {
				return nil, err
			}
			return newRealFIFO(o)
		},
	}
}

// newRealFIFO sets the options of informers (client-go v0.37, controller.go,
// newQueueFIFO). Without KnownObjects these are atomic events, bookmarks, and an
// unlocked process.
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
	if err != nil {
		return nil, err
	}
	return &upstreamRealFIFO{f, length}, nil
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
type popOnly struct{ q *upstreamRealFIFO }

var (
	_ Queue                        = popOnly{}
	_ cache.TransformingStore      = popOnly{}
	_ cache.ReflectorBookmarkStore = popOnly{}
)

func (p popOnly) Add(obj any) error                             { return p.q.Add(obj) }
func (p popOnly) Update(obj any) error                          { return p.q.Update(obj) }
func (p popOnly) Delete(obj any) error                          { return p.q.Delete(obj) }
func (p popOnly) Replace(list []any, rv string) error           { return p.q.Replace(list, rv) }
func (p popOnly) Resync() error                                 { return p.q.Resync() }
func (p popOnly) Bookmark(rv string) error                      { return p.q.Bookmark(rv) }
func (p popOnly) Transformer() cache.TransformFunc              { return p.q.Transformer() }
func (p popOnly) Pop(process cache.PopProcessFunc) (any, error) { return p.q.Pop(process) }
func (p popOnly) HasSynced() bool                               { return p.q.HasSynced() }
func (p popOnly) HasSyncedChecker() cache.DoneChecker           { return p.q.HasSyncedChecker() }
func (p popOnly) IsClosed() bool                                { return p.q.IsClosed() }
func (p popOnly) Close()                                        { p.q.Close() }
func (p popOnly) Len() int                                      { return p.q.Len() }
