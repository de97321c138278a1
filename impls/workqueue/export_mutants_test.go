//go:build mutants

package workqueue

import (
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"

	"watchlab/impls/internal/ring"
)

// Mutant is a variant with a deliberate bug.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the name of the subtest that must detect it.
	Check string
}

// Mutants returns one variant per bug. Each is a variant of this package with a method replaced.
// Those that need its fields are in the last part of this file.
func Mutants() []Mutant {
	return []Mutant{
		mutant("lost-wake-up", "does not wake a worker for an Add", "every wait is woken", newNoSignal),
		mutant("wake-up-lost-by-done", "does not wake a worker for an item that Done queues", "an item in process is not handed out", newNoSignalByDone),
		mutant("spins", "polls for an item while idle", "idle costs no CPU time", newSpins),
		mutant("two-states", "has two states for each item", "a queued item is queued once", newTwoStates),
		mutant("moved-back", "moves an item that is added again to the end", "items keep their order", newMovedBack),
		mutant("last-first", "gives the newest of two items first", "items keep their order", newLastFirst),
		mutant("queued-in-process", "queues an item at once that is added while in process", "an item in process is not handed out", newQueuedInProcess),
		mutant("released-early", "ends the process of an item before Done", "nothing lost among adders and workers", newReleasedEarly),
		mutant("added-again-lost", "ignores the Add of an item in process", "an item added in process is queued by Done", newAddedAgainLost),
		mutant("added-again-twice", "queues an item once for each Add while in process", "an item added in process is queued by Done", newAddedAgainTwice),
		mutant("queued-twice", "queues a queued item again at its Done", "Done of a queued item", newUpstream),
		mutant("one-drain-woken", "wakes one of several drains", "several drains at once", newUpstream),
		mutant("drain-early", "does not wait for items in process", "ShutDownWithDrain waits for items in process", newDrainEarly),
		mutant("drain-one-short", "ends a drain with one item in process", "drain during Dones", newDrainOneShort),
		mutant("drain-for-ever", "does not end a drain at ShutDown", "ShutDown ends a drain", newDrainForEver),
		mutant("accepts-after-shutdown", "queues items after ShutDown", "Add after ShutDown is ignored", newAcceptsAfterShutDown),
		mutant("again-after-shutdown", "queues items in process again that are added after ShutDown", "Add in process after ShutDown is ignored", newAgainAfterShutDown),
		mutant("lost-at-shutdown", "drops queued items at ShutDown", "queued items survive ShutDown", newLostAtShutDown),
		mutant("again-lost-at-shutdown", "drops items at ShutDown that were added while in process", "an item added in process survives ShutDown", newAgainLostAtShutDown),
		mutant("late-add", "looks whether it is shut down before it takes the lock", "ShutDown during Adds", newLateAdd),
		mutant("asynchronous", "queues items after Add has returned", "linearizable", newAsynchronous),
		mutant("items-kept", "keeps references to items that are done", "items that are done can be collected", newItemsKept),
		mutant("counts-process", "counts items in process", "Len counts queued items", newCountsProcess),
		mutant("depth-of-process", "counts items in process in the metric depth", "the metrics are client-go's", newDepthOfProcess),
		mutant("latency-of-last-add", "measures the latency from the last Add", "the metrics are client-go's", newLatencyOfLastAdd),
		mutant("goroutine-left", "leaves a goroutine behind", "no goroutine leaks", newGoroutineLeft),
		mutant("late-flag", "refuses Adds before ShuttingDown is true", "linearizable", newLateFlag),
		mutant("unfolded", "does not count what is in the ring", "Len counts queued items", newUnfolded),
		mutant("sleeps-on-ring", "does not look into the ring before a worker sleeps", "every Add wakes a worker", newSleepsOnRing),
		mutantOf(shardedVariant(), "forgotten-shard", "does not mark a shard ready for an item that Done queues", "an item added in process is queued by Done", newForgottenShard),
		mutantOf(shardedVariant(), "emptied-shard", "marks a shard as empty while it has items", "nothing lost among adders and workers", newEmptiedShard),
		mutantOf(shardedVariant(), "last-first-in-shards", "hands out the newest item of a shard first", "items of a shard keep their order", newLastFirstInShards),
		mutantOf(shardedVariant(), "dismissed-early", "sends workers away before it refuses Adds", "ShutDown during Adds", newDismissedEarly),
		mutantOf(priorityVariant(), "last-first-by-priority", "hands out the newest item first", "items keep their order", newNewestFirst),
		mutant("stale-length", "returns the length of the last Add", "random operations", newStaleLength),
	}
}

func mutant(name, broken, check string, build func(Options[string]) Queue[string]) Mutant {
	return mutantOf(ringVariant(), name, broken, check, build)
}

func mutantOf(v Variant, name, broken, check string, build func(Options[string]) Queue[string]) Mutant {
	return Mutant{
		Variant: Variant{
			Name: name, Summary: broken, Guarantees: v.Guarantees,
			New: func(o Options[string]) (Queue[string], error) { return build(o.complete()), nil },
		},
		Broken: broken,
		Check:  check,
	}
}

func newUpstream(o Options[string]) Queue[string] { return newClientgo(o) }

// observed is a queue that knows what is in process.
type observed struct {
	Queue[string]

	mu      sync.Mutex
	process map[string]int // the Adds of an item since its Get, which is 1
	down    bool
}

func newObserved(o Options[string]) *observed {
	return &observed{Queue: newRing(o), process: map[string]int{}}
}

func (q *observed) Get() (string, bool) {
	item, shutdown := q.Queue.Get()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !shutdown {
		q.process[item] = 1
	}
	return item, shutdown
}

// counted notes an Add and returns the number of the item, 0 if it is not in process.
func (q *observed) counted(item string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.process[item] == 0 {
		return 0
	}
	q.process[item]++
	return q.process[item]
}

func (q *observed) forget(item string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.process[item]
	delete(q.process, item)
	return n
}

func (q *observed) Done(item string) {
	q.forget(item)
	q.Queue.Done(item)
}

func (q *observed) ShutDown() {
	q.mu.Lock()
	q.down = true
	q.mu.Unlock()
	q.Queue.ShutDown()
}

type spinner struct{ Queue[string] }

func newSpins(o Options[string]) Queue[string] { return spinner{newRing(o)} }

func (q spinner) Get() (string, bool) {
	for q.Len() == 0 && !q.ShuttingDown() {
		runtime.Gosched()
	}
	return q.Queue.Get()
}

// twoStates has another queue for each other Add. Get takes from either.
type twoStates struct {
	Queue[string]
	turn atomic.Int32
}

func newTwoStates(o Options[string]) Queue[string] { return &twoStates{Queue: newRing(o)} }

func (q *twoStates) Add(item string) {
	if q.turn.Add(1)%2 == 0 {
		item += " " // Another item for the queue.
	}
	q.Queue.Add(item)
}

func (q *twoStates) Get() (string, bool) {
	item, shutdown := q.Queue.Get()
	if n := len(item); n > 0 && item[n-1] == ' ' {
		item = item[:n-1]
	}
	return item, shutdown
}

// movedBack takes all items out at each Add and puts them back.
type movedBack struct{ Queue[string] }

func newMovedBack(o Options[string]) Queue[string] { return movedBack{newRing(o)} }

func (q movedBack) Add(item string) {
	for range q.Len() {
		queued, _ := q.Get()
		q.Done(queued)
		if queued != item {
			defer q.Queue.Add(queued)
		}
	}
	defer q.Queue.Add(item)
}

type lastFirst struct{ *observed }

func newLastFirst(o Options[string]) Queue[string] { return lastFirst{newObserved(o)} }

func (q lastFirst) Get() (string, bool) {
	if q.Len() == 2 {
		first, _ := q.Queue.Get()
		q.Queue.Add(first)
		q.Queue.Done(first)
	}
	return q.observed.Get()
}

type queuedInProcess struct{ Queue[string] }

func newQueuedInProcess(o Options[string]) Queue[string] { return queuedInProcess{newRing(o)} }

func (q queuedInProcess) Add(item string) {
	q.Done(item)
	q.Queue.Add(item)
}

type releasedEarly struct{ Queue[string] }

func newReleasedEarly(o Options[string]) Queue[string] { return releasedEarly{newRing(o)} }

func (q releasedEarly) Get() (string, bool) {
	item, shutdown := q.Queue.Get()
	if !shutdown {
		q.Queue.Done(item)
	}
	return item, shutdown
}

type addedAgainLost struct{ *observed }

func newAddedAgainLost(o Options[string]) Queue[string] { return addedAgainLost{newObserved(o)} }

func (q addedAgainLost) Add(item string) {
	if q.counted(item) == 0 {
		q.observed.Add(item)
	}
}

type addedAgainTwice struct {
	*observed
	more map[string]bool
}

func newAddedAgainTwice(o Options[string]) Queue[string] {
	return addedAgainTwice{newObserved(o), map[string]bool{}}
}

func (q addedAgainTwice) Add(item string) {
	q.counted(item)
	q.observed.Add(item)
}

func (q addedAgainTwice) Done(item string) {
	n := q.forget(item)
	q.Queue.Done(item)
	if q.more[item] {
		delete(q.more, item)
		q.Queue.Add(item)
	} else if n > 2 {
		q.more[item] = true
	}
}

type drainEarly struct{ Queue[string] }

func newDrainEarly(o Options[string]) Queue[string] { return drainEarly{newRing(o)} }

func (q drainEarly) ShutDownWithDrain() { q.ShutDown() }

type drainOneShort struct{ *observed }

func newDrainOneShort(o Options[string]) Queue[string] { return drainOneShort{newObserved(o)} }

func (q drainOneShort) ShutDownWithDrain() {
	q.mu.Lock()
	for item := range q.process {
		q.Queue.Done(item)
		break
	}
	q.mu.Unlock()
	q.Queue.ShutDownWithDrain()
}

type drainForEver struct {
	Queue[string]
	drains atomic.Bool
}

func newDrainForEver(o Options[string]) Queue[string] { return &drainForEver{Queue: newRing(o)} }

func (q *drainForEver) ShutDownWithDrain() {
	q.drains.Store(true)
	q.Queue.ShutDownWithDrain()
}

func (q *drainForEver) ShutDown() {
	if !q.drains.Load() {
		q.Queue.ShutDown()
	}
}

type acceptsAfterShutDown struct {
	Queue[string]
	late Queue[string]
}

func newAcceptsAfterShutDown(o Options[string]) Queue[string] {
	return acceptsAfterShutDown{newRing(o), newRing(Options[string]{}.complete())}
}

func (q acceptsAfterShutDown) Add(item string) {
	if q.ShuttingDown() {
		q.late.Add(item)
	}
	q.Queue.Add(item)
}

func (q acceptsAfterShutDown) Get() (string, bool) {
	if item, shutdown := q.Queue.Get(); !shutdown || q.late.Len() == 0 {
		return item, shutdown
	}
	return q.late.Get()
}

type againAfterShutDown struct {
	*observed
	late Queue[string]
}

func newAgainAfterShutDown(o Options[string]) Queue[string] {
	return againAfterShutDown{newObserved(o), newRing(Options[string]{}.complete())}
}

func (q againAfterShutDown) Add(item string) {
	q.mu.Lock()
	again := q.down && q.process[item] > 0
	q.mu.Unlock()
	if again {
		q.late.Add(item)
	}
	q.Queue.Add(item)
}

func (q againAfterShutDown) Get() (string, bool) {
	if item, shutdown := q.observed.Get(); !shutdown || q.late.Len() == 0 {
		return item, shutdown
	}
	return q.late.Get()
}

type lostAtShutDown struct{ Queue[string] }

func newLostAtShutDown(o Options[string]) Queue[string] { return lostAtShutDown{newRing(o)} }

func (q lostAtShutDown) Get() (string, bool) {
	item, shutdown := q.Queue.Get()
	return item, shutdown || q.ShuttingDown()
}

type againLostAtShutDown struct{ *observed }

func newAgainLostAtShutDown(o Options[string]) Queue[string] {
	return againLostAtShutDown{newObserved(o)}
}

func (q againLostAtShutDown) Add(item string) {
	q.counted(item)
	q.Queue.Add(item)
}

func (q againLostAtShutDown) Done(item string) {
	again := q.forget(item) > 1
	q.Queue.Done(item)
	if again && q.ShuttingDown() {
		lost, _ := q.Queue.Get()
		q.Queue.Done(lost)
	}
}

// lateAdd takes what was added too late when somebody looks.
type lateAdd struct {
	Queue[string]
	down atomic.Bool
	late atomic.Int32
}

func newLateAdd(o Options[string]) Queue[string] { return &lateAdd{Queue: newRing(o)} }

func (q *lateAdd) Add(item string) {
	down := q.down.Load()
	for range 10 {
		runtime.Gosched()
	}
	if q.Queue.Add(item); !down && q.down.Load() {
		q.late.Add(1)
	}
}

func (q *lateAdd) Len() int { return q.Queue.Len() + int(q.late.Load()) }

func (q *lateAdd) ShutDown() {
	q.down.Store(true)
	q.Queue.ShutDown()
}

type asynchronous struct{ Queue[string] }

func newAsynchronous(o Options[string]) Queue[string] { return asynchronous{newRing(o)} }

func (q asynchronous) Add(item string) {
	go q.Queue.Add(item)
}

type itemsKept struct {
	*observed
	kept *[]string
}

func newItemsKept(o Options[string]) Queue[string] { return itemsKept{newObserved(o), new([]string)} }

func (q itemsKept) Done(item string) {
	*q.kept = append(*q.kept, item)
	q.observed.Done(item)
}

type countsProcess struct{ *observed }

func newCountsProcess(o Options[string]) Queue[string] { return countsProcess{newObserved(o)} }

func (q countsProcess) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Queue.Len() + len(q.process)
}

// provider replaces two metrics.
type provider struct {
	workqueue.MetricsProvider
	depth   func(workqueue.GaugeMetric) workqueue.GaugeMetric
	latency func(workqueue.HistogramMetric) workqueue.HistogramMetric
}

func (p provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	if p.depth == nil {
		return p.MetricsProvider.NewDepthMetric(name)
	}
	return p.depth(p.MetricsProvider.NewDepthMetric(name))
}

func (p provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	if p.latency == nil {
		return p.MetricsProvider.NewLatencyMetric(name)
	}
	return p.latency(p.MetricsProvider.NewLatencyMetric(name))
}

type depthOfProcess struct {
	*observed
	depth workqueue.GaugeMetric
}

// only is a gauge that is not lowered.
type only struct{ workqueue.GaugeMetric }

func (only) Dec() {}

func newDepthOfProcess(o Options[string]) Queue[string] {
	q := depthOfProcess{}
	if o.MetricsProvider != nil {
		o.MetricsProvider = provider{MetricsProvider: o.MetricsProvider, depth: func(g workqueue.GaugeMetric) workqueue.GaugeMetric {
			q.depth = g
			return only{g}
		}}
	}
	q.observed = newObserved(o)
	return q
}

func (q depthOfProcess) Done(item string) {
	if q.forget(item) > 0 && q.depth != nil {
		q.depth.Dec()
	}
	q.Queue.Done(item)
}

// latencyOfLastAdd observes its own latencies.
type latencyOfLastAdd struct {
	*observed
	o       Options[string]
	latency workqueue.HistogramMetric
	last    map[string]float64
}

type nothing struct{}

func (nothing) Observe(float64) {}

func newLatencyOfLastAdd(o Options[string]) Queue[string] {
	q := latencyOfLastAdd{o: o, last: map[string]float64{}}
	if o.MetricsProvider != nil {
		o.MetricsProvider = provider{MetricsProvider: o.MetricsProvider, latency: func(h workqueue.HistogramMetric) workqueue.HistogramMetric {
			q.latency = h
			return nothing{}
		}}
	}
	q.observed = newObserved(o)
	return q
}

func (q latencyOfLastAdd) seconds() float64 { return float64(q.o.Clock.Now().UnixNano()) / 1e9 }

func (q latencyOfLastAdd) Add(item string) {
	q.last[item] = q.seconds()
	q.observed.Add(item)
}

func (q latencyOfLastAdd) Get() (string, bool) {
	item, shutdown := q.observed.Get()
	if !shutdown && q.latency != nil {
		q.latency.Observe(q.seconds() - q.last[item])
	}
	return item, shutdown
}

type goroutineLeft struct{ Queue[string] }

func newGoroutineLeft(o Options[string]) Queue[string] {
	if o.Name != "" {
		go func() { select {} }()
	}
	return goroutineLeft{newRing(o)}
}

type staleLength struct {
	Queue[string]
	n atomic.Int64
}

func newStaleLength(o Options[string]) Queue[string] { return &staleLength{Queue: newRing(o)} }

func (q *staleLength) Add(item string) {
	q.Queue.Add(item)
	q.n.Store(int64(q.Queue.Len()))
}

func (q *staleLength) Len() int { return int(q.n.Load()) }

// noSignal fills the ring, or folds it, without a look at who sleeps.
type noSignal struct{ *ringed[string] }

func newNoSignal(o Options[string]) Queue[string] { return noSignal{newRing(o)} }

func (q noSignal) Add(item string) {
	for errors.Is(q.inbox.TryPush(added[string]{item, maphash.Comparable(q.seed, item)}), ring.ErrFull) {
		q.Len()
	}
}

type noSignalByDone struct{ *ringed[string] }

func newNoSignalByDone(o Options[string]) Queue[string] { return noSignalByDone{newRing(o)} }

func (q noSignalByDone) Done(item string) {
	q.lock()
	defer q.unlock()
	q.items.done(item, maphash.Comparable(q.seed, item))
}

type lateFlag struct {
	Queue[string]
	down atomic.Bool
}

func newLateFlag(o Options[string]) Queue[string] { return &lateFlag{Queue: newRing(o)} }

func (q *lateFlag) ShutDown() {
	q.Queue.ShutDown()
	for range 10 {
		runtime.Gosched()
	}
	q.down.Store(true)
}

func (q *lateFlag) ShuttingDown() bool { return q.down.Load() }

type unfolded struct{ *ringed[string] }

func newUnfolded(o Options[string]) Queue[string] { return unfolded{newRing(o)} }

func (q unfolded) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items.len()
}

type sleepsOnRing struct{ *ringed[string] }

func newSleepsOnRing(o Options[string]) Queue[string] {
	q := newRing(o)
	q.idle.ready = q.queued.Load
	return sleepsOnRing{q}
}

func (q sleepsOnRing) Get() (string, bool) {
	if q.ringed.Len() == 0 {
		runtime.Gosched() // An Add finds nobody asleep.
		q.idle.sleep()
	}
	return q.ringed.Get()
}

type forgottenShard struct{ *sharded[string] }

func newForgottenShard(o Options[string]) Queue[string] { return forgottenShard{newSharded(o)} }

func (q forgottenShard) Done(item string) {
	ready := q.ready.Load()
	q.sharded.Done(item)
	q.ready.And(ready)
}

type emptiedShard struct{ *sharded[string] }

func newEmptiedShard(o Options[string]) Queue[string] { return emptiedShard{newSharded(o)} }

func (q emptiedShard) Get() (string, bool) {
	before := q.ready.Load()
	item, shutdown := q.sharded.Get()
	if after := q.ready.Load(); after != before {
		q.ready.And(before) // Loses the bits of shards that were filled meanwhile.
	}
	return item, shutdown
}

type dismissedEarly struct{ *sharded[string] }

func newDismissedEarly(o Options[string]) Queue[string] { return dismissedEarly{newSharded(o)} }

func (q dismissedEarly) ShutDown() {
	q.idle.shutDown(false)
	for range 10 {
		runtime.Gosched()
	}
	q.sharded.ShutDown()
}

// lastFirstInShards takes all items out and hands out the last one.
type lastFirstInShards struct {
	*sharded[string]
	out *[]string
}

func newLastFirstInShards(o Options[string]) Queue[string] {
	return lastFirstInShards{newSharded(o), new([]string)}
}

func (q lastFirstInShards) Get() (string, bool) {
	for range q.Len() {
		item, _ := q.sharded.Get()
		q.Done(item)
		*q.out = append(*q.out, item)
	}
	last := len(*q.out) - 1
	if last < 0 {
		return q.sharded.Get()
	}
	item := (*q.out)[last]
	*q.out = (*q.out)[:last]
	return item, false
}

// newestFirst raises the priority of each item.
type newestFirst struct {
	*PriorityQueue[string]
	priority atomic.Int64
}

func newNewestFirst(o Options[string]) Queue[string] {
	return &newestFirst{PriorityQueue: NewPriority(PriorityOptions[string]{Options: o})}
}

func (q *newestFirst) Add(item string) {
	priority := int(q.priority.Add(1))
	q.AddWithOpts(AddOpts{Priority: &priority}, item)
}
