// Package queuetest is the conformance suite of the families deltafifo and
// queue. Both contracts are client-go's cache.Queue plus Len, so both run the
// same checks where the contracts agree; a condition on a check says where they
// do not. See the package comments of watchlab/impls/deltafifo and
// watchlab/impls/queue for the guarantees.
//
// What a check cannot state as a script is compared with a model, the contract
// as a sequential machine: random operations, played by a player, and small
// concurrent histories.
//
// The exported API is [RunDeltaFIFO] and [RunQueue].
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
)

// RunDeltaFIFO tests a variant of family deltafifo: in each of its modes, with
// and without KnownObjects, through Pop and PopBatch, with each of several
// capacities, owned and lent memory and each compaction. A test process may skip
// setups with -test.run: their names are the options.
func RunDeltaFIFO(t *testing.T, v deltafifo.Variant) {
	run(t, v, false)
}

// RunQueue tests a variant of family queue, with each of several capacities and
// numbers of shards that it supports.
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
			return v.New(queue.Options{KeyFunction: o.KeyFunction, Capacity: o.Capacity, Context: o.Context, Shards: o.Shards})
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
				t.Run(fmt.Sprintf("%v/path=%s", s, p), func(t *testing.T) { conformance.Run(t, s, checks) })
			}
		}
	}
}

type check = conformance.Check[setup]

var checks = slices.Concat(orderChecks, listChecks, lifecycleChecks, roomChecks, memoryChecks, concurrentChecks)

// setup is a variant with one set of options.
type setup struct {
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
func setupsOf(v deltafifo.Variant, objects bool) ([]setup, error) {
	var all []setup
	for _, g := range v.Guarantees {
		for _, s := range setupsOfMode(v, g, objects) {
			q, err := v.New(s.options(newStore()))
			if err == nil {
				q.Close()
			}
			switch {
			case err == nil:
				all = append(all, s)
			case !errors.Is(err, impls.ErrOptions):
				return nil, fmt.Errorf("%s of %v returned %w, which does not wrap ErrOptions", v.Name, s, err)
			case !s.known && !lent(s) && s.Compaction != deltafifo.Latest:
				return nil, fmt.Errorf("%s guarantees %v, yet New returned %w", v.Name, g, err)
			}
		}
	}
	return all, nil
}

func setupsOfMode(v deltafifo.Variant, g impls.Guarantees, objects bool) []setup {
	bounds, shards, known := []int{0}, []int{0}, []bool{false}
	owners, compactions := []impls.Ownership{""}, []deltafifo.Compaction{""}
	if g.Bounded {
		bounds = capacities
	}
	switch {
	case objects && g.Consumers == impls.ManyConsumers:
		shards = []int{0, 1, 3}
	case !objects:
		known = []bool{false, true}
		owners, compactions = []impls.Ownership{impls.Owned, impls.Lent}, []deltafifo.Compaction{deltafifo.None}
		if g.Mode == string(deltafifo.PerKey) {
			compactions = append(compactions, deltafifo.Latest)
		}
	}
	var all []setup
	for _, k := range known {
		for _, capacity := range bounds {
			for _, compaction := range compactions {
				for _, owner := range owners {
					for _, n := range shards {
						all = append(all, setup{
							Options: deltafifo.Options{
								Delivery: deltafifo.Delivery(g.Mode), Capacity: capacity,
								Compaction: compaction, HandOver: owner, Shards: n,
							},
							known: k, objects: objects, variant: v, guarantees: g, path: byPop,
						})
					}
				}
			}
		}
	}
	return all
}

// String returns the options as the name of a subtest.
func (s setup) String() string {
	if s.objects {
		return fmt.Sprintf("capacity=%d/shards=%d", s.Capacity, s.Shards)
	}
	name := fmt.Sprintf("delivery=%s/known=%t/capacity=%d/handover=%s/compaction=%s", s.Delivery, s.known, s.Capacity, s.HandOver, s.Compaction)
	if s.BatchSize > 0 {
		name += fmt.Sprintf("/batchsize=%d", s.BatchSize)
	}
	if s.Shards > 0 {
		name += fmt.Sprintf("/shards=%d", s.Shards)
	}
	return name
}

// options returns the options of an instance whose consumer fills a store.
func (s setup) options(store cache.KeyListerGetter) deltafifo.Options {
	if s.known {
		s.KnownObjects = store
	}
	return s.Options
}

// The conditions of checks.
func deltas(s setup) bool     { return !s.objects }
func objects(s setup) bool    { return s.objects }
func inOrder(s setup) bool    { return s.Delivery == deltafifo.InOrder }
func perKey(s setup) bool     { return s.Delivery == deltafifo.PerKey }
func known(s setup) bool      { return s.known }
func unlocked(s setup) bool   { return s.guarantees.Unlocked && !(upstream(s) && s.known) }
func upstream(s setup) bool   { return s.variant.Baseline() }
func ours(s setup) bool       { return !upstream(s) }
func batched(s setup) bool    { return s.path == byBatch }
func bounded(s setup) bool    { return s.Capacity > 0 }
func lent(s setup) bool       { return s.HandOver == impls.Lent }
func owned(s setup) bool      { return deltas(s) && !lent(s) }
func manyAtOnce(s setup) bool { return s.guarantees.Consumers == impls.ManyConsumers }
func oneAtATime(s setup) bool { return (ours(s) || s.objects) && !manyAtOnce(s) }

// atomicLists: Replace and Resync are one delta each.
func atomicLists(s setup) bool { return inOrder(s) && !s.known }

// splitLists: Replace and Resync become deltas of single objects.
func splitLists(s setup) bool { return deltas(s) && !atomicLists(s) }

// deletesSeen: the consumer learns of every deletion. Without KnownObjects, a
// queue with per-key delivery does not report one of a key that is not queued.
func deletesSeen(s setup) bool { return s.known || inOrder(s) }

// latest: only the newest event of a key is delivered.
func latest(s setup) bool     { return s.objects || s.Compaction == deltafifo.Latest }
func everyDelta(s setup) bool { return !latest(s) }

// fifo: keys are popped in the order in which they were queued. Among many
// consumers this holds with one shard only.
func fifo(s setup) bool { return !manyAtOnce(s) || s.Shards == 1 }

// all is for checks with several conditions.
func all(conditions ...func(setup) bool) func(setup) bool {
	return func(s setup) bool {
		return !slices.ContainsFunc(conditions, func(c func(setup) bool) bool { return !c(s) })
	}
}

// room is a condition: a check queues up to n events that take capacity.
func room(n int) func(setup) bool {
	return func(s setup) bool { return s.Capacity == 0 || n <= s.Capacity }
}

// oneShard returns the setup with the order between keys that upstream has.
func (s setup) oneShard() setup {
	if manyAtOnce(s) {
		s.Shards = 1
	}
	return s
}

// popped is what one call of process receives.
type popped struct {
	deltas  []cache.Delta // of family queue one, without a type
	initial bool
	batch   bool
}

// popFrom pops once and returns what Pop or PopBatch returned.
func (s setup) popFrom(q deltafifo.Queue, p path, process func(popped) error) error {
	single := func(obj any, initial bool) error {
		if s.objects {
			return process(popped{deltas: []cache.Delta{{Object: obj}}, initial: initial})
		}
		deltas, ok := obj.(cache.Deltas)
		if !ok {
			return fmt.Errorf("process received a %T, not cache.Deltas", obj)
		}
		return process(popped{deltas: deltas, initial: initial})
	}
	if p == byPop {
		_, err := q.Pop(single)
		return err
	}
	return q.(deltafifo.BatchQueue).PopBatch(func(deltas []cache.Delta, initial bool) error {
		return process(popped{deltas: deltas, initial: initial, batch: true})
	}, single)
}

// rig is a queue under test with the store that its consumer fills.
type rig struct {
	setup
	t      *testing.T
	queue  deltafifo.Queue
	store  *store
	popped []popped
	// during is called inside process, before the deltas are applied.
	during func(deltas []cache.Delta)
}

// new returns a rig whose queue is closed when the test ends.
func (s setup) new(t *testing.T, set ...func(*deltafifo.Options)) *rig {
	t.Helper()
	r := &rig{setup: s, t: t, store: newStore()}
	opts := s.options(r.store)
	for _, f := range set {
		f(&opts)
	}
	q, err := s.variant.New(opts)
	if err != nil {
		t.Fatalf("New(%+v): %v", opts, err)
	}
	t.Cleanup(q.Close)
	r.queue = q
	return r
}

// full returns a rig whose queue is full of one event each of many keys, and
// whose producers do not wait: calls without room fail at once.
func (s setup) full(t *testing.T) *rig {
	t.Helper()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	r := s.new(t, func(o *deltafifo.Options) { o.Context = canceled })
	r.fill("k", 0)
	return r
}

// fill adds keys of a name until the queue is full, and tests that it accepts
// exactly its capacity, of which so much is in use.
func (r *rig) fill(name string, used int) {
	r.t.Helper()
	for i := used; i <= r.Capacity; i++ {
		err := r.queue.Add(pod(fmt.Sprintf("%s%d", name, i), i))
		switch {
		case i < r.Capacity && err != nil:
			r.t.Fatalf("with %d of %d in use, Add returned %v", i, r.Capacity, err)
		case i == r.Capacity && !errors.Is(err, context.Canceled):
			r.t.Fatalf("with all %d in use, Add returned %v, want the error of the context", i, err)
		}
	}
}

// watchdog closes the queue where the test hangs.
func (r *rig) watchdog() {
	r.t.Helper()
	conformance.Watchdog(r.t, r.queue.Close)
}

// once makes f run inside the next call of process only.
func (r *rig) once(f func(deltas []cache.Delta)) {
	r.during = func(deltas []cache.Delta) {
		r.during = nil
		f(deltas)
	}
}

// process is the consumer: it applies what it receives to the store.
func (r *rig) process(p popped) error {
	if r.during != nil {
		r.during(p.deltas)
	}
	for _, d := range p.deltas {
		r.store.apply(d)
	}
	if lent(r.setup) {
		p.deltas = slices.Clone(p.deltas)
	}
	r.popped = append(r.popped, p)
	return nil
}

func (r *rig) pop() error { return r.popFrom(r.queue, r.path, r.process) }

// popAll pops until the queue is closed and empty.
func (r *rig) popAll() {
	r.t.Helper()
	var err error
	for err == nil {
		err = r.pop()
	}
	if !errors.Is(err, cache.ErrFIFOClosed) {
		r.t.Error(err)
	}
}

// drain pops until the queue is empty and returns the deltas, in order.
func (r *rig) drain() []cache.Delta {
	r.t.Helper()
	from := len(r.popped)
	for r.queue.Len() > 0 {
		if err := r.pop(); err != nil {
			r.t.Fatalf("pop: %v", err)
		}
	}
	return r.deltas(from)
}

// deltas returns those of the calls of process from one on.
func (r *rig) deltas(from int) []cache.Delta {
	var out []cache.Delta
	for _, p := range r.popped[from:] {
		out = append(out, p.deltas...)
	}
	return out
}

func (r *rig) all() []string { return words(r.deltas(0)) }

// expect drains and compares with the deltas that are wanted, in order. Where
// only the newest event of a key is delivered, it wants that.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	r.expectEach(r.newestOf(want)...)
}

// expectEach is expect where each delta is delivered.
func (r *rig) expectEach(want ...string) {
	r.t.Helper()
	if got := words(r.drain()); !r.same(got, want) {
		r.t.Errorf("popped\n  %v\nwant\n  %v", got, want)
	}
}

// newestOf keeps the last word of each key, in the position of the first, where
// only the newest event of a key is delivered.
func (s setup) newestOf(words []string) []string {
	if !latest(s) {
		return words
	}
	var out []string
	at := map[string]int{}
	for _, w := range words {
		i, ok := at[keyIn(w)]
		if !ok {
			i = len(out)
			at[keyIn(w)] = i
			out = append(out, "")
		}
		out[i] = w
	}
	return out
}

// same compares words in order, or per key where no order between keys is
// guaranteed. Objects of family queue have no delta type.
func (s setup) same(got, want []string) bool {
	got, want = slices.Clone(got), slices.Clone(want)
	if s.objects {
		for i, w := range want {
			want[i] = w[strings.Index(w, " ")+1:]
		}
	}
	if !fifo(s) {
		byKey := func(a, b string) int { return strings.Compare(keyIn(a), keyIn(b)) }
		slices.SortStableFunc(got, byKey)
		slices.SortStableFunc(want, byKey)
	}
	return slices.Equal(got, want)
}

// replace lists keys, each in version 9.
func (r *rig) replace(names ...string) {
	r.t.Helper()
	r.do(r.queue.Replace(listed(names...), "9"))
}

func (r *rig) do(errs ...error) {
	r.t.Helper()
	if err := errors.Join(errs...); err != nil {
		r.t.Fatal(err)
	}
}

// synced tests HasSynced and HasSyncedChecker.
func (r *rig) synced(want bool, when string) {
	r.t.Helper()
	checker := r.queue.HasSyncedChecker()
	if got, done := r.queue.HasSynced(), isClosed(checker.Done()); got != want || done != want {
		r.t.Errorf("HasSynced is %t and its checker done=%t %s, want %t", got, done, when, want)
	}
	if checker.Name() == "" {
		r.t.Error("HasSyncedChecker has no name")
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// script returns a check's function that runs commands, one or several a line,
// separated by commas:
//
//	add a@1, update a@2, delete a@3   call the queue with version 1, 2, 3 of a
//	bury a@1                          Delete of a tombstone of a@1
//	replace a b                       Replace with version 9 of a and b
//	resync, bookmark 3                Resync, Bookmark
//	pop, drain                        pop once, pop until empty
//	len 2                             want Len 2
//	synced true                       want HasSynced
//	want Added a@1, Updated a@2       drain and want these deltas ([rig.expect])
//	each Added a@1, Updated a@2       the same with each delta ([rig.expectEach])
//
// With an option "one shard" first, the queue has one shard.
func script(text string) func(*testing.T, setup) {
	return func(t *testing.T, s setup) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "one shard"); ok {
			s, text = s.oneShard(), rest
		}
		r := s.new(t)
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			want, isWant := strings.CutPrefix(line, "want")
			each, isEach := strings.CutPrefix(line, "each")
			switch {
			case isWant:
				r.expect(list(want)...)
			case isEach:
				r.expectEach(list(each)...)
			default:
				for _, command := range list(line) {
					r.command(strings.Fields(command))
				}
			}
			if t.Failed() {
				t.Fatalf("in line %q", line)
			}
		}
	}
}

// list splits a list at its commas.
func list(s string) []string {
	var all []string
	for part := range strings.SplitSeq(s, ", ") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

func (r *rig) command(words []string) {
	r.t.Helper()
	object := func() any {
		name, rv, _ := strings.Cut(words[1], "@")
		return pod(name, number(rv))
	}
	switch words[0] {
	case "add":
		r.do(r.queue.Add(object()))
	case "update":
		r.do(r.queue.Update(object()))
	case "delete":
		r.do(r.queue.Delete(object()))
	case "bury":
		r.do(r.queue.Delete(cache.DeletedFinalStateUnknown{Key: keyOf(object()), Obj: object()}))
	case "replace":
		r.replace(words[1:]...)
	case "resync":
		r.do(r.queue.Resync())
	case "bookmark":
		bookmark, ok := r.queue.(cache.ReflectorBookmarkStore)
		if !ok {
			r.t.Fatal("the queue does not take bookmarks")
		}
		r.do(bookmark.Bookmark(words[1]))
	case "pop":
		r.do(r.pop())
	case "drain":
		r.drain()
	case "len":
		if n := r.queue.Len(); n != number(words[1]) {
			r.t.Errorf("Len is %d, want %s", n, words[1])
		}
	case "synced":
		r.synced(words[1] == "true", "now")
	default:
		r.t.Fatalf("no command %q", words)
	}
}
