package queue

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/internal/keys"
)

// base is embedded in all variants but the baselines.
type base struct {
	keys    keys.Func
	ctx     context.Context
	initial *account
}

func newBase(o Options, name string) base {
	return base{keys: keys.NewFunc(o.KeyFunction), ctx: o.Context, initial: newAccount(name)}
}

func (b *base) newBacklog() backlog { return backlog{keys: b.keys, initial: b.initial} }

// Resync does nothing: every object that it would add is queued already.
func (b *base) Resync() error { return nil }

// HasSynced implements [cache.Queue].
func (b *base) HasSynced() bool { return b.initial.HasSynced() }

// HasSyncedChecker implements [cache.Queue].
func (b *base) HasSyncedChecker() cache.DoneChecker { return b.initial }

// ownVariant returns a variant of ours.
func ownVariant(name, summary string, consumers impls.Consumers, build func(Options) (Queue, error)) Variant {
	return Variant{
		Name:    name,
		Summary: summary,
		Guarantees: []impls.Guarantees{{
			Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest, Bounded: true,
			Consumers: consumers, Unlocked: true, DropIn: "cache.Queue",
		}},
		New: func(o Options) (Queue, error) {
			o, err := o.complete(limits{capacity: true, shards: consumers == impls.ManyConsumers})
			if err != nil {
				return nil, err
			}
			return build(o)
		},
	}
}
