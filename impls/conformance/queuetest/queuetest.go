// Package queuetest is the conformance suite of the queue family. Every variant
// passes it, upstream's own included: where a baseline fails, the suite is
// wrong. A check is named after the guarantee it holds the variant to; see the
// package comment of watchlab/impls/queue for what they mean.
//
// [Run] is the suite. What it can't write down as a script it holds to [Model],
// the contract as a sequential machine: random operations, played by a
// [Player], and small concurrent histories.
package queuetest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/impls"
	"watchlab/impls/queue"
)

// Run holds a variant to the family's contract, at each of [Capacities] and with
// several numbers of shards, as far as it has them; what depends on who runs
// when, at GOMAXPROCS 1, 2 and 8.
func Run(t *testing.T, v queue.Variant) {
	g := v.Guarantees[0]
	if want := "cache.Queue"; g.DropIn != want {
		t.Errorf("guarantees say that it drops in as %q, the contract is %s", g.DropIn, want)
	}
	if g.Coalesces != impls.CoalesceLatest {
		t.Errorf("guarantees say that it coalesces %q, the contract is %q", g.Coalesces, impls.CoalesceLatest)
	}
	for _, a := range Arrangements(v) {
		t.Run(a.String(), func(t *testing.T) { bed{a, v}.run(t) })
	}
}

// bed is one arrangement that the checks run in.
type bed struct {
	Arrangement
	variant queue.Variant
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

var checks = slices.Concat(orderChecks, lifecycleChecks, roomChecks, concurrentChecks)

func (b bed) upstream() bool   { return b.variant.Baseline() }
func (b bed) manyAtOnce() bool { return b.variant.Guarantees[0].Consumers == impls.ManyConsumers }

func unlocked(b bed) bool   { return b.variant.Guarantees[0].Unlocked }
func bounded(b bed) bool    { return b.Capacity > 0 }
func ours(b bed) bool       { return !b.upstream() }
func manyAtOnce(b bed) bool { return b.manyAtOnce() }

// fifo: keys come out in the order in which they began to wait, whatever their
// shard.
func (b bed) fifo() bool { return !b.manyAtOnce() || b.Shards == 1 }

// rig is a queue under test with its consumer.
type rig struct {
	bed
	t     *testing.T
	queue queue.Queue

	taken []string

	initial []bool

	during func()

	filled int
}

// new returns a rig whose queue is closed when the test ends.
func (b bed) new(t *testing.T, set ...func(*queue.Options)) *rig {
	t.Helper()
	opts := b.Options()
	for _, s := range set {
		s(&opts)
	}
	q, err := b.variant.New(opts)
	if err != nil {
		t.Fatalf("New(%+v): %v", opts, err)
	}
	t.Cleanup(q.Close)
	return &rig{bed: b, t: t, queue: q}
}

// watchdog closes the queue where a test hangs, so that it fails by itself.
func (r *rig) watchdog() {
	r.t.Helper()
	timer := time.AfterFunc(time.Minute, func() {
		r.t.Error("the watchdog closed the queue: somebody was not woken")
		r.queue.Close()
	})
	r.t.Cleanup(func() { timer.Stop() })
}

// process is the consumer.
func (r *rig) process(obj any, initial bool) error {
	if r.during != nil {
		r.during()
	}
	r.taken = append(r.taken, word(obj))
	r.initial = append(r.initial, initial)
	return nil
}

func (r *rig) take() error {
	_, err := r.queue.Pop(r.process)
	return err
}

// drain takes until nothing waits, and returns what was taken meanwhile.
func (r *rig) drain() []string {
	r.t.Helper()
	from := len(r.taken)
	for r.queue.Len() > 0 {
		if err := r.take(); err != nil {
			r.t.Fatalf("Pop: %v", err)
		}
	}
	return r.taken[from:]
}

// expect drains and compares with what is wanted, in order where there is one.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	got := r.drain()
	if !r.fifo() {
		got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("handed over %v, want %v", got, want)
	}
}

func (r *rig) do(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// replace lists names at version 9.
func (r *rig) replace(names ...string) {
	r.t.Helper()
	var list []any
	for _, n := range names {
		list = append(list, pod(n, 9))
	}
	r.do(r.queue.Replace(list, "9"))
}

func pod(name string, rv int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(rv)}}
}

func word(obj any) string {
	o := obj.(metav1.Object)
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + o.GetName() + "@" + o.GetResourceVersion()
	}
	return o.GetName() + "@" + o.GetResourceVersion()
}

func keyOf(obj any) string {
	o := obj.(metav1.Object)
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + o.GetName()
	}
	return o.GetName()
}

func version(obj any) int {
	v, err := strconv.Atoi(obj.(metav1.Object).GetResourceVersion())
	if err != nil {
		panic(err) // The suite makes all objects.
	}
	return v
}
