package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls/conformance/queuetest"
	"watchlab/impls/queue"
	"watchlab/loadgen/trace"
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

// TestRecordedStreams plays which keys a real control plane's watch streams
// added, changed and deleted, in that order, with takes, looks and now and then
// a list between them; with the race detector the beginning of each stream.
func TestRecordedStreams(t *testing.T) {
	kinds := map[watch.EventType]queuetest.Kind{
		watch.Added: queuetest.Add, watch.Modified: queuetest.Update, watch.Deleted: queuetest.Delete,
	}
	for _, name := range trace.Names() {
		if raced && name == "recorded-rollout" {
			continue // It takes a minute to decode, and is played without.
		}
		t.Run(name, func(t *testing.T) {
			s, err := trace.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			events := s.Events
			if raced {
				events = events[:min(len(events), 2000)]
			}
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			var ops []queuetest.Op
			for _, e := range events {
				ops = append(ops, queuetest.Op{Kind: kinds[e.Type], Arg: uint32(e.KeyIndex)})
				switch roll := rng.IntN(1000); {
				case roll < 500:
					ops = append(ops, queuetest.Op{Kind: queuetest.Take, Within: uint8(rng.IntN(3))})
				case roll < 520:
					ops = append(ops, queuetest.Op{Kind: queuetest.Look})
				case roll == 999:
					ops = append(ops, queuetest.Op{Kind: queuetest.Replace, Arg: rng.Uint32()})
				}
			}
			m := queuetest.Material{Keys: s.Keys}
			for _, v := range queue.Variants() {
				for _, a := range queuetest.Arrangements(v) {
					if err := queuetest.Play(v, a, m, ops); err != nil {
						t.Fatalf("seed %d: %s %v: %v\n%s", seed, v.Name, a, err, queuetest.Minimal(v, a, m, ops))
					}
				}
			}
		})
	}
}
