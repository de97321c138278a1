package deltafifo_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls"
	"watchlab/impls/conformance/deltafifotest"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/trace"
)

// The same operations through every variant, however arranged, leave the
// consumer with the same, and come in an order that the contract's model allows.

// TestRecordedStreams plays what a real control plane sent; with the race
// detector the beginning of it.
func TestRecordedStreams(t *testing.T) {
	for _, name := range trace.Names() {
		if raced && name == "recorded-rollout" {
			continue // It takes a minute to decode, and is played without.
		}
		t.Run(name, func(t *testing.T) {
			s, err := trace.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			m := deltafifotest.Material{}
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			ops := []deltafifotest.Op{{Kind: deltafifotest.Replace, Arg: uint32(s.Initial)}}

			events := s.Events
			if raced {
				events = events[:min(len(events), s.Initial+2000)]
			}
			every := 1 + (len(events)-s.Initial)/8
			for i, e := range events {
				m.Objects = append(m.Objects, e.Object.(metav1.Object))
				if i < s.Initial {
					continue
				}
				kind := map[watch.EventType]deltafifotest.Kind{
					watch.Added: deltafifotest.Add, watch.Modified: deltafifotest.Update, watch.Deleted: deltafifotest.Delete,
				}[e.Type]
				ops = append(ops, deltafifotest.Op{Kind: kind, Arg: uint32(i)})
				ops = append(ops, around(rng)...)
				if i%every == every/2 {
					ops = append(ops, deltafifotest.Op{Kind: []deltafifotest.Kind{deltafifotest.Relist, deltafifotest.Resync}[rng.IntN(2)]})
				}
			}
			playAll(t, seed, m, ops, 0)
		})
	}
}

// around makes what comes between two events of a stream.
func around(rng *rand.Rand) []deltafifotest.Op {
	switch roll := rng.IntN(1000); {
	case roll < 300:
		return []deltafifotest.Op{{Kind: deltafifotest.TakeBatch, Within: uint8(rng.IntN(8) / 5)}}
	case roll < 400:
		return []deltafifotest.Op{{Kind: deltafifotest.Take}, {Kind: deltafifotest.Take}}
	case roll < 420:
		return []deltafifotest.Op{{Kind: deltafifotest.Bookmark}, {Kind: deltafifotest.Look}}
	default:
		return nil
	}
}

// TestMillionOperations plays a million random ones, in runs of which each has
// its own arrangement of capacity, hand-over and batch size; with the race
// detector, which finds little where one goroutine plays, some of them.
func TestMillionOperations(t *testing.T) {
	const runs = 20
	total := 1_000_000
	if raced {
		total /= 40
	}
	for run := range runs {
		t.Run(fmt.Sprintf("run=%d", run), func(t *testing.T) {
			seed := rand.Uint64()
			keys := []int{3, 12, 100, 700}[run%4]
			ops := deltafifotest.Random(rand.New(rand.NewPCG(seed, 0)), total/runs, keys)
			for i := range ops {
				if ops[i].Kind == deltafifotest.TakeFails {
					ops[i].Kind = deltafifotest.TakeBatch
				}
			}
			playAll(t, seed, deltafifotest.Material{Keys: keys}, ops, run)
		})
	}
}

// playAll plays operations into all variants.
func playAll(t *testing.T, seed uint64, m deltafifotest.Material, ops []deltafifotest.Op, knobs int) {
	var want []string
	var wantOf string
	for _, v := range deltafifo.Variants() {
		for _, g := range v.Guarantees {
			for _, a := range arrangementsOf(v, deltafifo.Delivery(g.Mode), knobs) {
				name := fmt.Sprintf("%s %v", v.Name, a)
				state, err := deltafifotest.Play(v, a, m, ops)
				if errors.Is(err, impls.ErrOptions) {
					continue // A baseline that does without.
				}
				if err != nil {
					t.Fatalf("seed %d: %s: %v\n%s", seed, name, err, deltafifotest.Minimal(v, a, m, ops))
				}
				if !a.Known && a.Delivery == deltafifo.PerKey {
					continue // The consumer need not learn of every deletion.
				}
				if wantOf == "" {
					want, wantOf = state, name
				}
				if !slices.Equal(state, want) {
					t.Fatalf("seed %d: %s leaves its consumer with\n%v\nand %s with\n%v", seed, name, state, wantOf, want)
				}
			}
		}
	}
}

// arrangementsOf returns those with and without KnownObjects and compaction, each
// with other knobs.
func arrangementsOf(v deltafifo.Variant, d deltafifo.Delivery, knobs int) []deltafifotest.Arrangement {
	var all []deltafifotest.Arrangement
	for known := range 2 {
		for compaction := range 2 {
			if compaction == 1 && (d != deltafifo.PerKey || v.Baseline()) {
				continue
			}
			all = append(all, arrange(byte(known|knobs%4<<1|(knobs/4+known)%2<<3|compaction<<4|(knobs/2)%4<<5), v, d))
			knobs++
		}
	}
	return all
}
