// Package clientgo has the conformance suites of the families whose contract is client-go's:
// deltafifo and queue ([RunDeltaFIFO], [RunQueue]), store ([RunStore]) and workqueue ([RunWorkqueue],
// [BenchmarkWorkqueue]). See the package comments of the families for the guarantees. Each suite
// compares a variant with a model, the contract as a sequential machine: random operations with rapid,
// and small concurrent histories with porcupine. Checks are for what a model cannot see: waits, wake-ups,
// memory, longer runs.
package clientgo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
)

// RunDeltaFIFO tests a variant of family deltafifo. It has the checks of family queue where the contracts
// agree, as both are client-go's cache.Queue plus Len; a condition on a check says where they do not. It
// runs in each of its modes, with and without
// KnownObjects, through Pop and PopBatch, with each of several capacities, owned and lent memory.
// A test process may skip setups with -test.run: their names are the options.
func RunDeltaFIFO(t *testing.T, v deltafifo.Variant) {
	run(t, v, false)
}

// RunQueue tests a variant of family queue, with each of several numbers of shards that it supports.
func RunQueue(t *testing.T, v queue.Variant) {
	g := v.Guarantees[0]
	if g.Coalesces != impls.CoalesceLatest {
		t.Errorf("guarantees: coalesces %q, the contract is %q", g.Coalesces, impls.CoalesceLatest)
	}
	run(t, adapt(v), true)
}

// adapt returns a variant of family queue that takes the options of deltafifo,
// of which it uses its own.
func adapt(v queue.Variant) deltafifo.Variant {
	return deltafifo.Variant{
		Name: v.Name, Upstream: v.Upstream, Guarantees: v.Guarantees,
		New: func(o deltafifo.Options) (deltafifo.Queue, error) {
			return v.New(queue.Options{KeyFunction: o.KeyFunction, Shards: o.Shards})
		},
	}
}

func run(t *testing.T, v deltafifo.Variant, objects bool) {
	setups, err := setupsOf(v, objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range setups {
		_, batched := s.new(t).queue.(deltafifo.BatchQueue)
		if want := map[bool]string{true: "cache.QueueWithBatch", false: "cache.Queue"}[batched]; s.guarantees.DropIn != want {
			t.Errorf("guarantees: drops in as %q, it is a %s", s.guarantees.DropIn, want)
		}
		for _, p := range []path{byPop, byBatch} {
			if s.path = p; batched || p == byPop {
				t.Run(fmt.Sprintf("%v/path=%s", s, p), func(t *testing.T) { conformance.Run(t, s, queueChecks) })
			}
		}
	}
}

type queueCheck = conformance.Check[queueSetup]

var queueChecks = slices.Concat(lifecycleChecks, roomChecks, throttleChecks, memoryChecks, concurrentChecks)

// queueSetup is a variant with one set of options.
type queueSetup struct {
	deltafifo.Options
	known      bool // KnownObjects is set
	objects    bool // family queue: Pop delivers objects rather than deltas
	variant    deltafifo.Variant
	guarantees impls.Guarantees
	path       path
}

// path is the method that the consumer calls.
type path string

const (
	byPop   path = "Pop"
	byBatch path = "PopBatch"
)

// capacities of bounded variants: none, the smallest, one that is no power of
// two, and one that is larger than a batch.
var capacities = []int{0, 1, 7, 1024}

// setupsOf returns all setups that a variant supports, or an error where it
// refuses what its guarantees include.
func setupsOf(v deltafifo.Variant, objects bool) ([]queueSetup, error) {
	var all []queueSetup
	for _, g := range v.Guarantees {
		for _, s := range setupsOfMode(v, g, objects) {
			switch err := s.supported(); {
			case err == nil:
				all = append(all, s)
			case !errors.Is(err, impls.ErrOptions):
				return nil, fmt.Errorf("%s of %v returned %w, which does not wrap ErrOptions", v.Name, s, err)
			case !s.known && !lent(s):
				return nil, fmt.Errorf("%s guarantees %v, yet New returned %w", v.Name, g, err)
			}
		}
	}
	return all, nil
}

// supported returns the error of the variant for the setup's options.
func (s queueSetup) supported() error {
	q, err := s.variant.New(s.options(newConsumerStore()))
	if err == nil {
		q.Close()
	}
	return err
}

// setupsOfMode returns the product of the options of a mode.
func setupsOfMode(v deltafifo.Variant, g impls.Guarantees, objects bool) []queueSetup {
	all := []queueSetup{{
		Options: deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)},
		objects: objects, variant: v, guarantees: g, path: byPop,
	}}
	switch {
	case !objects:
		vary(&all, []bool{false, true}, func(s *queueSetup, known bool) { s.known = known })
		if g.Bounded {
			vary(&all, capacities, func(s *queueSetup, n int) { s.Capacity = n })
		}
		vary(&all, []impls.Ownership{impls.Owned, impls.Lent}, func(s *queueSetup, o impls.Ownership) { s.HandOver = o })
	case g.Consumers == impls.ManyConsumers:
		vary(&all, []int{0, 1, 3}, func(s *queueSetup, n int) { s.Shards = n })
	}
	if g.Throttles == impls.ThrottlesByOption {
		for _, s := range all {
			if s.Capacity == 0 && s.HandOver == impls.Owned {
				s.Throttle = true
				all = append(all, s)
			}
		}
	}
	return all
}

// vary replaces each setup by one for each value.
func vary[T any](all *[]queueSetup, values []T, set func(*queueSetup, T)) {
	var product []queueSetup
	for _, s := range *all {
		for _, v := range values {
			set(&s, v)
			product = append(product, s)
		}
	}
	*all = product
}

// String returns the options as the name of a subtest.
func (s queueSetup) String() string {
	if s.objects {
		return fmt.Sprintf("shards=%d", s.Shards)
	}
	name := fmt.Sprintf("delivery=%s/known=%t/capacity=%d/handover=%s", s.Delivery, s.known, s.Capacity, s.HandOver)
	if s.BatchSize > 0 {
		name += fmt.Sprintf("/batchsize=%d", s.BatchSize)
	}
	if s.Throttle {
		name += "/throttle=true"
	}
	if s.Shards > 0 {
		name += fmt.Sprintf("/shards=%d", s.Shards)
	}
	return name
}

// options returns the options of an instance whose consumer fills a store.
func (s queueSetup) options(store cache.KeyListerGetter) deltafifo.Options {
	if s.known {
		s.KnownObjects = store
	}
	return s.Options
}

// The conditions of checks.
func deltas(s queueSetup) bool     { return !s.objects }
func objects(s queueSetup) bool    { return s.objects }
func inOrder(s queueSetup) bool    { return s.Delivery == deltafifo.InOrder }
func perKey(s queueSetup) bool     { return s.Delivery == deltafifo.PerKey }
func unlocked(s queueSetup) bool   { return s.guarantees.Unlocked && !(upstream(s) && s.known) }
func upstream(s queueSetup) bool   { return s.variant.Baseline() }
func ours(s queueSetup) bool       { return !upstream(s) }
func batched(s queueSetup) bool    { return s.path == byBatch }
func bounded(s queueSetup) bool    { return s.Capacity > 0 }
func lent(s queueSetup) bool       { return s.HandOver == impls.Lent }
func owned(s queueSetup) bool      { return deltas(s) && !lent(s) }
func manyAtOnce(s queueSetup) bool { return s.guarantees.Consumers == impls.ManyConsumers }
func oneAtATime(s queueSetup) bool { return (ours(s) || s.objects) && !manyAtOnce(s) }

// atomicLists: Replace and Resync are one delta each.
func atomicLists(s queueSetup) bool { return inOrder(s) && !s.known }

// deletesSeen: the consumer learns of every deletion. Without KnownObjects, a
// queue with per-key delivery does not report one of a key that is not queued.
func deletesSeen(s queueSetup) bool { return s.known || inOrder(s) }

// fifo: keys are popped in the order in which they were queued.
func fifo(s queueSetup) bool { return s.guarantees.Order != impls.OrderPerShard || s.Shards == 1 }

// all is for checks with several conditions.
func all(conditions ...func(queueSetup) bool) func(queueSetup) bool {
	return func(s queueSetup) bool {
		return !slices.ContainsFunc(conditions, func(c func(queueSetup) bool) bool { return !c(s) })
	}
}

// room is a condition: a check queues up to n events that take capacity.
func room(n int) func(queueSetup) bool {
	return func(s queueSetup) bool { return s.Capacity == 0 || n <= s.Capacity }
}

// batchSize is the most deltas of a batch.
func (s queueSetup) batchSize() int { return cmp.Or(s.BatchSize, deltafifo.DefaultBatchSize) }

// oneShard returns the setup with the order between keys that upstream has.
func (s queueSetup) oneShard() queueSetup {
	if manyAtOnce(s) {
		s.Shards = 1
	}
	return s
}
