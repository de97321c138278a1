package deltafifo_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

type knownNothing struct{}

func (*knownNothing) ListKeys() []string                 { return nil }
func (*knownNothing) GetByKey(string) (any, bool, error) { return nil, false, nil }

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		impl string
		opts deltafifo.Options
		is   error
		says string
	}{
		{"nobody", deltafifo.Options{}, impls.ErrUnknownVariant, `deltafifo: unknown variant "nobody" (have clientgo-deltafifo, clientgo-realfifo, clientgo-realfifo-batch, cond`},
		{"", deltafifo.Options{}, impls.ErrUnknownVariant, `unknown variant ""`},
		{"cond", deltafifo.Options{Delivery: "both"}, impls.ErrOptions, `deltafifo cond: invalid options: Delivery "both" is not supported (allowed: ["in-order" "per-key"])`},
		{"clientgo-deltafifo", deltafifo.Options{Delivery: deltafifo.InOrder}, impls.ErrOptions, `Delivery "in-order" is not supported (allowed: ["per-key"])`},
		{"clientgo-realfifo", deltafifo.Options{Delivery: deltafifo.PerKey}, impls.ErrOptions, `(allowed: ["in-order"])`},
		{"clientgo-realfifo-batch", deltafifo.Options{KnownObjects: &knownNothing{}}, impls.ErrOptions, "KnownObjects must be nil"},
		{"cond", deltafifo.Options{Capacity: -1}, impls.ErrOptions, "Capacity -1 is negative (0 means unbounded)"},
		{"clientgo-deltafifo", deltafifo.Options{Capacity: 8}, impls.ErrOptions, "Capacity 8: this variant is unbounded (allowed: 0)"},
		{"ring", deltafifo.Options{Capacity: 1<<24 + 1}, impls.ErrOptions, "Capacity 16777217 is too large (allowed: 0 to 16777216)"},
		{"cond", deltafifo.Options{HandOver: impls.Shared}, impls.ErrOptions, `HandOver "shared" (allowed: owned, lent)`},
		{"clientgo-realfifo", deltafifo.Options{HandOver: impls.Lent}, impls.ErrOptions, "HandOver lent is not supported (allowed: owned)"},
		{"cond", deltafifo.Options{BatchSize: -5}, impls.ErrOptions, "BatchSize -5 is negative (0 means 1000)"},
		{"clientgo-realfifo-batch", deltafifo.Options{BatchSize: 5}, impls.ErrOptions, "BatchSize 5 cannot be set on this variant (allowed: 0)"},
		{"cond", deltafifo.Options{Shards: -2}, impls.ErrOptions, "Shards -2 is negative"},
		{"cond", deltafifo.Options{Shards: 2}, impls.ErrOptions, "Shards 2: this variant has one part (allowed: 0, 1)"},
	} {
		q, err := deltafifo.New(c.impl, c.opts)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || q != nil {
			t.Errorf("New(%q, %+v) returned a %T, %v; want an error that says %q", c.impl, c.opts, q, err, c.says)
		}
	}
	// What is allowed: the zero value, one shard, the default delivery by name.
	for _, v := range deltafifo.Variants() {
		for _, o := range []deltafifo.Options{{}, {Shards: 1}, {Delivery: deltafifo.Delivery(v.Guarantees[0].Mode)}, {KeyFunction: cache.MetaNamespaceKeyFunc}} {
			q, err := v.New(o)
			if err != nil {
				t.Errorf("%s: New(%+v): %v", v.Name, o, err)
				continue
			}
			q.Close()
		}
	}
}
