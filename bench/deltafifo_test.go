package bench_test

import (
	"fmt"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// BenchmarkDeltaFIFO measures a delta queue alone: producers call Update on
// 10,000 keys, one consumer takes on the batch path where the variant has one.
// An iteration plays eventsPerOp events to their end; ns/event, events/s and
// allocs/event are of one event. Every event is counted at the consumer, and a
// lost one fails the benchmark.
func BenchmarkDeltaFIFO(b *testing.B) {
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			for _, producers := range []int{1, 8} {
				for _, skew := range []string{"uniform", "zipf"} {
					b.Run(fmt.Sprintf("impl=%s/delivery=%s/producers=%d/keys=%d/skew=%s", v.Name, g.Mode, producers, keys, skew), func(b *testing.B) {
						play := newPlay(skew, producers)
						measure(b, play, func() queueUnderTest {
							q, err := deltafifo.New(v.Name, deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)})
							if err != nil {
								b.Fatal(err)
							}
							return deltaQueue(q)
						}, exactly)
					})
				}
			}
		}
	}
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
