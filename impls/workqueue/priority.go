package workqueue

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"watchlab/impls"
)

func priorityVariant() Variant {
	return Variant{
		Name:       "priority",
		Summary:    "priorities without starvation, delays by a timing wheel; flat combining: the lock holder adds pending items",
		Guarantees: guarantees(impls.OrderPriority, "workqueue.TypedRateLimitingInterface"),
		New: func(o Options[string]) (Queue[string], error) {
			return NewPriority(PriorityOptions[string]{Options: o}), nil
		},
	}
}

// PriorityOptions configures a [PriorityQueue]. The zero value is valid.
type PriorityOptions[T comparable] struct {
	Options[T]
	// RateLimiter gives the delays of AddRateLimited; nil means controller-runtime's default, an exponential
	// back-off of each item from 5 ms to 1,000 s.
	RateLimiter workqueue.TypedRateLimiter[T]
}

// AddOpts says how items are added. It has the fields of controller-runtime's priorityqueue.AddOpts
// (v0.25.2), so that one converts into the other.
type AddOpts struct {
	After       time.Duration // delay; 0 or less means none
	RateLimited bool          // the delay of the rate limiter, or After if that is shorter and not 0
	Priority    *int          // higher ones first; nil means 0
}

// PriorityQueue is a workqueue with priorities and delays: a [workqueue.TypedRateLimitingInterface] with
// the methods of controller-runtime's priorityqueue.PriorityQueue. Besides the contract of the package:
//
//   - The item of the highest priority is next, the oldest one among those, except for what
//     [StarvationLimit] says. Add, AddAfter and AddRateLimited have the priority 0.
//   - An item that is added again before a Get takes it keeps the highest of the priorities and the
//     earliest of the ready times. If its priority rises, it goes behind the items of the new one.
//   - An item that is added while it is in process has the priority and the delay of these adds only, and
//     goes behind the items of its priority after Done, at once or when the delay ends. A worker that
//     wants its item again with the same priority adds it with what GetWithPriority returned.
//   - A delayed item becomes ready when its delay has passed. Len and depth do not count it before.
//   - ShutDown drops delayed items, as client-go's delaying queue does. The goroutine that waits for
//     the earliest delay runs only while something is delayed.
//
// controller-runtime's queue differs: it drops ready items at shutdown, counts items in process that were
// added again in Len, lets lower priorities starve, and gives such an item, and a delayed one that is added
// without a delay, the place of its first add.
//
// One goroutine at a time holds the queue. A caller that finds it held leaves its command in the inbox,
// which the holder executes. Add and Done return then: they wait neither for workers nor for a long
// queue. Get waits for its answer. Add and Done take a hash look-up and O(1); see levels and wheel for
// the rest. Memory is that of the largest number of items so far.
type PriorityQueue[T comparable] struct {
	limiter  workqueue.TypedRateLimiter[T]
	clock    clock.WithTicker
	metrics  *metrics                // nil without
	retries  workqueue.CounterMetric // nil without
	origin   time.Time               // of all times in nanoseconds
	stopping atomic.Bool
	running  sync.WaitGroup // keepTime
	calls    sync.Pool      // of *call[T]
	earlier  chan struct{}  // keepTime is to look again

	inboxLen atomic.Int64 // len(inbox)
	inboxMu  sync.Mutex
	inbox    []command[T] // guarded by inboxMu

	// held is the lock of the fields below; see hold and release. Who pushes a command reads held afterwards,
	// and who lets go of the queue reads inboxLen afterwards. Atomic operations are sequentially
	// consistent, so the one finds the queue free, or the other finds the command.
	held    atomic.Bool
	spare   []command[T] // the next inbox
	entries map[T]*entry[T]
	free    list[entry[T]]
	ready   levels[T]
	delayed *wheel[T]     // nil until the first delay
	waiting list[call[T]] // of Get, oldest first
	process []*entry[T]   // the items in process
	drain   chan struct{} // closed for ShutDownWithDrain; nil unless one waits
	down    bool
	timing  bool     // whether keepTime runs
	wakeAt  int64    // when it looks next
	woken   *call[T] // answered while the queue is held
	// waking is whether a worker was woken and has not tried yet. It wakes the next one if more is ready. So
	// adders wake one for all that they add meanwhile.
	waking bool
}

// entry is an item and its state, from an add until it is neither queued, nor delayed, nor in process.
type entry[T comparable] struct {
	item           T
	priority       int
	node           node[entry[T]] // in a level or in a bucket of the wheel
	level          *level[T]      // if ready
	due            int64          // if delayed
	sequence       uint64         // order of delayed items with one due
	added, started int64          // metrics.now of the add and of the Get
	process        int32          // index in PriorityQueue.process, from 1 on; 0 means not in process
	place          place
}

// place says where an item is queued.
type place uint8

const (
	placeNone    place = iota
	placeReady         // in levels
	placeDelayed       // in the wheel
	placeHeld          // nowhere: it was added while in process, and waits for Done
)

// command is what a caller wants of the holder: to answer a call, or to do what operation says.
type command[T comparable] struct {
	call      *call[T]
	operation operation
	item      T
	due       int64 // 0 means at once
	priority  int
}

type operation uint8

const (
	opAdd operation = iota
	opDone
)

// call is a caller that waits for a function to be executed, or else for an item.
type call[T comparable] struct {
	function func()
	item     T
	priority int
	shutdown bool
	woken    bool          // the caller is to try again
	node     node[call[T]] // in waiting
	next     *call[T]      // in woken
	answered chan struct{}
}

const (
	// inboxLimit bounds the inbox. A caller that finds more in it waits until the holder catches up.
	inboxLimit = 1024
	// handOver is how often a holder executes the inbox of others. It leaves more to a new goroutine.
	handOver = 8
	// spins is how often Get tries to hold the queue before it leaves a command.
	spins = 30
	// chunk is how many entries are allocated at once.
	chunk = 64
)

// NewPriority returns a queue.
func NewPriority[T comparable](o PriorityOptions[T]) *PriorityQueue[T] {
	o.Options = o.Options.complete()
	q := &PriorityQueue[T]{
		limiter: o.RateLimiter,
		clock:   o.Clock,
		metrics: newMetrics(o.Options),
		origin:  o.Clock.Now(),
		earlier: make(chan struct{}, 1),
		entries: map[T]*entry[T]{},
	}
	if q.limiter == nil {
		q.limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second)
	}
	if q.metrics != nil {
		q.retries = o.MetricsProvider.NewRetriesMetric(o.Name)
	}
	q.calls.New = func() any {
		c := &call[T]{answered: make(chan struct{}, 1)}
		c.node.value = c
		return c
	}
	q.metrics.begin(func(f func(started int64)) {
		q.call(func() {
			for _, e := range q.process {
				f(e.started)
			}
		})
	})
	return q
}

// Add adds an item with the priority 0.
func (q *PriorityQueue[T]) Add(item T) { q.add(item, 0, 0) }

// AddAfter adds an item with the priority 0 after a delay.
func (q *PriorityQueue[T]) AddAfter(item T, delay time.Duration) { q.add(item, delay, 0) }

// AddRateLimited adds an item with the priority 0 after the delay of the rate limiter.
func (q *PriorityQueue[T]) AddRateLimited(item T) { q.AddWithOpts(AddOpts{RateLimited: true}, item) }

// AddWithOpts adds items.
func (q *PriorityQueue[T]) AddWithOpts(o AddOpts, items ...T) {
	priority := 0
	if o.Priority != nil {
		priority = *o.Priority
	}
	for _, item := range items {
		if q.stopping.Load() {
			return
		}
		after := o.After
		if o.RateLimited {
			if limited := q.limiter.When(item); after == 0 || limited < after {
				after = limited
			}
		}
		q.add(item, after, priority)
	}
}

func (q *PriorityQueue[T]) add(item T, after time.Duration, priority int) {
	c := command[T]{operation: opAdd, item: item, priority: priority}
	if after > 0 {
		if q.retries != nil {
			q.retries.Inc()
		}
		now := int64(q.clock.Since(q.origin))
		c.due = now + min(int64(after), math.MaxInt64-max(now, 0))
	}
	q.submit(c)
}

// Done ends the processing of an item. An item that is not in process is ignored.
func (q *PriorityQueue[T]) Done(item T) { q.submit(command[T]{operation: opDone, item: item}) }

// Get waits for an item, see [workqueue.TypedInterface].
func (q *PriorityQueue[T]) Get() (item T, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority waits for an item and returns it with its priority.
func (q *PriorityQueue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	c := q.calls.Get().(*call[T])
	for !q.await(c) {
	}
	item, priority, shutdown = c.item, c.priority, c.shutdown
	c.item, c.shutdown = *new(T), false
	q.calls.Put(c)
	return item, priority, shutdown
}

// await waits for an item. It returns false if it is to be called again.
func (q *PriorityQueue[T]) await(c *call[T]) bool {
	for range spins {
		if q.hold() {
			served := q.serve(c)
			q.release()
			if served {
				return true
			}
			<-c.answered
			return !c.woken
		}
	}
	q.submit(command[T]{call: c})
	<-c.answered
	return !c.woken
}

// call executes a function while the queue is held.
func (q *PriorityQueue[T]) call(function func()) {
	c := q.calls.Get().(*call[T])
	c.function = function
	q.submit(command[T]{call: c})
	<-c.answered
	c.function = nil
	q.calls.Put(c)
}

// Len returns the number of ready items, without those in process.
func (q *PriorityQueue[T]) Len() (n int) {
	q.call(func() { n = q.ready.n })
	return n
}

// Forget clears what the rate limiter knows of an item.
func (q *PriorityQueue[T]) Forget(item T) { q.limiter.Forget(item) }

// NumRequeues returns how often the rate limiter has seen an item since Forget.
func (q *PriorityQueue[T]) NumRequeues(item T) int { return q.limiter.NumRequeues(item) }

// ShuttingDown reports whether ShutDown or ShutDownWithDrain was called.
func (q *PriorityQueue[T]) ShuttingDown() bool {
	if !q.stopping.Load() {
		q.Len() // The holder may have a ShutDown left to do, and refuse what is added after it.
	}
	return q.stopping.Load()
}

// ShutDown ignores later adds and drops delayed items. Get returns what is ready, then shutdown.
func (q *PriorityQueue[T]) ShutDown() { q.shutDown(false) }

// ShutDownWithDrain is ShutDown, and waits until no item is in process. ShutDown ends its wait.
func (q *PriorityQueue[T]) ShutDownWithDrain() { q.shutDown(true) }

func (q *PriorityQueue[T]) shutDown(wait bool) {
	q.metrics.end()
	var drain chan struct{}
	q.call(func() {
		q.stop()
		switch {
		case !wait:
			q.drained()
		case q.drain == nil && len(q.process) > 0:
			q.drain = make(chan struct{})
		}
		drain = q.drain
	})
	if drain != nil {
		<-drain
	}
	q.running.Wait()
}

// submit executes a command, or leaves it to the holder.
func (q *PriorityQueue[T]) submit(c command[T]) {
	// An item that has no hash panics here, in its caller, and not in the holder.
	_ = map[T]struct{}(nil)[c.item]
	if q.hold() {
		q.execute(&c)
		q.release()
		return
	}
	q.inboxMu.Lock()
	q.inbox = append(q.inbox, c)
	q.inboxLen.Store(int64(len(q.inbox)))
	q.inboxMu.Unlock()
	if q.hold() {
		q.release()
	} else if c.call == nil && q.inboxLen.Load() > inboxLimit {
		q.call(func() {})
	}
}

// hold takes the queue unless it is held, and executes the inbox.
func (q *PriorityQueue[T]) hold() bool {
	if q.held.Load() || !q.held.CompareAndSwap(false, true) {
		return false
	}
	if q.inboxLen.Load() == 0 {
		return true
	}
	q.inboxMu.Lock()
	commands := q.inbox
	q.inbox = q.spare[:0]
	q.inboxLen.Store(0)
	q.inboxMu.Unlock()
	for i := range commands {
		q.execute(&commands[i])
	}
	clear(commands)
	q.spare = commands
	return true
}

// release lets go of the queue, and wakes those whose calls are answered.
func (q *PriorityQueue[T]) release() {
	for range handOver {
		c := q.woken
		q.woken = nil
		q.held.Store(false)
		for c != nil {
			next := c.next // c is its caller's from now on.
			c.next = nil
			c.answered <- struct{}{}
			c = next
		}
		if q.inboxLen.Load() == 0 || !q.hold() {
			return
		}
	}
	go q.release()
}

// answer wakes a caller once the queue is released.
func (q *PriorityQueue[T]) answer(c *call[T]) { c.next, q.woken = q.woken, c }

// execute does a command. Like all functions below except for keepTime, it needs the queue to be held.
func (q *PriorityQueue[T]) execute(c *command[T]) {
	switch {
	case c.call == nil && c.operation == opAdd:
		q.added(c)
	case c.call == nil:
		q.finished(c.item)
	case c.call.function != nil:
		c.call.function()
		q.answer(c.call)
	case q.serve(c.call):
		q.answer(c.call)
	}
}

// serve gives a Get its item. It returns false if the Get waits.
func (q *PriorityQueue[T]) serve(c *call[T]) bool {
	if c.woken {
		c.woken, q.waking = false, false
	}
	switch {
	case q.ready.n > 0:
		c.item, c.priority = q.take()
	case q.down:
		c.shutdown = true
	default:
		q.waiting.push(&c.node)
		return false
	}
	return true
}

// wake makes a worker that waits try again.
func (q *PriorityQueue[T]) wake() {
	if c := q.waiting.pop(); c != nil {
		c.woken, q.waking = true, true
		q.answer(c)
	}
}

func (q *PriorityQueue[T]) added(c *command[T]) {
	if q.down {
		return
	}
	e := q.entries[c.item]
	if e == nil {
		e = q.newEntry()
		e.item = c.item
		if e.item == e.item { //nolint:gocritic // false for a NaN, which no map finds
			q.entries[c.item] = e
		}
	}
	raised := e.place == placeNone || c.priority > e.priority
	if raised && e.place == placeReady {
		q.ready.remove(e)
		e.priority = c.priority
		q.ready.push(e)
		return
	}
	if raised {
		e.priority = c.priority
	}
	if e.place == placeReady || e.place == placeHeld || e.place == placeDelayed && c.due >= e.due {
		return
	}
	if e.place == placeDelayed {
		e.node.remove()
		e.place = placeNone
	}
	if c.due == 0 {
		q.makeReady(e)
	} else {
		q.delay(e, c.due)
	}
}

// makeReady queues an item that was nowhere before.
func (q *PriorityQueue[T]) makeReady(e *entry[T]) {
	e.added = q.metrics.now()
	q.metrics.add()
	if e.process > 0 {
		e.place = placeHeld
		return
	}
	q.push(e)
}

// push queues an item.
func (q *PriorityQueue[T]) push(e *entry[T]) {
	e.place = placeReady
	q.ready.push(e)
	if !q.waking {
		q.wake()
	}
}

// delay puts an item that is nowhere into the wheel.
func (q *PriorityQueue[T]) delay(e *entry[T], due int64) {
	if q.delayed == nil {
		q.delayed = new(wheel[T])
	}
	e.place, e.due = placeDelayed, due
	q.delayed.insert(e)
	if !q.timing {
		q.timing = true
		q.running.Go(q.keepTime)
	} else if due < q.wakeAt {
		q.lookAgain()
	}
}

func (q *PriorityQueue[T]) lookAgain() {
	select {
	case q.earlier <- struct{}{}:
	default:
	}
}

// take hands out the next item; there must be one.
func (q *PriorityQueue[T]) take() (T, int) {
	e := q.ready.pop()
	if q.ready.n > 0 && !q.waking {
		q.wake()
	}
	item, priority := e.item, e.priority
	e.started = q.metrics.now()
	q.metrics.get(e.added, e.started)
	if item != item { //nolint:gocritic // true for a NaN
		q.putEntry(e)
		return item, priority
	}
	q.process = append(q.process, e)
	e.place, e.process = placeNone, int32(len(q.process))
	return item, priority
}

// finished ends the processing of an item.
func (q *PriorityQueue[T]) finished(item T) {
	e := q.entries[item]
	if e == nil || e.process == 0 {
		return
	}
	q.metrics.done(e.started)
	last := len(q.process) - 1
	q.process[e.process-1] = q.process[last]
	q.process[e.process-1].process = e.process
	q.process[last] = nil
	q.process, e.process = q.process[:last], 0
	switch e.place {
	case placeHeld:
		q.push(e)
	case placeNone:
		delete(q.entries, item)
		q.putEntry(e)
	}
	if len(q.process) == 0 {
		q.drained()
	}
}

// stop ends the waits of Get, and drops what is delayed.
func (q *PriorityQueue[T]) stop() {
	q.down = true
	q.stopping.Store(true)
	for !q.waiting.empty() {
		q.wake()
	}
	if q.delayed == nil {
		return
	}
	for _, e := range q.delayed.advance(math.MaxInt64) {
		if e.place = placeNone; e.process == 0 {
			delete(q.entries, e.item)
		}
	}
	q.delayed = nil
	q.lookAgain()
}

// drained ends the waits of ShutDownWithDrain.
func (q *PriorityQueue[T]) drained() {
	if q.drain != nil {
		close(q.drain)
		q.drain = nil
	}
}

// keepTime makes delayed items ready until there are none.
func (q *PriorityQueue[T]) keepTime() {
	timer := q.clock.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		more := false
		q.call(func() {
			q.wakeAt, more = q.expire()
			q.timing = more
		})
		if !more {
			return
		}
		// Nobody else writes wakeAt.
		timer.Reset(time.Duration(q.wakeAt) - q.clock.Since(q.origin))
		select {
		case <-timer.C():
		case <-q.earlier:
			if !timer.Stop() {
				select {
				case <-timer.C():
				default:
				}
			}
		}
	}
}

// expire makes ready what is due. It returns when it is to be called next, and false if nothing is delayed.
func (q *PriorityQueue[T]) expire() (int64, bool) {
	if q.delayed == nil {
		return 0, false
	}
	due := q.delayed.advance(int64(q.clock.Since(q.origin)))
	for _, e := range due {
		e.place = placeNone
		q.makeReady(e)
	}
	clear(due)
	return q.delayed.next()
}

func (q *PriorityQueue[T]) newEntry() *entry[T] {
	e := q.free.pop()
	if e == nil {
		entries := make([]entry[T], chunk)
		for i := range entries {
			q.putEntry(&entries[i])
		}
		e = q.free.pop()
	}
	return e
}

// putEntry keeps an entry for another item.
func (q *PriorityQueue[T]) putEntry(e *entry[T]) {
	*e = entry[T]{}
	e.node.value = e
	q.free.push(&e.node)
}
