package bench_test

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// BenchmarkDeltaFIFO measures a delta queue alone: producers call Update on
// 10,000 keys, one consumer takes on the batch path where the variant has one.
// An iteration plays eventsPerOp events to their end; ns/event, events/s and
// allocs/event are of one event. Every event is counted at the consumer, and a
// lost one fails the benchmark.
//
// handover=lent and a capacity are options that upstream doesn't have: with the
// former the consumer may not keep the slices that it is handed, with the latter
// producers wait. A ratio across them is one of unequal guarantees.
func BenchmarkDeltaFIFO(b *testing.B) {
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			for _, o := range arrangements(v, deltafifo.Delivery(g.Mode)) {
				for _, producers := range []int{1, 8} {
					for _, skew := range []string{"uniform", "zipf"} {
						name := fmt.Sprintf("impl=%s/delivery=%s/handover=%s/capacity=%d/producers=%d/keys=%d/skew=%s",
							v.Name, g.Mode, o.HandOver, o.Capacity, producers, keys, skew)
						b.Run(name, func(b *testing.B) {
							play := newPlay(skew, producers)
							measure(b, play, func() queueUnderTest {
								q, err := v.New(o)
								if err != nil {
									b.Fatal(err)
								}
								return deltaQueue(q)
							}, exactly, g.Mode == string(deltafifo.PerKey))
						})
					}
				}
			}
		}
	}
}

// arrangements are the options that a variant is measured with: upstream's
// ways, and those that it has beyond them.
func arrangements(v deltafifo.Variant, d deltafifo.Delivery) []deltafifo.Options {
	var supported []deltafifo.Options
	for _, o := range []deltafifo.Options{
		{Delivery: d, HandOver: impls.Owned},
		{Delivery: d, HandOver: impls.Lent},
		{Delivery: d, HandOver: impls.Lent, Capacity: 4096},
	} {
		if q, err := v.New(o); err == nil {
			q.Close()
			supported = append(supported, o)
		}
	}
	return supported
}

// deltaQueue adapts a delta queue: its consumer counts deltas.
func deltaQueue(q deltafifo.Queue) queueUnderTest {
	n := 0
	single := func(obj any, _ bool) error {
		n += len(obj.(cache.Deltas))
		return nil
	}
	t := queueUnderTest{update: q.Update, close: q.Close, consumed: func() int { return n }}
	if batched, ok := q.(deltafifo.BatchQueue); ok {
		batch := func(deltas []cache.Delta, _ bool) error {
			n += len(deltas)
			return nil
		}
		t.take = func() error { return batched.PopBatch(batch, single) }
	} else {
		t.take = func() error {
			_, err := q.Pop(single)
			return err
		}
	}
	return t
}
