//go:build mutants

package workqueue

import (
	"runtime"
	"sync"
)

// Mutant is a variant with a deliberate bug.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the name of the subtest that must detect it.
	Check string
}

// Mutants returns one variant for each named invariant. Each has a method replaced.
func Mutants() []Mutant {
	return []Mutant{
		mutant("queued-in-process", "queues an item at once that is added while in process", "an item in process is not handed out", newQueuedInProcess),
		mutant("drain-one-short", "ends a drain with one item in process", "drain during Dones", newDrainOneShort),
		mutant("asynchronous", "queues items after Add has returned", "linearizable", newAsynchronous),
		mutant("sleeps-on-ring", "does not look into the ring before a worker sleeps", "every Add wakes a worker", newSleepsOnRing),
	}
}

func mutant(name, broken, check string, build func(Options[string]) Queue[string]) Mutant {
	return Mutant{
		Variant: Variant{
			Name: name, Summary: broken, Guarantees: ringVariant().Guarantees,
			New: func(o Options[string]) (Queue[string], error) { return build(o.complete()), nil },
		},
		Broken: broken,
		Check:  check,
	}
}

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

type queuedInProcess struct{ Queue[string] }

func newQueuedInProcess(o Options[string]) Queue[string] { return queuedInProcess{newRing(o)} }

func (q queuedInProcess) Add(item string) {
	q.Done(item)
	q.Queue.Add(item)
}

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

type asynchronous struct{ Queue[string] }

func newAsynchronous(o Options[string]) Queue[string] { return asynchronous{newRing(o)} }

func (q asynchronous) Add(item string) {
	go q.Queue.Add(item)
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
