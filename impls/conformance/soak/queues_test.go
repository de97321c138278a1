package soak_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
)

// capacities of a bounded instance, one of which is drawn for each.
var capacities = []int{0, 1, 7, 1024}

func consumersOf(g impls.Guarantees, rng *rand.Rand) int {
	if g.Consumers == impls.ManyConsumers {
		return 1 + rng.IntN(4)
	}
	return 1 + rng.IntN(2) // Two take turns.
}

func deltafifoCells() []cell {
	var cells []cell
	for _, v := range deltafifo.Variants() {
		if v.Baseline() {
			continue
		}
		for _, g := range v.Guarantees {
			cells = append(cells, cell{fmt.Sprintf("deltafifo/%s/%s", v.Name, g.Mode), func(t *testing.T, rng *rand.Rand, m *meter) {
				o := deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)}
				store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)

				if o.Delivery == deltafifo.PerKey || rng.IntN(2) == 0 {
					o.KnownObjects = store
				}
				if g.Bounded {
					o.Capacity = capacities[rng.IntN(len(capacities))]
				}
				if o.Delivery == deltafifo.PerKey && rng.IntN(3) == 0 {
					o.Compaction = deltafifo.Latest
				}
				o.HandOver = []impls.Ownership{impls.Owned, impls.Lent}[rng.IntN(2)]
				o.BatchSize = []int{0, 3, 100}[rng.IntN(3)]
				q, err := v.New(o)
				if err != nil {
					t.Fatalf("New(%+v): %v", o, err)
				}
				playKeyed(t, rng, m, subject{
					queue: q, take: takeDeltas(q), store: store, deletions: true,
					exact: o.Compaction != deltafifo.Latest, consumers: consumersOf(g, rng),
				})
				if t.Failed() {
					t.Logf("options: capacity %d, compaction %q, hand-over %s, batch size %d, known %t",
						o.Capacity, o.Compaction, o.HandOver, o.BatchSize, o.KnownObjects != nil)
				}
			}})
		}
	}
	return cells
}

// takeDeltas takes by either path.
func takeDeltas(q deltafifo.Queue) func(*rand.Rand, func([]cache.Delta) error) error {
	return func(rng *rand.Rand, handle func([]cache.Delta) error) error {
		single := func(obj any, _ bool) error { return handle(obj.(cache.Deltas)) }
		if b, ok := q.(deltafifo.BatchQueue); ok && rng.IntN(4) > 0 {
			return b.PopBatch(func(deltas []cache.Delta, _ bool) error { return handle(deltas) }, single)
		}
		_, err := q.Pop(single)
		return err
	}
}

func queueCells() []cell {
	var cells []cell
	for _, v := range queue.Variants() {
		if v.Baseline() {
			continue
		}
		g := v.Guarantees[0]
		cells = append(cells, cell{"queue/" + v.Name, func(t *testing.T, rng *rand.Rand, m *meter) {
			o := queue.Options{}
			if g.Bounded {
				o.Capacity = capacities[rng.IntN(len(capacities))]
			}
			q, err := v.New(o)
			if err != nil {
				t.Fatalf("New(%+v): %v", o, err)
			}
			playKeyed(t, rng, m, subject{
				queue: q, consumers: consumersOf(g, rng),
				take: func(_ *rand.Rand, handle func([]cache.Delta) error) error {
					_, err := q.Pop(func(obj any, _ bool) error {
						return handle([]cache.Delta{{Type: cache.Updated, Object: obj}})
					})
					return err
				},
			})
			if t.Failed() {
				t.Logf("options: capacity %d", o.Capacity)
			}
		}})
	}
	return cells
}
