package clientgo

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"testing"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"watchlab/impls/conformance"
	"watchlab/impls/deltafifo"
)

// kind is what an [op] does.
type kind string

const (
	add    kind = "Add"
	update kind = "Update"
	del    kind = "Delete"
	// bury is a Delete of a [cache.DeletedFinalStateUnknown].
	bury kind = "Tombstone"
	// nokey is a call with an object that has no key: an Add, an Update, a Delete or, if it is no delta of
	// its own, a Replace.
	nokey kind = "Nameless"
	// replace lists some of the keys, each in a new version; of family queue, some of them twice.
	replace kind = "Replace"
	// relist lists the newest version of each key, as a Reflector does.
	relist   kind = "Relist"
	resync   kind = "Resync"
	bookmark kind = "Bookmark"
	pop      kind = "Pop"
	popBatch kind = "PopBatch"
	// popFails is a pop whose process fails: by an error, or a panic if arg is odd.
	popFails kind = "PopFails"
	// look compares Len and HasSynced.
	look       kind = "Look"
	closeQueue kind = "Close"
)

func (k kind) pops() bool { return k == pop || k == popBatch || k == popFails }

// The kinds of a family. Fuzz corpora depend on their order.
var (
	deltaKinds = []kind{
		add, update, del, bury, nokey, replace, relist, resync, bookmark, pop, popBatch, popFails, look, closeQueue,
	}
	objectKinds = []kind{add, update, del, nokey, replace, resync, pop, popFails, look, closeQueue}
)

// kinds returns those of the setup's family.
func (s queueSetup) kinds() []kind {
	if s.objects {
		return objectKinds
	}
	return deltaKinds
}

// op is one operation on a queue.
type op struct {
	kind kind
	// within is how many of the next operations happen inside process.
	within uint8
	arg    uint32
	// rv is the number of the operation and the version of its objects.
	rv int
}

// randomQueueOperations compares random operations with the model. rapid prints the
// seed and reduces a difference to a short sequence.
func randomQueueOperations(t *testing.T, s queueSetup) {
	rapid.Check(t, func(t *rapid.T) { s.playRandom(t) })
}

func (s queueSetup) playRandom(t *rapid.T) {
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
	p := s.newPlayer(t, keys)
	draw := func(t *rapid.T, k kind) op {
		return op{kind: k, arg: rapid.Uint32Range(0, 255).Draw(t, fmt.Sprintf("%v of", k))}
	}
	inside := slices.DeleteFunc(slices.Clone(s.kinds()), func(k kind) bool {
		return k.pops() || k == nokey || k == closeQueue
	})
	all := map[string]func(*rapid.T){}
	for _, k := range s.kinds() {
		all[string(k)] = func(t *rapid.T) {
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
			p.do(ops)
		}
	}
	if rapid.Bool().Draw(t, "a list comes first") { // As from a Reflector.
		p.do([]op{draw(t, replace)})
	}
	t.Repeat(all)
	p.end()
}

// call does an operation on each key.
func (p *queuePlayer) call(k kind, keys ...int) {
	for _, key := range keys {
		p.do([]op{{kind: k, arg: uint32(key)}})
	}
}

// queuePlayer plays operations into a queue, one at a time, and compares the outcome
// of each with the [queueModel]. Where the queue may be full it makes room first, so that all variants
// accept the same, and no call may wait.
type queuePlayer struct {
	*queueRig
	model *queueModel
	keys  int
	truth *consumerStore // the newest version of each key that was not deleted

	made   *[]weak.Pointer[metav1.ObjectMeta] // if not nil, gets the objects
	kept   []popped                           // owned memory
	words  [][]string                         // of kept, when it was popped
	failed bool                               // some process has failed
	next   int                                // number of the last operation
}

// newPlayer returns a player with a new queue and a number of keys.
func (s queueSetup) newPlayer(t conformance.TB, keys int) *queuePlayer {
	p := &queuePlayer{keys: keys, model: newQueueModel(s, false), truth: newConsumerStore()}
	p.queueRig = s.new(t)
	p.watchdog()
	return p
}

// must fails the test at an operation.
func (p *queuePlayer) must(o op, err error) {
	if err != nil {
		p.t.Fatalf("%s %v: operation %d, %v: %v", p.variant.Name, p.queueSetup, o.rv, o.kind, err)
	}
}

// do does the first of the operations, and those that happen inside its process,
// and returns how many that were.
func (p *queuePlayer) do(ops []op) (done int) {
	o := ops[0]
	within := ops[1:min(len(ops), 1+int(o.within))]
	switch {
	case !o.kind.pops():
		within = nil
	case p.model.live == 0 && !p.model.closed:
		p.next++
		return 1 // It would wait.
	case !unlocked(p.queueSetup) || throttled(p.queueSetup) || deltas(p.queueSetup) && (upstream(p.queueSetup) || o.kind == popFails):
		// Where process fails, a call meanwhile sees the store with or without it. One of a
		// throttled process would wait for itself.
		within = nil
	}
	steps := slices.Clone(ops[:1+len(within)])
	for i := range steps {
		p.next++
		steps[i].rv = p.next
	}
	if o.kind.pops() {
		p.pop(steps[0], steps[1:])
	} else {
		p.produce(steps[0])
	}
	return len(steps)
}

// produce does an operation of a producer and makes room for it.
func (p *queuePlayer) produce(o op) {
	for p.try(o) {
		if p.model.live > 0 {
			p.pop(op{kind: pop, rv: o.rv}, nil)
		} else {
			p.must(o, p.look()) // Events that the queue will drop still use capacity.
		}
	}
}

// try does an operation of a producer, and reports whether there may be no room for it.
func (p *queuePlayer) try(o op) (full bool) {
	if o.kind != look && o.kind != closeQueue && o.kind != nokey && p.model.full() {
		return true
	}
	d := cache.Delta{Type: cache.Updated}
	switch o.kind {
	case look:
		p.must(o, p.look())
		return false
	case closeQueue:
		p.queue.Close()
		p.model.closed = true
		return false
	case nokey:
		types := []cache.DeltaType{cache.Added, cache.Updated, cache.Deleted}
		if d = (cache.Delta{Type: types[o.arg%3], Object: nameless{}}); o.arg%4 == 3 && !atomicLists(p.queueSetup) {
			list := []any{p.object(o.arg, o.rv), nameless{}}
			if upstream(p.queueSetup) && deltas(p.queueSetup) {
				list = list[1:] // It queues what comes before.
			}
			d = listOf(strconv.Itoa(o.rv), list...)
		}
	case replace, relist:
		d = listOf(strconv.Itoa(o.rv), p.list(o)...)
	case resync, bookmark:
		// Upstream would count these for the initial list.
		if upstream(p.queueSetup) && deltas(p.queueSetup) && !p.model.begun {
			return false
		}
		d = cache.Delta{Type: cache.SyncAll, Object: cache.SyncAllInfo{}}
		if o.kind == bookmark {
			d = cache.Delta{Type: cache.Bookmark, Object: cache.BookmarkInfo{ResourceVersion: strconv.Itoa(o.rv)}}
		}
	default:
		d.Object = p.object(o.arg, o.rv)
		switch o.kind {
		case add:
			d.Type = cache.Added
		case del:
			d.Type = cache.Deleted
		case bury:
			d = cache.Delta{Type: cache.Deleted, Object: tombstoneOf(d.Object)}
		}
	}
	err := p.push(p.queue, d)
	if dropped := p.model.closed && ours(p.queueSetup); err == nil && !dropped {
		p.truth.apply(d)
	}
	p.must(o, p.model.call(d, err))
	return false
}

// object returns the object that an operation is about.
func (p *queuePlayer) object(arg uint32, rv int) any {
	key := int(arg) % p.keys
	obj := &metav1.ObjectMeta{
		Namespace:       []string{"", "a", "b"}[key%3],
		Name:            "k" + strconv.Itoa(key/3),
		ResourceVersion: strconv.Itoa(rv),
	}
	if p.made != nil {
		*p.made = append(*p.made, weak.Make(obj))
	}
	return obj
}

// list returns what a Replace lists: about half of the keys, or all.
func (p *queuePlayer) list(o op) []any {
	var list []any
	if o.kind == relist {
		for _, key := range p.truth.ListKeys() {
			obj, _, _ := p.truth.GetByKey(key)
			list = append(list, obj)
		}
		return list
	}
	for key := range uint32(p.keys) {
		draw := (o.arg + 1) * (key + 1) * 0x9e3779b1
		if bits.OnesCount32(draw>>16)%2 != 0 {
			continue
		}
		if p.queueSetup.objects && draw%5 == 0 {
			list = append(list, p.object(key, o.rv-1)) // The second is the newer one.
		}
		list = append(list, p.object(key, o.rv))
	}
	return list
}

func (p *queuePlayer) look() error {
	if got, want := p.queue.Len(), p.model.live; got != want {
		return fmt.Errorf("length is %d, want %d: %v", got, want, p.model)
	}
	m, checker := p.model, p.queue.HasSyncedChecker()
	if m.live == 0 {
		m.slack = 0
	}
	if got, done := p.queue.HasSynced(), isClosed(checker.Done()); !m.uncertain && (got != m.synced || done != m.synced) {
		return fmt.Errorf("HasSynced is %t and its checker done=%t, want %t: %v", got, done, m.synced, m)
	}
	if checker.Name() == "" {
		return errors.New("HasSyncedChecker has no name")
	}
	return nil
}

var errProcess = errors.New("process failed")

// pop pops once.
func (p *queuePlayer) pop(o op, within []op) {
	path := byBatch
	if _, ok := p.queue.(deltafifo.BatchQueue); !ok || o.kind == pop {
		path = byPop
	}
	fails := o.kind == popFails
	called := false
	err := recovered(func() error {
		return p.popFrom(p.queue, path, func(got popped) error {
			called = true
			within = p.process(o, got, within)
			switch {
			case fails && o.arg%2 == 1:
				panic(errProcess)
			case fails:
				return errProcess
			}
			return nil
		})
	})
	switch {
	case !called && errors.Is(err, cache.ErrFIFOClosed):
		p.must(o, p.model.ended())
		return
	case !called:
		p.must(o, fmt.Errorf("it returned %w and did not call process", err))
	case fails != errors.Is(err, errProcess):
		p.must(o, fmt.Errorf("it returned %w, process failed=%t", err, fails))
	}
	p.model.done(0, !fails)
	for _, o := range within {
		p.produce(o)
	}
}

// recovered calls f and returns errProcess if it panics with that.
func recovered(f func() error) (err error) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case errProcess:
			err = errProcess
		default:
			panic(r)
		}
	}()
	return f()
}

// process is the consumer. It returns the operations inside process for which there was no room.
func (p *queuePlayer) process(o op, got popped, within []op) (late []op) {
	p.must(o, p.model.popped(0, got))
	kept := slices.Clone(got.deltas)
	fails := o.kind == popFails
	p.failed = p.failed || fails
	// The store is updated before the operations inside process, or after.
	before := p.next%2 == 0
	apply := func(now bool) {
		for _, d := range got.deltas {
			if now && !fails {
				p.store.apply(d)
			}
		}
	}
	apply(before)
	// The first operation for which there is no room, and the rest, follow when
	// process has returned.
	within = slices.DeleteFunc(within, func(o op) bool { return o.kind.pops() })
	for len(within) > 0 && !p.try(within[0]) {
		within = within[1:]
	}
	for i, d := range got.deltas {
		if w := word(d); w != word(kept[i]) {
			p.must(o, fmt.Errorf("a delta in process was changed from %s to %s", word(kept[i]), w))
		}
	}
	apply(!before)
	if owned(p.queueSetup) && p.made == nil {
		p.kept, p.words = append(p.kept, got), append(p.words, words(got.deltas))
		_ = append(got.deltas, cache.Delta{Type: "scribble"}) // The consumer may write to what it owns.
	}
	return within
}

// drain pops all, and compares the store with the truth.
func (p *queuePlayer) drain() {
	p.next++
	for i := 0; p.model.live > 0; i++ {
		p.call([]kind{pop, popBatch}[i%2], 0)
	}
	last := op{kind: look, rv: p.next}
	p.must(last, p.look())
	if got, want := p.store.state(), p.truth.state(); deletesSeen(p.queueSetup) && !p.failed && !slices.Equal(got, want) {
		p.must(last, fmt.Errorf("the store has %v, want %v", got, want))
	}
}

// end drains and closes the queue.
func (p *queuePlayer) end() {
	p.drain()
	p.try(op{kind: closeQueue, rv: p.next})
	p.pop(op{kind: pop, rv: p.next}, nil)
	for i, want := range p.words {
		if got := words(p.kept[i].deltas); !slices.Equal(got, want) {
			p.t.Fatalf("%s %v: pop %d was %v, later %v", p.variant.Name, p.queueSetup, i, want, got)
		}
	}
}
