// Package deltafifotest is the conformance suite of the deltafifo family. Every
// variant passes it, upstream's own included: where a baseline fails, the suite
// is wrong. A check is named after the guarantee it holds the variant to; see
// the package comment of watchlab/impls/deltafifo for what they mean.
//
// [Run] is the suite. What it can't write down as a script it holds to [Model],
// the contract as a sequential machine: random operations, played by a [Player],
// and small concurrent histories.
package deltafifotest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// Run holds a variant to the family's contract: in each of its modes, with
// KnownObjects and without, on each path on which it can be taken from, at each
// of [Capacities], with owned and lent memory and each compaction; what depends
// on who runs when, at GOMAXPROCS 1, 2 and 8.
func Run(t *testing.T, v deltafifo.Variant) {
	arrangements, err := Arrangements(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range arrangements {
		g, _ := v.Mode(string(a.Delivery))
		b := bed{Arrangement: a, variant: v, guarantees: g}
		_, batched := b.new(t).queue.(deltafifo.BatchQueue)
		if want := map[bool]string{true: "cache.QueueWithBatch", false: "cache.Queue"}[batched]; g.DropIn != want {
			t.Errorf("guarantees say that it drops in as %q, it is a %s", g.DropIn, want)
		}
		for _, p := range []path{byPop, byBatch} {
			if b.path = p; batched || p == byPop {
				t.Run(fmt.Sprintf("%v/path=%s", a, p), func(t *testing.T) { b.run(t) })
			}
		}
	}
}

// run runs the checks that are for this bed: scripts once, the others with each
// number of processors.
func (b bed) run(t *testing.T) {
	for _, c := range checks {
		if c.isFor(b) && !c.concurrent {
			t.Run(c.name, func(t *testing.T) { c.run(t, b) })
		}
	}
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			for _, c := range checks {
				if c.isFor(b) && c.concurrent {
					t.Run(c.name, func(t *testing.T) { c.run(t, b) })
				}
			}
		})
	}
}

// check is one guarantee and the test that holds a variant to it.
type check struct {
	name string

	applies func(bed) bool

	places int

	concurrent bool
	run        func(*testing.T, bed)
}

func (c check) isFor(b bed) bool {
	return (c.applies == nil || c.applies(b)) && (b.Capacity == 0 || c.places <= b.Capacity)
}

func inOrder(b bed) bool    { return b.Delivery == deltafifo.InOrder }
func perKey(b bed) bool     { return b.Delivery == deltafifo.PerKey }
func unlocked(b bed) bool   { return b.guarantees.Unlocked && !(b.upstream() && b.Known) }
func known(b bed) bool      { return b.Known }
func whole(b bed) bool      { return inOrder(b) && !b.Known }
func takenApart(b bed) bool { return !whole(b) }
func batched(b bed) bool    { return b.path == byBatch }
func bounded(b bed) bool    { return b.Capacity > 0 }
func latest(b bed) bool     { return b.latest() }
func everyDelta(b bed) bool { return !b.latest() }
func lent(b bed) bool       { return b.lent() }
func owned(b bed) bool      { return !b.lent() }
func ours(b bed) bool       { return !b.upstream() }
func manyAtOnce(b bed) bool { return b.guarantees.Consumers == impls.ManyConsumers }
func oneAtATime(b bed) bool { return ours(b) && !manyAtOnce(b) }

// all is for guarantees of arrangements that have several properties.
func all(of ...func(bed) bool) func(bed) bool {
	return func(b bed) bool {
		return !slices.ContainsFunc(of, func(f func(bed) bool) bool { return !f(b) })
	}
}

var checks = slices.Concat(orderChecks, lifecycleChecks, listChecks, roomChecks, memoryChecks, concurrentChecks)

// bed is one arrangement that the checks run in.
type bed struct {
	Arrangement
	variant    deltafifo.Variant
	guarantees impls.Guarantees
	path       path
}

func (b bed) upstream() bool { return b.variant.Baseline() }

// fifo: keys come out in the order in which they began to wait. Among many
// consumers nothing is promised between keys, save with one shard.
func (b bed) fifo() bool { return !manyAtOnce(b) || b.Shards == 1 }

// inOneShard returns the bed with the order between keys that upstream has.
func (b bed) inOneShard() bed {
	if manyAtOnce(b) {
		b.Shards = 1
	}
	return b
}

// path is how the consumer takes.
type path string

const (
	byPop   path = "Pop"
	byBatch path = "PopBatch"
)

// handover is one call of process.
type handover struct {
	deltas  []cache.Delta
	initial bool
	batch   bool
}

// takeFrom takes once and returns what take returned.
func takeFrom(q deltafifo.Queue, p path, process func(handover) error) error {
	single := func(obj any, initial bool) error {
		deltas, ok := obj.(cache.Deltas)
		if !ok {
			return fmt.Errorf("process was handed a %T, not cache.Deltas", obj)
		}
		return process(handover{deltas: deltas, initial: initial})
	}
	if p == byPop {
		_, err := q.Pop(single)
		return err
	}
	return q.(deltafifo.BatchQueue).PopBatch(func(deltas []cache.Delta, initial bool) error {
		return process(handover{deltas: deltas, initial: initial, batch: true})
	}, single)
}

// rig is a queue under test with the store that its consumer fills.
type rig struct {
	bed
	t     *testing.T
	queue deltafifo.Queue
	store *store

	taken []handover

	during func(deltas []cache.Delta)
}

func (b bed) new(t *testing.T, set ...func(*deltafifo.Options)) *rig {
	t.Helper()
	r := &rig{bed: b, t: t, store: newStore()}
	opts := b.Options(r.store)
	for _, s := range set {
		s(&opts)
	}
	q, err := b.variant.New(opts)
	if err != nil {
		t.Fatalf("New(%+v): %v", opts, err)
	}
	// A variant may have a goroutine, which ends with the queue.
	t.Cleanup(q.Close)
	r.queue = q
	return r
}

// Watchdog is how long a concurrent check may take before its queue counts as
// hanging.
var Watchdog = time.Minute

// watchdog closes the queue where a test hangs, so that it fails by itself.
func (r *rig) watchdog() {
	r.t.Helper()
	timer := time.AfterFunc(Watchdog, func() {
		r.t.Error("the watchdog closed the queue: somebody was not woken")
		r.queue.Close()
	})
	r.t.Cleanup(func() { timer.Stop() })
}

// process is the consumer: it applies what it gets to the store.
func (r *rig) process(h handover) error {
	if r.during != nil {
		r.during(h.deltas)
	}
	for _, d := range h.deltas {
		r.store.apply(d)
	}
	if r.lent() {
		h.deltas = slices.Clone(h.deltas)
	}
	r.taken = append(r.taken, h)
	return nil
}

// take takes once, on the rig's path, and returns what take returned.
func (r *rig) take() error { return takeFrom(r.queue, r.path, r.process) }

// drain takes until nothing waits and returns the deltas taken meanwhile, in
// order.
func (r *rig) drain() []cache.Delta {
	r.t.Helper()
	from := len(r.taken)
	for r.queue.Len() > 0 {
		if err := r.take(); err != nil {
			r.t.Fatalf("take: %v", err)
		}
	}
	return r.deltas(from)
}

// deltas returns those of the hand-overs from one on.
func (r *rig) deltas(from int) []cache.Delta {
	var out []cache.Delta
	for _, h := range r.taken[from:] {
		out = append(out, h.deltas...)
	}
	return out
}

// expect drains and compares with what is wanted, in order; with Compaction
// latest, with the last of each key of what is wanted.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	r.expectEach(r.weaken(want)...)
}

// expectEach is expect where each delta wanted is handed over for itself.
func (r *rig) expectEach(want ...string) {
	r.t.Helper()
	if got := words(r.drain()); !r.same(got, want) {
		r.t.Errorf("handed over\n  %v\nwant\n  %v", got, want)
	}
}

// weaken leaves the last word of each key, at the place of the first, where
// only the newest delta of a key is handed over.
func (b bed) weaken(words []string) []string {
	if !b.latest() {
		return words
	}
	var out []string
	at := map[string]int{}
	for _, w := range words {
		i, there := at[keyIn(w)]
		if !there {
			i = len(out)
			at[keyIn(w)] = i
			out = append(out, "")
		}
		out[i] = w
	}
	return out
}

// same compares words in order; where nothing is promised between keys, key by
// key.
func (b bed) same(got, want []string) bool {
	if !b.fifo() {
		byKey := func(a, b string) int { return strings.Compare(keyIn(a), keyIn(b)) }
		got, want = slices.Clone(got), slices.Clone(want)
		slices.SortStableFunc(got, byKey)
		slices.SortStableFunc(want, byKey)
	}
	return slices.Equal(got, want)
}

// keyIn returns the key in a word such as "Updated a@3".
func keyIn(word string) string {
	_, object, _ := strings.Cut(word, " ")
	key, _, _ := strings.Cut(object, "@")
	return strings.TrimSuffix(key, "†")
}

func (r *rig) do(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}
