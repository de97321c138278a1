package clientgo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
	"watchlab/loadgen/trace"
)

// These tests play the same operations into all variants of a family, which must end in the same
// state.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// families are deltafifo and queue, with all their variants.
func families() map[string][]deltafifo.Variant {
	var queues []deltafifo.Variant
	for _, v := range queue.Variants() {
		queues = append(queues, adapt(v))
	}
	return map[string][]deltafifo.Variant{"deltafifo": deltafifo.Variants(), "queue": queues}
}

// sameStates plays operations into a queue of each variant with the given options, drains and closes
// it. Where consumers see every delete, their stores must end equal; a failing process, compare=false,
// leaves them open.
func sameStates(t *testing.T, family string, knobs func(mode int) byte, keys int, ops []op, compare bool) {
	t.Helper()
	var want []string
	from := ""
	for _, v := range families()[family] {
		for mode, g := range v.Guarantees {
			s := newSetup(knobs(mode), v, g, family == "queue")
			if s.supported() != nil {
				continue // A baseline does not support all.
			}
			p := s.newPlayer(t, keys)
			for left := ops; len(left) > 0; {
				left = left[p.do(left):]
			}
			p.end()
			if !compare || !deletesSeen(s) {
				continue
			}
			state := p.store.state()
			if from == "" {
				want, from = state, v.Name+" "+s.String()
			}
			if !slices.Equal(state, want) {
				t.Fatalf("%s %v ends with\n%v\nand %s with\n%v", v.Name, s, state, from, want)
			}
		}
	}
}

// newSetup makes a setup of the bits of a number, as far as a variant supports them.
func newSetup(knobs byte, v deltafifo.Variant, g impls.Guarantees, objects bool) queueSetup {
	s := queueSetup{variant: v, guarantees: g, objects: objects, path: byPop}
	s.Delivery = deltafifo.Delivery(g.Mode)
	if objects {
		if manyAtOnce(s) {
			s.Shards = []int{0, 1, 2, 64}[knobs>>2&3]
		}
		return s
	}
	s.known, s.HandOver = knobs&1 != 0, impls.Owned
	if upstream(s) {
		return s
	}
	s.Capacity = capacities[knobs>>1&3]
	if knobs&8 != 0 {
		s.HandOver = impls.Lent
	}
	s.BatchSize = []int{0, 2, 3, 7}[knobs>>5&3]
	if manyAtOnce(s) {
		s.Shards = 1 + int(knobs>>7)*2
	}
	return s
}

// FuzzDeltaFIFO takes the first byte for options and the others for operations, two each.
func FuzzDeltaFIFO(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { fuzz(t, "deltafifo", data, deltaKinds) })
}

// FuzzQueue does the same for family queue.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { fuzz(t, "queue", data, objectKinds) })
}

func fuzz(t *testing.T, family string, data []byte, kinds []kind) {
	if len(data) < 3 || len(data) > 400 {
		t.Skip("too short or too long")
	}
	var ops []op
	for pair := range slices.Chunk(data[1:], 2) {
		if len(pair) < 2 {
			break
		}
		b := int(pair[0] % 32)
		o := op{kind: kinds[b%len(kinds)], within: pair[0] >> 6, arg: uint32(pair[1])}
		if o.kind == closeQueue && b >= len(kinds) {
			o.kind = update // Seldom enough that something comes before.
		}
		ops = append(ops, o)
	}
	keys := 8
	if family == "queue" {
		keys = 1 + int(data[0]>>4)
	}
	failing := slices.ContainsFunc(ops, func(o op) bool { return o.kind == popFails || o.kind == closeQueue })
	sameStates(t, family, func(int) byte { return data[0] }, keys, ops, !failing)
}

// TestRecordedStreams plays what a real control plane sent, with pops, relists
// and resyncs in between, each recording with other options.
func TestRecordedStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	kinds := map[watch.EventType]kind{watch.Added: add, watch.Modified: update, watch.Deleted: del}
	for _, name := range trace.Names() {
		recorded, err := trace.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		events := recorded.Events[:min(len(recorded.Events), 1500)]
		keys := 0
		for _, e := range events {
			keys = max(keys, int(e.KeyIndex)+1)
		}
		for family := range families() {
			t.Run(name+"/family="+family, func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, 0))
				ops := []op{{kind: replace, arg: 1}}
				for n, e := range events {
					ops = append(ops, op{kind: kinds[e.Type], arg: uint32(e.KeyIndex)})
					switch roll := rng.IntN(1000); {
					case roll < 400:
						ops = append(ops, op{kind: []kind{pop, popBatch}[rng.IntN(2)], within: uint8(rng.IntN(3))})
					case roll < 450:
						ops = append(ops, op{kind: pop}, op{kind: pop})
					case roll < 470:
						ops = append(ops, op{kind: []kind{look, bookmark}[rng.IntN(2)]})
					}
					if every := 1 + len(events)/8; n%every == every/2 {
						ops = append(ops, op{kind: []kind{replace, relist, resync}[rng.IntN(3)], arg: rng.Uint32()})
					}
				}
				if family == "queue" {
					ops = slices.DeleteFunc(ops, func(o op) bool { return !slices.Contains(objectKinds, o.kind) })
				}
				knobs := [2]byte{byte(rng.Uint32()), byte(rng.Uint32())}
				sameStates(t, family, func(mode int) byte { return knobs[mode] }, keys, ops, true)
			})
		}
	}
}
