package deltafifo_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls"
	"watchlab/impls/conformance/deltafifotest"
	"watchlab/impls/deltafifo"
)

// TestModel plays random operations into a variant, however arranged, and holds
// each to the contract's model: what upstream has no counterpart for, which
// TestDifferential can't see, is capacity, lent memory, compaction, what happens
// inside process, and Close. rapid prints the seed and reduces a difference to a
// short sequence.
func TestModel(t *testing.T) {
	for _, v := range deltafifo.Variants() {
		arrangements, err := deltafifotest.Arrangements(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range arrangements {
			if raced && !v.Baseline() && rand.IntN(4) > 0 {
				continue // There are many, and it is slow.
			}
			t.Run(fmt.Sprintf("impl=%s/%v", v.Name, a), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					a := a
					if !v.Baseline() {
						a.BatchSize = rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "batch size")
					}
					if g, _ := v.Mode(string(a.Delivery)); g.Consumers == impls.ManyConsumers {
						a.Shards = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "shards")
					}
					p, err := deltafifotest.NewPlayer(v, a, deltafifotest.Material{Keys: 6})
					if err != nil {
						t.Fatal(err)
					}
					defer p.Stop()
					t.Repeat(actions(p))
					if err := p.End(); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

// actions are the operations, of which a take draws some more for inside of
// process.
func actions(p *deltafifotest.Player) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){}
	for kind := deltafifotest.Add; kind <= deltafifotest.Close; kind++ {
		all[kind.String()] = func(t *rapid.T) {
			if kind == deltafifotest.Close && rapid.IntRange(0, 19).Draw(t, "seldom") > 0 {
				t.Skip("goes on")
			}
			ops := []deltafifotest.Op{draw(t, kind)}
			if kind.Takes() {
				for range rapid.IntRange(0, 3).Draw(t, "within") {
					ops = append(ops, draw(t, rapid.SampledFrom(produced).Draw(t, "kind")))
					ops[0].Within++
				}
			}
			if _, err := p.Do(ops); err != nil {
				t.Fatalf("%v: %v", kind, err)
			}
		}
	}
	return all
}

// produced is what may happen inside process.
var produced = []deltafifotest.Kind{
	deltafifotest.Add, deltafifotest.Update, deltafifotest.Delete, deltafifotest.Tombstone, deltafifotest.Replace,
	deltafifotest.Relist, deltafifotest.Resync, deltafifotest.Bookmark, deltafifotest.Look,
}

func draw(t *rapid.T, kind deltafifotest.Kind) deltafifotest.Op {
	return deltafifotest.Op{Kind: kind, Arg: rapid.Uint32Range(0, 11).Draw(t, fmt.Sprintf("%v of", kind))}
}
