package queuetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
	"watchlab/loadgen/trace"
)

// What the conformance of the families cannot see is played here: the same long
// sequences into all variants, which must end in the same state.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// families are both, with all their variants.
func families() map[string][]deltafifo.Variant {
	var queues []deltafifo.Variant
	for _, v := range queue.Variants() {
		queues = append(queues, adapt(v))
	}
	return map[string][]deltafifo.Variant{"deltafifo": deltafifo.Variants(), "queue": queues}
}

// play plays operations into a new queue, drains and closes it. The state is that of
// the consumer's store in the end.
func (s setup) play(keys int, ops []op) (state []string, err error) {
	if err := s.supported(); err != nil {
		return nil, err
	}
	a := &attempt{}
	defer func() {
		for _, f := range slices.Backward(a.cleanups) {
			f()
		}
		if r := recover(); r != nil && r != any(a) {
			panic(r)
		}
		err = a.err
	}()
	p := s.newPlayer(a, keys)
	for len(ops) > 0 {
		ops = ops[p.do(ops):]
	}
	p.end()
	return p.store.state(), nil
}

// attempt is a test whose failure is an error. It ends by a panic with itself.
type attempt struct {
	conformance.TB
	err      error
	cleanups []func()
}

func (a *attempt) Helper()          {}
func (a *attempt) Cleanup(f func()) { a.cleanups = append(a.cleanups, f) }
func (a *attempt) Error(args ...any) {
	a.err = errors.Join(a.err, errors.New(fmt.Sprint(args...)))
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.err = errors.Join(a.err, fmt.Errorf(format, args...))
	panic(a)
}

// minimal reduces operations that [setup.play] fails with, and returns them in
// words, with the error that they still give.
func (s setup) minimal(keys int, ops []op) string {
	s.patience = 200 * time.Millisecond
	ops = shrink(ops, func(ops []op) bool {
		_, err := s.play(keys, ops)
		return err != nil
	})
	_, err := s.play(keys, ops)
	return fmt.Sprintf("reduced to %d operations, with the error: %v\n%s", len(ops), err, format(ops))
}

// random makes n operations on so many keys. Lists are rare, as they are most of the cost.
func (s setup) random(rng *rand.Rand, n, keys int) []op {
	of := func(kinds, objectKinds []kind) kind {
		if s.objects {
			kinds = objectKinds
		}
		return kinds[rng.IntN(len(kinds))]
	}
	ops := make([]op, n)
	for i := range ops {
		o := op{arg: rng.Uint32()}
		switch roll := rng.IntN(100); {
		case rng.IntN(8*keys) == 0:
			o.kind = of([]kind{replace, relist, resync}, []kind{replace})
		case roll < 8:
			o.kind = add
		case roll < 46:
			o.kind = update
		case roll < 56:
			o.kind = of([]kind{del, del, bury}, []kind{del})
		case roll < 60:
			o.kind = of([]kind{bookmark, look, addNameless, popFails}, []kind{resync, look, addNameless, popFails})
		default:
			o.kind = of([]kind{pop, popBatch}, []kind{pop})
		}
		if o.kind.pops() && rng.IntN(4) == 0 {
			o.within = uint8(rng.IntN(4))
		}
		ops[i] = o
	}
	return ops
}

// format writes operations one a line.
func format(ops []op) string {
	var b strings.Builder
	within := 0
	for i, o := range ops {
		fmt.Fprintf(&b, "%6d: ", i)
		if within > 0 {
			within--
			b.WriteString("    ")
		}
		fmt.Fprintf(&b, "%v %d", o.kind, o.arg)
		if o.kind.pops() && o.within > 0 {
			fmt.Fprintf(&b, ", and the next %d inside process", o.within)
			within = int(o.within)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// shrink removes operations that a failure does not need: halves, quarters and so
// on down to single operations. fails(ops) must be true. It calls fails O(n
// log n) times, where n is the number of needed operations.
func shrink(ops []op, fails func([]op) bool) []op {
	for size := len(ops) / 2; size > 0; {
		cut := false
		for from := 0; from < len(ops); {
			fewer := append(append([]op(nil), ops[:from]...), ops[min(len(ops), from+size):]...)
			if fails(fewer) {
				ops, cut = fewer, true
			} else {
				from += size
			}
		}
		// Retry single operations as long as one is removed: an operation may be
		// needed only by another.
		if size > 1 {
			size /= 2
		} else if !cut {
			return ops
		}
	}
	return ops
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

// newSetup makes a setup of the bits of a number, as far as a variant supports them.
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
	family, keys := "deltafifo", 8
	if objects {
		family, keys = "queue", 1+int(data[0]>>4)
	}
	var states sameStates
	for _, v := range families()[family] {
		for _, g := range v.Guarantees {
			s := newSetup(data[0], v, g, objects)
			state, err := s.play(keys, ops)
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

// TestRandomOperations plays random operations through the variants of a family, in runs with
// options of their own.
func TestRandomOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	const runs = 8
	for family, variants := range families() {
		for run := range runs {
			t.Run(fmt.Sprintf("family=%s/run=%d", family, run), func(t *testing.T) {
				objects := family == "queue"
				seed := rand.Uint64()
				// Each variant of deltafifo plays them with several options.
				keys, n := []int{3, 12, 100, 300}[run%4], 3000
				if objects {
					keys, n = []int{3, 12, 40, 150}[run%4], 10_000
				}
				ops := setup{objects: objects}.random(rand.New(rand.NewPCG(seed, 0)), n, keys)
				for i := range ops {
					if ops[i].kind == popFails && !objects {
						ops[i].kind = popBatch // So that all stores end equal.
					}
				}
				playAll(t, variants, objects, seed, keys, ops, run)
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
	for i, name := range trace.Names() {
		recorded, err := trace.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		events := recorded.Events[:min(len(recorded.Events), 1500)]
		keys := 0
		for _, e := range events {
			keys = max(keys, int(e.KeyIndex)+1)
		}
		for family, variants := range families() {
			t.Run(name+"/family="+family, func(t *testing.T) {
				seed := rand.Uint64()
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
				playAll(t, variants, family == "queue", seed, keys, ops, i)
			})
		}
	}
}

// playAll plays operations into all variants of a family: of deltafifo with and without
// KnownObjects and compaction, each with other knobs, of queue in one of their setups.
func playAll(t *testing.T, variants []deltafifo.Variant, objects bool, seed uint64, keys int, ops []op, knobs int) {
	t.Helper()
	var states sameStates
	play := func(s setup) {
		state, err := s.play(keys, ops)
		if errors.Is(err, impls.ErrOptions) {
			return // A baseline does not support all.
		}
		if err != nil {
			t.Fatalf("seed %d: %s %v: %v\n%s", seed, s.variant.Name, s, err, s.minimal(keys, ops))
		}
		states.add(t, s, state)
	}
	for _, v := range variants {
		if objects {
			all, err := setupsOf(v, true)
			if err != nil {
				t.Fatal(err)
			}
			play(all[knobs%len(all)])
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
