package queue

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

func clientgoFIFO() Variant {
	return Variant{
		Name:     "clientgo-fifo",
		Summary:  "client-go's FIFO: newest object by key under one lock, held while the handler runs",
		Upstream: "k8s.io/client-go v0.37.2",
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest,
			Consumers: impls.OneConsumer, Throttles: impls.Throttles, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(1)
			if err != nil {
				return nil, err
			}
			f := cache.NewFIFO(o.KeyFunction)
			length, err := keys.UpstreamLen(f)
			if err != nil {
				return nil, err
			}
			return &upstreamFIFO{f, length}, nil
		},
	}
}

type upstreamFIFO struct {
	*cache.FIFO
	length func() int
}

func (f *upstreamFIFO) Len() int { return f.length() }
