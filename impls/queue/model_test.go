package queue_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls/conformance/queuetest"
	"watchlab/impls/queue"
)

// TestModel plays random operations into a variant, however arranged, and holds
// each to the contract's model. rapid prints the seed and reduces a difference
// to a short sequence.
func TestModel(t *testing.T) {
	for _, v := range queue.Variants() {
		for _, a := range queuetest.Arrangements(v) {
			t.Run(fmt.Sprintf("impl=%s/%v", v.Name, a), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					p, err := queuetest.NewPlayer(v, a, queuetest.Material{Keys: rapid.IntRange(1, 9).Draw(t, "keys")})
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
func actions(p *queuetest.Player) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){}
	for kind := queuetest.Add; kind <= queuetest.Close; kind++ {
		all[kind.String()] = func(t *rapid.T) {
			if kind == queuetest.Close && rapid.IntRange(0, 19).Draw(t, "seldom") > 0 {
				t.Skip("goes on")
			}
			ops := []queuetest.Op{draw(t, kind)}
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
var produced = []queuetest.Kind{
	queuetest.Add, queuetest.Update, queuetest.Delete, queuetest.Replace, queuetest.Resync, queuetest.Look,
}

func draw(t *rapid.T, kind queuetest.Kind) queuetest.Op {
	return queuetest.Op{Kind: kind, Arg: rapid.Uint32Range(0, 255).Draw(t, "arg")}
}
