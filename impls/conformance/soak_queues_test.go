package conformance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/queue"
)

// subject is an instance of family deltafifo or queue.
type subject struct {
	queue interface {
		cache.Queue
		Len() int
	}
	// take pops once. handle may panic.
	take func(rng *rand.Rand, handle func([]cache.Delta) error) error
	// exact: every event is delivered; otherwise only the newest of a key.
	exact bool
	// ordered: the events of a producer are delivered in their order, of whatever key.
	ordered bool
	// deletions: deletions are delivered.
	deletions bool
	consumers int
	// store is the consumer's store; nil if the family delivers no deletions.
	store cache.Store
}

// soak is one episode.
type soak struct {
	subject
	t *testing.T

	// pause is read-locked by producers and locked by a list, so that a list
	// contains all earlier events.
	pause sync.RWMutex
	// keys are the keys of each producer, which writes them while it holds pause.
	keys [producers][]*key
	// closing is set before Close: an event that is sent from then on may be dropped.
	closing atomic.Bool
	// accepted counts the accepted events of each producer.
	accepted [producers]int
	// slow is the number of hand-overs of which one is slow.
	slow int
	// mu guards the fields below, which consumers write.
	mu sync.Mutex
	// seen is the newest delivered version of each key.
	seen map[string]int
	// last is the newest delivered event of each producer.
	last [producers]int64
	// inHand holds the keys in process.
	inHand map[string]bool
	// failed is the first failure.
	failed error
}

// key is one object of a producer.
type key struct {
	name    string
	version int
	// object is the last sent object; nil after a deletion.
	object *metav1.ObjectMeta
	// sure is the last version that was sent before Close; deleted says that a later call, or
	// that one, is a deletion.
	sure    int
	deleted bool
}

const keysEach = 40

// playKeyed runs an episode of several rounds and closes the queue at a random
// time in the last one.
func playKeyed(t *testing.T, rng *rand.Rand, m *meter, s subject) {
	e := &soak{subject: s, t: t, seen: map[string]int{}, inHand: map[string]bool{}, slow: m.pick(2000, 1_000_000)}
	for p := range producers {
		for k := range keysEach {
			e.keys[p] = append(e.keys[p], &key{name: fmt.Sprintf("p%d-k%d", p, k)})
		}
	}
	var consumers sync.WaitGroup
	for range e.consumers {
		seed := rng.Uint64()
		consumers.Go(func() { e.consume(rand.New(rand.NewPCG(seed, 0))) })
	}
	for round := range m.pick(1+rng.IntN(20), longRounds) {
		before := e.events()
		e.round(rng, m.each(50+rng.IntN(1000)), nil)
		e.drained(round)
		m.sample(e.events() - before)
		if e.failedAlready() {
			break
		}
	}
	before := e.events()
	e.round(rng, 2000, time.After(time.Duration(rng.IntN(20_000))*time.Microsecond))
	e.queue.Close()
	consumers.Wait()
	e.check("after Close")
	m.sample(e.events() - before)
	if e.failed != nil {
		t.Error(e.failed)
	}
}

func (e *soak) events() int {
	n := 0
	for _, a := range e.accepted {
		n += a
	}
	return n
}

// round lets each producer send a number of events, concurrently with list, until
// all are sent or the queue is closed.
func (e *soak) round(rng *rand.Rand, each int, closeAt <-chan time.Time) {
	var all sync.WaitGroup
	done := make(chan struct{})
	for p := range producers {
		seed := rng.Uint64()
		all.Go(func() { e.produce(p, each, rand.New(rand.NewPCG(seed, 0))) })
	}
	var others sync.WaitGroup
	seed := rng.Uint64()
	others.Go(func() { e.list(rand.New(rand.NewPCG(seed, 0)), done) })
	if closeAt != nil {
		others.Go(func() {
			select {
			case <-closeAt:
				e.closing.Store(true)
				e.queue.Close()
			case <-done:
			}
		})
	}
	all.Wait()
	close(done)
	others.Wait()
}

func (e *soak) fail(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil {
		e.failed = fmt.Errorf(format, args...)
	}
}

func (e *soak) produce(p, each int, rng *rand.Rand) {
	for range each {
		// Some keys are hotter than others.
		k := e.keys[p][min(rng.IntN(keysEach), rng.IntN(keysEach))]
		e.pause.RLock()
		err := e.tell(p, k, rng)
		if err == nil {
			e.accepted[p]++
		}
		e.pause.RUnlock()
		if errors.Is(err, cache.ErrFIFOClosed) {
			return
		}
		if err != nil {
			e.fail("producer %d: %w", p, err)
			return
		}
	}
}

// tell sends the next version of a key. A refused version does not count.
func (e *soak) tell(p int, k *key, rng *rand.Rand) error {
	obj := &metav1.ObjectMeta{
		Name: k.name, ResourceVersion: strconv.Itoa(k.version + 1), Generation: int64(e.accepted[p] + 1),
	}
	call, object := e.queue.Update, obj
	switch {
	case k.object == nil:
		call = e.queue.Add
	case rng.IntN(5) == 0:
		call, object = e.queue.Delete, nil
	}
	if err := call(obj); err != nil {
		return err
	}
	k.version, k.object = k.version+1, object
	if e.closing.Load() {
		k.deleted = k.deleted || object == nil
	} else {
		k.sure, k.deleted = k.version, object == nil
	}
	return nil
}

// list calls Replace, Resync and Bookmark at random.
func (e *soak) list(rng *rand.Rand, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(1+rng.IntN(20)) * time.Millisecond):
		}
		var err error
		switch rng.IntN(3) {
		case 0:
			err = e.queue.Resync()
		case 1:
			if q, ok := e.queue.(cache.ReflectorBookmarkStore); ok {
				err = q.Bookmark("1")
			}
		default:
			e.pause.Lock()
			var all []any
			for _, keys := range e.keys {
				for _, k := range keys {
					if k.object != nil {
						all = append(all, k.object)
					}
				}
			}
			err = e.queue.Replace(all, "1")
			e.pause.Unlock()
		}
		if errors.Is(err, cache.ErrFIFOClosed) {
			return
		}
		if err != nil {
			e.fail("list: %w", err)
			return
		}
	}
}

// errHandler is the value of the handler's random panics.
var errHandler = errors.New("the handler panics")

// consume pops until the queue is closed and empty.
func (e *soak) consume(rng *rand.Rand) {
	for {
		err := e.takeOnce(rng)
		switch {
		case errors.Is(err, cache.ErrFIFOClosed):
			return
		case err != nil && !errors.Is(err, errHandler):
			e.fail("take: %w", err)
		}
	}
}

func (e *soak) takeOnce(rng *rand.Rand) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r // Other than the handler's it is the harness's, or the queue's.
		default:
			panic(r)
		}
	}()
	return e.take(rng, func(deltas []cache.Delta) error {
		e.enter(deltas)
		defer e.leave(deltas)
		switch roll := rng.IntN(e.slow); {
		case roll == 0:
			<-time.After(time.Duration(rng.IntN(4)) * time.Millisecond)
		case roll < 5:
			panic(errHandler)
		case roll < 10:
			return errHandler
		}
		return nil
	})
}

// enter checks and stores deltas. The handler fails afterwards, like one that
// notifies others of stored objects.
func (e *soak) enter(deltas []cache.Delta) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range deltas {
		if k := nameOf(d); e.inHand[k] && e.failed == nil {
			e.failed = fmt.Errorf("%s is in two consumers' hands", k)
		}
	}
	for _, d := range deltas {
		if err := e.see(d); err != nil && e.failed == nil {
			e.failed = err
		}
		if k := nameOf(d); k != "" {
			e.inHand[k] = true
		}
	}
}

func (e *soak) leave(deltas []cache.Delta) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range deltas {
		delete(e.inHand, nameOf(d))
	}
}

func nameOf(d cache.Delta) string {
	switch o := d.Object.(type) {
	case cache.DeletedFinalStateUnknown:
		return o.Key
	case *metav1.ObjectMeta:
		return o.Name
	}
	return ""
}

func versionOf(o *metav1.ObjectMeta) int {
	v, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return v
}

// see compares a delta with the sent versions of its key.
func (e *soak) see(d cache.Delta) error {
	switch o := d.Object.(type) {
	case cache.ReplacedAllInfo:
		return e.seeAll(o)
	case *metav1.ObjectMeta:
		v, last := versionOf(o), e.seen[o.Name]
		again := d.Type == cache.Replaced || d.Type == cache.Sync || !e.deletions
		switch {
		case again && (v == last || v > last && !e.exact):
		case !again && (v == last+1 || v > last && !e.exact):
		default:
			return fmt.Errorf("%s of version %d of %s came after version %d", d.Type, v, o.Name, last)
		}
		e.seen[o.Name] = v
		if p := o.Name[1] - '0'; e.ordered && !again {
			if o.Generation != e.last[p]+1 {
				return fmt.Errorf("event %d of producer %d came after event %d", o.Generation, p, e.last[p])
			}
			e.last[p] = o.Generation
		}
		if e.store == nil {
			return nil
		}
		if d.Type == cache.Deleted {
			return e.store.Delete(o)
		}
		return e.store.Update(o)
	case cache.DeletedFinalStateUnknown:
		// A list contains all earlier events. So only deleted keys get
		// tombstones, and their deletion was delivered.
		if e.exact {
			return fmt.Errorf("%s was buried, and is in the list or was deleted", o.Key)
		}
		// With compaction the tombstone replaces the deletion.
		if obj, ok := o.Obj.(*metav1.ObjectMeta); ok {
			e.seen[o.Key] = max(e.seen[o.Key], versionOf(obj))
		}
		return e.store.Delete(o)
	}
	return nil
}

// seeAll compares a ReplacedAll list with the consumer's store, which must be equal.
func (e *soak) seeAll(o cache.ReplacedAllInfo) error {
	if len(o.Objects) != len(e.store.ListKeys()) {
		return fmt.Errorf("a list of %d objects came to a consumer that holds %d", len(o.Objects), len(e.store.ListKeys()))
	}
	for _, obj := range o.Objects {
		listed := obj.(*metav1.ObjectMeta)
		if v := versionOf(listed); v != e.seen[listed.Name] {
			return fmt.Errorf("version %d of %s was listed after version %d was handed over", v, listed.Name, e.seen[listed.Name])
		}
	}
	return e.store.Replace(o.Objects, o.ResourceVersion)
}

// drained waits until all sent events are delivered.
func (e *soak) drained(round int) {
	for deadline := time.Now().Add(patience); ; {
		err := e.missing()
		if err == nil {
			break
		}
		if e.failedAlready() {
			return
		}
		if time.Now().After(deadline) {
			e.fail("round %d: nothing more comes, and %w", round, err)
			return
		}
		<-time.After(time.Millisecond)
	}
	e.check(fmt.Sprintf("after round %d", round))
}

func (e *soak) failedAlready() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed != nil
}

// missing returns an error that names the undelivered events.
func (e *soak) missing() error {
	if n := e.queue.Len(); n > 0 {
		return fmt.Errorf("%d wait", n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.inHand) > 0 || e.failed != nil {
		return e.failed
	}
	for _, keys := range e.keys {
		for _, k := range keys {
			if last := e.seen[k.name]; (last < k.sure || last > k.version) && (e.deletions || !k.deleted) {
				return fmt.Errorf("version %d of %s was handed over last, %d to %d were told", last, k.name, k.sure, k.version)
			}
		}
	}
	return nil
}

// check compares the consumer's store with the sent objects.
func (e *soak) check(when string) {
	if err := e.missing(); err != nil {
		e.fail("%s: %w", when, err)
		return
	}
	if e.store == nil || e.closing.Load() {
		return
	}
	var want []string
	for _, keys := range e.keys {
		for _, k := range keys {
			if k.object != nil {
				want = append(want, k.name)
			}
		}
	}
	got := e.store.ListKeys()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		e.fail("%s: the consumer holds %d objects, want %d", when, len(got), len(want))
	}
}

// capacities are the choices for a bounded instance.
var capacities = []int{0, 1, 7, 1024}

func consumersOf(g impls.Guarantees, rng *rand.Rand) int {
	if g.Consumers == impls.ManyConsumers {
		return 1 + rng.IntN(4)
	}
	return 1 + rng.IntN(2) // Two take turns.
}

func deltafifoCells() []cell {
	var cells []cell
	for _, v := range deltafifo.Variants() {
		if v.Baseline() {
			continue
		}
		for _, g := range v.Guarantees {
			cells = append(cells, cell{fmt.Sprintf("deltafifo/%s/%s", v.Name, g.Mode), func(t *testing.T, rng *rand.Rand, m *meter) {
				o := deltafifo.Options{Delivery: deltafifo.Delivery(g.Mode)}
				store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)

				if o.Delivery == deltafifo.PerKey || rng.IntN(2) == 0 {
					o.KnownObjects = store
				}
				if g.Bounded {
					o.Capacity = capacities[rng.IntN(len(capacities))]
				}
				if o.Delivery == deltafifo.PerKey && rng.IntN(3) == 0 {
					o.Compaction = deltafifo.Latest
				}
				o.HandOver = []impls.Ownership{impls.Owned, impls.Lent}[rng.IntN(2)]
				o.BatchSize = []int{0, 3, 100}[rng.IntN(3)]
				q, err := v.New(o)
				if err != nil {
					t.Fatalf("New(%+v): %v", o, err)
				}
				playKeyed(t, rng, m, subject{
					queue: q, take: takeDeltas(q), store: store, deletions: true,
					exact: o.Compaction != deltafifo.Latest, ordered: o.Delivery == deltafifo.InOrder,
					consumers: consumersOf(g, rng),
				})
				if t.Failed() {
					t.Logf("options: capacity %d, compaction %q, hand-over %s, batch size %d, known %t",
						o.Capacity, o.Compaction, o.HandOver, o.BatchSize, o.KnownObjects != nil)
				}
			}})
		}
	}
	return cells
}

// takeDeltas pops with Pop or PopBatch at random.
func takeDeltas(q deltafifo.Queue) func(*rand.Rand, func([]cache.Delta) error) error {
	return func(rng *rand.Rand, handle func([]cache.Delta) error) error {
		single := func(obj any, _ bool) error { return handle(obj.(cache.Deltas)) }
		if b, ok := q.(deltafifo.BatchQueue); ok && rng.IntN(4) > 0 {
			return b.PopBatch(func(deltas []cache.Delta, _ bool) error { return handle(deltas) }, single)
		}
		_, err := q.Pop(single)
		return err
	}
}

func queueCells() []cell {
	var cells []cell
	for _, v := range queue.Variants() {
		if v.Baseline() {
			continue
		}
		g := v.Guarantees[0]
		cells = append(cells, cell{"queue/" + v.Name, func(t *testing.T, rng *rand.Rand, m *meter) {
			o := queue.Options{}
			if g.Bounded {
				o.Capacity = capacities[rng.IntN(len(capacities))]
			}
			q, err := v.New(o)
			if err != nil {
				t.Fatalf("New(%+v): %v", o, err)
			}
			playKeyed(t, rng, m, subject{
				queue: q, consumers: consumersOf(g, rng),
				take: func(_ *rand.Rand, handle func([]cache.Delta) error) error {
					_, err := q.Pop(func(obj any, _ bool) error {
						return handle([]cache.Delta{{Type: cache.Updated, Object: obj}})
					})
					return err
				},
			})
			if t.Failed() {
				t.Logf("options: capacity %d", o.Capacity)
			}
		}})
	}
	return cells
}
