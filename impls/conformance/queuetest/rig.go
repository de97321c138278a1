package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// push calls the method of a queue that queues a delta: [cache.ReplacedAll] is a
// Replace, [cache.SyncAll] a Resync.
func (s setup) push(q deltafifo.Queue, d cache.Delta) error {
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		list := slices.Clone(o.Objects)
		err := q.Replace(list, o.ResourceVersion)
		if !atomicLists(s) || s.objects {
			clear(list) // The list is the caller's, except where it is handed over as one delta.
		}
		return err
	case cache.SyncAllInfo:
		return q.Resync()
	case cache.BookmarkInfo:
		if b, ok := q.(cache.ReflectorBookmarkStore); ok {
			return b.Bookmark(o.ResourceVersion)
		} else if atomicLists(s) {
			return errors.New("the queue does not take bookmarks")
		}
		return nil
	}
	switch d.Type {
	case cache.Added:
		return q.Add(d.Object)
	case cache.Updated:
		return q.Update(d.Object)
	default:
		return q.Delete(d.Object)
	}
}

// popped is what one call of process receives.
type popped struct {
	deltas  []cache.Delta // of family queue one, without a type
	initial bool
	batch   bool
}

// check tests the rules of a call of process.
func (p popped) check(s setup) error {
	n := len(p.deltas)
	switch {
	case n == 0:
		return errors.New("nothing was popped")
	case p.batch && n == 1:
		return errors.New("processBatch received one delta, which goes to process")
	case n == 1:
		return nil
	case p.batch && n > s.batchSize():
		return fmt.Errorf("a batch of %d, more than %d", n, s.batchSize())
	case !p.batch && inOrder(s):
		return fmt.Errorf("process received %d deltas, want one: %v", n, words(p.deltas))
	}
	keys := make(map[string]struct{}, n)
	for _, d := range p.deltas {
		keys[keyOf(d.Object)] = struct{}{}
	}
	switch _, nameless := keys[""]; {
	case p.batch && nameless:
		return fmt.Errorf("a delta without a key shares a batch: %v", words(p.deltas))
	case p.batch && len(keys) < n:
		return fmt.Errorf("a key is twice in the batch %v", words(p.deltas))
	case !p.batch && len(keys) > 1:
		return fmt.Errorf("deltas of two keys in one pop: %v", words(p.deltas))
	}
	return nil
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
	t      conformance.TB
	queue  deltafifo.Queue
	store  *store
	popped []popped
	// drained is the number of calls of process up to the last drain.
	drained int
	// during is called inside process, before the deltas are applied.
	during func(deltas []cache.Delta)
	// produced is closed when all producers of produce have returned.
	produced chan struct{}
}

// new returns a rig whose queue is closed when the test ends.
func (s setup) new(t conformance.TB, set ...func(*deltafifo.Options)) *rig {
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

// on returns a check's function that tests a new rig.
func on(check func(*rig)) func(*testing.T, setup) {
	return func(t *testing.T, s setup) { check(s.new(t)) }
}

// bubble is [on] in a bubble of [synctest].
func bubble(check func(*rig)) func(*testing.T, setup) {
	return func(t *testing.T, s setup) {
		synctest.Test(t, func(t *testing.T) { check(s.new(t)) })
	}
}

// full returns a rig whose queue is full of one event each of many keys, and
// whose producers do not wait: calls without room fail at once.
func (s setup) full(t *testing.T) *rig {
	t.Helper()
	r := s.new(t, func(o *deltafifo.Options) { o.Context = canceled() })
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

// calls are the calls of a producer that queue something.
func (s setup) calls() []cache.Delta {
	calls := []cache.Delta{
		{Type: cache.Added, Object: pod("new", 1)},
		{Type: cache.Updated, Object: pod("new", 1)},
		{Type: cache.Deleted, Object: pod("a", 1)},
		listOf("1", pod("new", 1)),
	}
	if deletesSeen(s) {
		calls = append(calls, cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}})
	}
	if atomicLists(s) {
		calls = append(calls, cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: "6"}})
	}
	return calls
}

// watchdog closes the queue where the test hangs.
func (r *rig) watchdog() {
	r.t.Helper()
	conformance.Watchdog(r.t, r.queue.Close)
}

// produce starts n producers, and closes the queue when all have returned.
func (r *rig) produce(n int, producer func(p int) error) {
	r.t.Helper()
	r.watchdog()
	r.produced = make(chan struct{})
	var wg sync.WaitGroup
	for p := range n {
		wg.Go(func() {
			if err := producer(p); err != nil {
				r.t.Errorf("producer %d: %v", p, err)
			}
		})
	}
	go func() {
		wg.Wait()
		close(r.produced)
		r.queue.Close()
	}()
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
	if err := p.check(r.setup); err != nil {
		r.t.Error(err)
	}
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

// ended tests that a closed queue is empty.
func (r *rig) ended() {
	r.t.Helper()
	if err := r.pop(); !errors.Is(err, cache.ErrFIFOClosed) {
		r.t.Errorf("pop of a closed and empty queue: %v", err)
	}
}

// consume pops until the queue is closed and empty.
func (r *rig) consume(process func(popped) error) {
	var err error
	for err == nil {
		err = r.popFrom(r.queue, r.path, process)
	}
	if !errors.Is(err, cache.ErrFIFOClosed) {
		r.t.Error(err)
	}
}

// drain pops until the queue is empty and returns the deltas since the last drain.
func (r *rig) drain() []cache.Delta {
	r.t.Helper()
	for r.queue.Len() > 0 {
		if err := r.pop(); err != nil {
			r.t.Fatalf("pop: %v", err)
		}
	}
	from := r.drained
	r.drained = len(r.popped)
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
	r.compare(words(r.drain()), r.newestOf(want))
}

func (r *rig) compare(got, want []string) {
	r.t.Helper()
	if !r.same(got, want) {
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

// script returns a check's function that runs [rig.run].
func script(text string) func(*testing.T, setup) {
	return func(t *testing.T, s setup) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "one shard"); ok {
			s, text = s.oneShard(), rest
		}
		s.new(t).run(text)
	}
}

// run runs commands, one or several a line, separated by commas:
//
//	add a@1, update a@2, delete a@3   call the queue with version 1, 2, 3 of a
//	bury a@1                          Delete of a tombstone of a@1
//	replace a b@2                     Replace with version 9 of a and 2 of b
//	resync, bookmark 3                Resync, Bookmark
//	inside add a@1, resync            run these commands inside the next process
//	pop, drain                        pop once, pop until empty
//	len 2                             want Len 2
//	synced true                       want HasSynced
//	want Added a@1, Updated a@2       drain and want these deltas ([rig.expect])
//	each Added a@1, Updated a@2       the same where every delta is delivered
//	any Added a@1, Added b@1          want in any order
//	state a@1 b@2                     drain and want these objects in the store
//
// With an option "one shard" first, the queue of a script has one shard.
func (r *rig) run(text string) {
	r.t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		command, rest, _ := strings.Cut(line, " ")
		switch command {
		case "want":
			r.expect(list(rest)...)
		case "each":
			r.compare(words(r.drain()), list(rest))
		case "any":
			got, want := words(r.drain()), r.newestOf(list(rest))
			slices.Sort(got)
			slices.Sort(want)
			r.compare(got, want)
		case "state":
			r.drain()
			if got, want := r.store.state(), strings.Fields(rest); !slices.Equal(got, want) {
				r.t.Errorf("the store has %v, want %v", got, want)
			}
		case "inside":
			r.once(func([]cache.Delta) { r.run(rest) })
		default:
			for _, command := range list(line) {
				r.command(strings.Fields(command))
			}
		}
		if r.t.Failed() {
			r.t.Fatalf("in line %q", line)
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
	objects := func() []any {
		var all []any
		for _, w := range words[1:] {
			name, rv, ok := strings.Cut(w, "@")
			if !ok {
				rv = "9"
			}
			all = append(all, pod(name, number(rv)))
		}
		return all
	}
	push := func(typ cache.DeltaType, obj any) {
		r.t.Helper()
		r.do(r.push(r.queue, cache.Delta{Type: typ, Object: obj}))
	}
	switch words[0] {
	case "add", "update", "delete":
		types := map[string]cache.DeltaType{"add": cache.Added, "update": cache.Updated, "delete": cache.Deleted}
		push(types[words[0]], objects()[0])
	case "bury":
		push(cache.Deleted, tombstoneOf(objects()[0]))
	case "replace":
		r.do(r.push(r.queue, listOf("9", objects()...)))
	case "resync":
		push(cache.SyncAll, cache.SyncAllInfo{})
	case "bookmark":
		push(cache.Bookmark, cache.BookmarkInfo{ResourceVersion: words[1]})
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
