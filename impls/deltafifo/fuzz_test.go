package deltafifo_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"watchlab/impls"
	"watchlab/impls/conformance/deltafifotest"
	"watchlab/impls/deltafifo"
)

// FuzzOps takes the first byte for an arrangement and the others for operations,
// and plays them into every variant beside the contract's model. Where the
// consumer learns of everything, all variants leave it with the same.
func FuzzOps(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 3 || len(data) > 400 {
			t.Skip("nothing to do, or too much")
		}
		knobs, ops := data[0], deltafifotest.Decode(data[1:])
		failed := false
		for _, op := range ops {
			failed = failed || op.Kind == deltafifotest.TakeFails || op.Kind == deltafifotest.Close
		}
		var first []string
		begun := false
		for _, v := range deltafifo.Variants() {
			for _, g := range v.Guarantees {
				a := arrange(knobs, v, deltafifo.Delivery(g.Mode))
				state, err := deltafifotest.Play(v, a, deltafifotest.Material{Keys: 8, Patience: 5 * time.Second}, ops)
				switch {
				case errors.Is(err, impls.ErrOptions):
					continue
				case err != nil:
					t.Fatalf("%s %v: %v\n%s", v.Name, a, err, deltafifotest.Format(ops))
				case failed || !a.Known && a.Delivery == deltafifo.PerKey:
					continue
				}
				if !begun {
					first, begun = state, true
				}
				if !slices.Equal(state, first) {
					t.Fatalf("%s %v leaves its consumer with %v, the first with %v\n%s", v.Name, a, state, first, deltafifotest.Format(ops))
				}
			}
		}
	})
}

// arrange makes an arrangement of the bits of a number, as far as a variant has
// it.
func arrange(knobs byte, v deltafifo.Variant, d deltafifo.Delivery) deltafifotest.Arrangement {
	a := deltafifotest.Arrangement{Delivery: d, Known: knobs&1 != 0, HandOver: impls.Owned, Compaction: deltafifo.None}
	if v.Baseline() {
		return a
	}
	a.Capacity = deltafifotest.Capacities[knobs>>1&3]
	if knobs&8 != 0 {
		a.HandOver = impls.Lent
	}
	if knobs&16 != 0 && d == deltafifo.PerKey {
		a.Compaction = deltafifo.Latest
	}
	a.BatchSize = []int{0, 2, 3, 7}[knobs>>5&3]
	if g, _ := v.Mode(string(d)); g.Consumers == impls.ManyConsumers {
		a.Shards = 1 + int(knobs>>7)*2
	}
	return a
}
