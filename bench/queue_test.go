package bench_test

import (
	"fmt"
	"testing"

	"watchlab/impls/queue"
)

// BenchmarkQueue measures a latest-object queue alone, as BenchmarkDeltaFIFO
// does a delta queue. Events of a key that waits are folded together, so that
// the consumer takes at most as many objects as events went in; deltas/event
// says how many.
func BenchmarkQueue(b *testing.B) {
	for _, v := range queue.Variants() {
		for _, producers := range []int{1, 8} {
			for _, skew := range []string{"uniform", "zipf"} {
				b.Run(fmt.Sprintf("impl=%s/producers=%d/keys=%d/skew=%s", v.Name, producers, keys, skew), func(b *testing.B) {
					play := newPlay(skew, producers)
					measure(b, play, func() queueUnderTest {
						q, err := queue.New(v.Name, queue.Options{})
						if err != nil {
							b.Fatal(err)
						}
						return latestQueue(q)
					}, folded, true)
				})
			}
		}
	}
}

// latestQueue adapts a latest-object queue: its consumer counts objects.
func latestQueue(q queue.Queue) queueUnderTest {
	n := 0
	single := func(any, bool) error {
		n++
		return nil
	}
	return queueUnderTest{
		update:   q.Update,
		close:    q.Close,
		consumed: func() int { return n },
		take: func() error {
			_, err := q.Pop(single)
			return err
		},
	}
}
