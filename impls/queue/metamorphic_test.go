package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"watchlab/impls/conformance/queuetest"
	"watchlab/impls/queue"
)

// TestMillionOperations plays the same million random operations through every
// variant, in runs of which each has its own arrangement; with the race detector
// a twentieth of them. Each hand-over is what the contract's model allows, hence
// all variants leave their consumers with the same.
func TestMillionOperations(t *testing.T) {
	const runs = 20
	total := 1_000_000
	if raced {
		total /= 20
	}
	for run := range runs {
		t.Run(fmt.Sprintf("run=%d", run), func(t *testing.T) {
			seed := rand.Uint64()
			m := queuetest.Material{Keys: []int{3, 12, 40, 150}[run%4]}
			ops := queuetest.Random(rand.New(rand.NewPCG(seed, 0)), total/runs, m.Keys)
			for _, v := range queue.Variants() {
				all := queuetest.Arrangements(v)
				a := all[run%len(all)]
				if err := queuetest.Play(v, a, m, ops); err != nil {
					t.Fatalf("seed %d: %s %v: %v\n%s", seed, v.Name, a, err, queuetest.Minimal(v, a, m, ops))
				}
			}
		})
	}
}
