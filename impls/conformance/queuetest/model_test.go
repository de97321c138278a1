package queuetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
	"watchlab/loadgen/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// families are both, with all their variants.
func families() map[string][]deltafifo.Variant {
	var queues []deltafifo.Variant
	for _, v := range queue.Variants() {
		queues = append(queues, adapt(v))
	}
	return map[string][]deltafifo.Variant{"deltafifo": deltafifo.Variants(), "queue": queues}
}

// TestModel plays random operations into each variant, with all options, and
// compares with the model. TestDifferential of the families cannot see what
// upstream lacks: capacity, lent memory, compaction, calls inside process, Close.
// rapid prints the seed and reduces a difference to a short sequence.
func TestModel(t *testing.T) {
	for family, variants := range families() {
		for _, v := range variants {
			setups, err := setupsOf(v, family == "queue")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range setups {
				if testing.Short() && deltas(s) && ours(s) && rand.IntN(4) > 0 {
					continue // There are many, and make test plays them with the race detector too.
				}
				t.Run(fmt.Sprintf("family=%s/impl=%s/%v", family, v.Name, s), func(t *testing.T) {
					rapid.Check(t, func(t *rapid.T) { testModel(t, s) })
				})
			}
		}
	}
}

func testModel(t *rapid.T, s setup) {
	keys := 6
	if s.objects {
		keys = rapid.IntRange(1, 9).Draw(t, "keys")
	} else {
		if ours(s) {
			s.BatchSize = rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "batch size")
		}
		if manyAtOnce(s) {
			s.Shards = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "shards")
		}
	}
	p, err := s.newPlayer(material{keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	draw := func(t *rapid.T, k kind) op {
		return op{kind: k, arg: rapid.Uint32Range(0, 255).Draw(t, fmt.Sprintf("%v of", k))}
	}
	inside := slices.DeleteFunc(slices.Clone(s.kinds()), func(k kind) bool {
		return k.pops() || k == addNameless || k == closeQueue
	})
	all := map[string]func(*rapid.T){}
	for _, k := range s.kinds() {
		all[k.String()] = func(t *rapid.T) {
			if k == closeQueue && rapid.IntRange(0, 19).Draw(t, "seldom") > 0 {
				t.Skip("goes on")
			}
			ops := []op{draw(t, k)}
			if k.pops() {
				for range rapid.IntRange(0, 3).Draw(t, "within") {
					ops = append(ops, draw(t, rapid.SampledFrom(inside).Draw(t, "kind")))
					ops[0].within++
				}
			}
			if _, err := p.do(ops); err != nil {
				t.Fatalf("%v: %v", k, err)
			}
		}
	}
	t.Repeat(all)
	if err := p.end(); err != nil {
		t.Fatal(err)
	}
}

// The kinds of a family. Fuzz corpora depend on their order.
var (
	deltaKinds = []kind{
		add, update, del, bury, addNameless, replace, relist, resync, bookmark, pop, popBatch, popFails, look, closeQueue,
	}
	objectKinds = []kind{add, update, del, addNameless, replace, resync, pop, popFails, look, closeQueue}
)

// kinds returns those of the setup's family.
func (s setup) kinds() []kind {
	if s.objects {
		return objectKinds
	}
	return deltaKinds
}

// decode makes operations of any bytes, two for each.
func decode(kinds []kind, data []byte) []op {
	var ops []op
	for ; len(data) >= 2; data = data[2:] {
		b := int(data[0] % 32)
		o := op{kind: kinds[b%len(kinds)], within: data[0] >> 6, arg: uint32(data[1])}
		if o.kind == closeQueue && b >= len(kinds) {
			o.kind = update // Seldom enough that something comes before.
		}
		ops = append(ops, o)
	}
	return ops
}

// newSetup makes a setup of the bits of a number, as far as a variant supports
// them.
func newSetup(knobs byte, v deltafifo.Variant, g impls.Guarantees, objects bool) setup {
	s := setup{variant: v, guarantees: g, objects: objects, path: byPop}
	s.Delivery = deltafifo.Delivery(g.Mode)
	if objects {
		if g.Bounded {
			s.Capacity = capacities[knobs&3]
		}
		if manyAtOnce(s) {
			s.Shards = []int{0, 1, 2, 64}[knobs>>2&3]
		}
		return s
	}
	s.known, s.HandOver, s.Compaction = knobs&1 != 0, impls.Owned, deltafifo.None
	if upstream(s) {
		return s
	}
	s.Capacity = capacities[knobs>>1&3]
	if knobs&8 != 0 {
		s.HandOver = impls.Lent
	}
	if knobs&16 != 0 && perKey(s) {
		s.Compaction = deltafifo.Latest
	}
	s.BatchSize = []int{0, 2, 3, 7}[knobs>>5&3]
	if manyAtOnce(s) {
		s.Shards = 1 + int(knobs>>7)*2
	}
	return s
}

// sameStates collects what the consumers of several setups end with: where they
// see every delete, all have the same.
type sameStates struct {
	want []string
	from string
}

func (c *sameStates) add(t *testing.T, s setup, state []string) {
	t.Helper()
	if !deletesSeen(s) {
		return
	}
	if c.from == "" {
		c.want, c.from = state, s.variant.Name+" "+s.String()
	}
	if !slices.Equal(state, c.want) {
		t.Fatalf("%s %v ends with\n%v\nand %s with\n%v", s.variant.Name, s, state, c.from, c.want)
	}
}

// FuzzDeltaFIFO takes the first byte for options and the others for operations.
func FuzzDeltaFIFO(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { fuzz(t, data, deltaKinds, false) })
}

// FuzzQueue does the same for family queue.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) { fuzz(t, data, objectKinds, true) })
}

func fuzz(t *testing.T, data []byte, kinds []kind, objects bool) {
	if len(data) < 3 || len(data) > 400 {
		t.Skip("too short or too long")
	}
	ops := decode(kinds, data[1:])
	failed := slices.ContainsFunc(ops, func(o op) bool { return o.kind == popFails || o.kind == closeQueue })
	m := material{keys: 8, patience: 5 * time.Second}
	family := "deltafifo"
	if objects {
		family, m.keys = "queue", 1+int(data[0]>>4)
	}
	var states sameStates
	for _, v := range families()[family] {
		for _, g := range v.Guarantees {
			s := newSetup(data[0], v, g, objects)
			state, err := s.play(m, ops)
			switch {
			case errors.Is(err, impls.ErrOptions):
			case err != nil:
				t.Fatalf("%s %v: %v\n%s", v.Name, s, err, format(ops))
			case !failed:
				states.add(t, s, state)
			}
		}
	}
}

// TestMillionOperations plays 200,000 random operations through each variant of a
// family, a million in all, in runs with options of their own.
func TestMillionOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	const runs, total = 20, 200_000
	for family, variants := range families() {
		for run := range runs {
			t.Run(fmt.Sprintf("family=%s/run=%d", family, run), func(t *testing.T) {
				objects := family == "queue"
				seed := rand.Uint64()
				keys := []int{3, 12, 100, 700}[run%4]
				if objects {
					keys = []int{3, 12, 40, 150}[run%4]
				}
				ops := setup{objects: objects}.random(rand.New(rand.NewPCG(seed, 0)), total/runs, keys)
				for i := range ops {
					if ops[i].kind == popFails && !objects {
						ops[i].kind = popBatch // So that all stores end equal.
					}
				}
				playAll(t, variants, objects, seed, material{keys: keys}, ops, run)
			})
		}
	}
}

// TestRecordedStreams plays what a real control plane sent, with pops, relists
// and resyncs in between.
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
		events := recorded.Events
		for family, variants := range families() {
			t.Run(name+"/family="+family, func(t *testing.T) {
				seed := rand.Uint64()
				rng := rand.New(rand.NewPCG(seed, 0))
				ops := []op{{kind: replace, arg: 1}}
				for i, e := range events {
					ops = append(ops, op{kind: kinds[e.Type], arg: uint32(e.KeyIndex)})
					switch roll := rng.IntN(1000); {
					case roll < 400:
						ops = append(ops, op{kind: []kind{pop, popBatch}[rng.IntN(2)], within: uint8(rng.IntN(3))})
					case roll < 450:
						ops = append(ops, op{kind: pop}, op{kind: pop})
					case roll < 470:
						ops = append(ops, op{kind: []kind{look, bookmark}[rng.IntN(2)]})
					}
					if every := 1 + len(events)/8; i%every == every/2 {
						ops = append(ops, op{kind: []kind{replace, relist, resync}[rng.IntN(3)], arg: rng.Uint32()})
					}
				}
				if family == "queue" {
					ops = slices.DeleteFunc(ops, func(o op) bool { return !slices.Contains(objectKinds, o.kind) })
					playAll(t, variants, true, seed, material{keys: recorded.Keys}, ops, -1)
				} else {
					playAll(t, variants, false, seed, material{keys: recorded.Keys}, ops, 0)
				}
			})
		}
	}
}

// playAll plays operations into all variants of a family: of deltafifo with and
// without KnownObjects and compaction, each with other knobs, of queue in
// one of their setups, or all where knobs is negative.
func playAll(t *testing.T, variants []deltafifo.Variant, objects bool, seed uint64, m material, ops []op, knobs int) {
	t.Helper()
	var states sameStates
	play := func(s setup) {
		state, err := s.play(m, ops)
		if errors.Is(err, impls.ErrOptions) {
			return // A baseline does not support all.
		}
		if err != nil {
			t.Fatalf("seed %d: %s %v: %v\n%s", seed, s.variant.Name, s, err, s.minimal(m, ops))
		}
		states.add(t, s, state)
	}
	for _, v := range variants {
		if objects {
			all, err := setupsOf(v, true)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range all {
				if knobs < 0 || i == knobs%len(all) {
					play(s)
				}
			}
			continue
		}
		for _, g := range v.Guarantees {
			own := knobs
			for known := range 2 {
				for compaction := range 2 {
					if compaction == 1 && (g.Mode != string(deltafifo.PerKey) || v.Baseline()) {
						continue
					}
					play(newSetup(byte(known|own%4<<1|(own/4+known)%2<<3|compaction<<4|(own/2)%4<<5), v, g, false))
					own++
				}
			}
		}
	}
}
