package queue_test

import (
	"testing"
	"time"

	"watchlab/impls"
	"watchlab/impls/conformance/queuetest"
	"watchlab/impls/queue"
)

// FuzzOps takes the first byte for an arrangement and the others for operations,
// and plays them into every variant beside the contract's model.
func FuzzOps(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 3 || len(data) > 400 {
			t.Skip("nothing to do, or too much")
		}
		ops := queuetest.Decode(data[1:])
		for _, v := range queue.Variants() {
			a := arrange(data[0], v)
			m := queuetest.Material{Keys: 1 + int(data[0]>>4), Patience: 5 * time.Second}
			if err := queuetest.Play(v, a, m, ops); err != nil {
				t.Fatalf("%s %v: %v\n%s", v.Name, a, err, queuetest.Format(ops))
			}
		}
	})
}

// arrange makes an arrangement of the bits of a number, as far as a variant has
// it.
func arrange(knobs byte, v queue.Variant) queuetest.Arrangement {
	var a queuetest.Arrangement
	if v.Guarantees[0].Bounded {
		a.Capacity = queuetest.Capacities[knobs&3]
	}
	if v.Guarantees[0].Consumers == impls.ManyConsumers {
		a.Shards = []int{0, 1, 2, 64}[knobs>>2&3]
	}
	return a
}
