package conformance_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/merge"
)

// instance is a queue or a merger. A call after Close may be dropped, or be an error that isClosed knows.
type instance interface {
	// send tells the newest change of a key.
	send(k *key, rng *rand.Rand) error
	// list tells the state of all keys, or of those of a producer. No producer that it lists sends meanwhile.
	list(producer int, rng *rand.Rand) error
	// receive hands over what a consumer takes at once. handle may panic.
	receive(rng *rand.Rand, handle func([]change) error) error
	// waiting is the number of events that are surely not handed over.
	waiting() int
	Close()
}

func isClosed(err error) bool {
	return errors.Is(err, cache.ErrFIFOClosed) || errors.Is(err, merge.ErrClosed)
}

// change is what a consumer learns of a key.
type change struct {
	key     string
	version int
	deleted bool
	// again: the version may have been told before.
	again bool
	// buried: a list lacked the key.
	buried bool
}

// key is one object of a producer.
type key struct {
	name     string
	producer int
	version  int
	deleted  bool
	// sure is the last version that was sent before Close; gone says that a call from then on may be a deletion.
	sure int
	gone bool
}

const keysEach = 40

// episode is the life of an instance: rounds of concurrent producers, of which the last one ends with Close at
// a random time.
type episode struct {
	instance
	*meter
	// exact: every event is delivered; otherwise only the newest of a key.
	exact bool
	// deletions are delivered, and each is a version of its own if versioned is set.
	deletions, versioned bool
	// drains: what was accepted before Close is delivered.
	drains    bool
	consumers int
	// lists and slow are the number of events and hand-overs of which one is a list, and slow.
	lists, slow int

	// pause is read-locked by producers and locked by a list, so that it contains all earlier events.
	pause sync.RWMutex
	// keys are the keys of each producer, which writes them while it holds pause.
	keys     [producers][]*key
	accepted [producers]int
	closing  atomic.Bool

	// mu guards what consumers write: the newest version of each key, whether it exists, and the first failure.
	mu      sync.Mutex
	seen    map[string]int
	present map[string]bool
	failed  error
}

func newEpisode(m *meter) *episode {
	e := &episode{meter: m, seen: map[string]int{}, present: map[string]bool{}}
	for p := range producers {
		for k := range keysEach {
			e.keys[p] = append(e.keys[p], &key{name: fmt.Sprintf("p%d-k%d", p, k), producer: p, deleted: true})
		}
	}
	return e
}

func (e *episode) play(rng *rand.Rand) error {
	var consuming sync.WaitGroup
	for range e.consumers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		consuming.Go(func() { e.consume(own) })
	}
	for round := range e.pick(1+rng.IntN(20), longRounds) {
		before := e.sent()
		e.round(rng, e.each(50+rng.IntN(1000)))
		e.drained(round)
		e.sample(e.sent() - before)
		if e.failure() != nil {
			break
		}
	}
	before := e.sent()
	if !e.drains {
		e.closing.Store(true)
	}
	closed := make(chan struct{})
	time.AfterFunc(time.Duration(rng.IntN(20_000))*time.Microsecond, func() {
		defer close(closed)
		e.closing.Store(true)
		e.Close()
	})
	e.round(rng, 2000)
	<-closed
	consuming.Wait()
	if err := e.missing(); err != nil && e.drains {
		e.fail("after Close: %w", err)
	}
	e.sample(e.sent() - before)
	return e.failed
}

func (e *episode) sent() int {
	n := 0
	for _, a := range e.accepted {
		n += a
	}
	return n
}

// round lets each producer send a number of events.
func (e *episode) round(rng *rand.Rand, each int) {
	var all sync.WaitGroup
	for p := range producers {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		all.Go(func() {
			for range each {
				if err := e.produce(p, own); err != nil {
					if !isClosed(err) {
						e.fail("producer %d: %w", p, err)
					}
					return
				}
			}
		})
	}
	all.Wait()
}

func (e *episode) produce(p int, rng *rand.Rand) error {
	if rng.IntN(e.lists) == 0 {
		e.pause.Lock()
		defer e.pause.Unlock()
		return e.list(p, rng)
	}
	e.pause.RLock()
	defer e.pause.RUnlock()
	// Some keys are hotter than others.
	k := e.keys[p][min(rng.IntN(keysEach), rng.IntN(keysEach))]
	was := *k
	k.deleted = !k.deleted && rng.IntN(5) == 0
	if !k.deleted || e.versioned {
		k.version++
	}
	if err := e.send(k, rng); err != nil {
		*k = was // What was refused does not count.
		return err
	}
	e.accepted[p]++
	if e.closing.Load() {
		k.gone = k.gone || k.deleted
	} else {
		k.sure, k.gone = k.version, k.deleted
	}
	return nil
}

func (e *episode) fail(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed == nil {
		e.failed = fmt.Errorf(format, args...)
	}
}

func (e *episode) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// errHandler is the error, and the value of the panics, of the handler.
var errHandler = errors.New("the handler fails")

// consume receives until the instance is closed and empty.
func (e *episode) consume(rng *rand.Rand) {
	for {
		switch err := e.once(rng); {
		case isClosed(err):
			return
		case err != nil && !errors.Is(err, errHandler):
			e.fail("take: %w", err)
		}
	}
}

func (e *episode) once(rng *rand.Rand) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r // Other than the handler's it is the harness's, or the queue's.
		default:
			panic(r)
		}
	}()
	// The handler fails after the change, like one that notifies others of stored objects.
	return e.receive(rng, func(changes []change) error {
		for _, c := range changes {
			if err := e.see(c); err != nil {
				e.fail("%w", err)
			}
		}
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

// see compares a change with the versions of its key before.
func (e *episode) see(c change) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.seen[c.key]
	switch {
	case c.buried && e.exact:
		// A list contains all earlier events, so only deleted keys are buried, and their deletion was delivered.
		return fmt.Errorf("%s was buried, and is in the list or was deleted", c.key)
	case c.buried: // It replaces the deletion.
		c.version = max(last, c.version)
	case c.deleted && !e.present[c.key] && !e.versioned:
		return fmt.Errorf("%s was deleted, and does not exist", c.key)
	case c.version == last+1 && !c.again, c.version == last && (c.again || c.deleted && !e.versioned), c.version > last && !e.exact:
	default:
		return fmt.Errorf("version %d of %s came after version %d, again=%t deleted=%t", c.version, c.key, last, c.again, c.deleted)
	}
	e.seen[c.key], e.present[c.key] = c.version, !c.deleted
	return nil
}

// drained waits until all sent events are delivered.
func (e *episode) drained(round int) {
	for deadline := time.Now().Add(patience); ; <-time.After(time.Millisecond) {
		err := e.missing()
		if err == nil || e.failure() != nil {
			return
		}
		if time.Now().After(deadline) {
			e.fail("round %d: nothing more comes, and %w", round, err)
			return
		}
	}
}

// missing names what is not delivered: the newest version of each key, and whether it exists.
func (e *episode) missing() error {
	if n := e.waiting(); n > 0 {
		return fmt.Errorf("%d wait", n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, keys := range e.keys {
		for _, k := range keys {
			last := e.seen[k.name]
			if (last < k.sure || last > k.version) && (e.deletions || !k.gone) {
				return fmt.Errorf("version %d of %s was handed over last, %d to %d were told", last, k.name, k.sure, k.version)
			}
			if e.deletions && !e.closing.Load() && e.present[k.name] == k.deleted {
				return fmt.Errorf("%s exists=%t for the consumer, and deleted=%t", k.name, e.present[k.name], k.deleted)
			}
		}
	}
	return nil
}
