package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/pprof"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
)

// consumable is the common interface of the families deltafifo and queue.
type consumable interface {
	cache.Queue
	Len() int
}

// fifo is the queue pipeline of the families deltafifo and queue.
//
// The initial list goes in by Replace and is handled before the clock starts. Then
// each producer makes its calls, the queue is closed, and the consumers drain it: by
// PopBatch where the queue has it, else by Pop.
type fifo struct {
	build    func() (consumable, error)
	w        *workload
	queue    consumable
	logs     []*deliveryLog // one for each consumer
	turns    *turns         // order the hand-overs of several consumers by key
	handling *handling
	probe    *lockProbe
	latch    chan struct{} // blocks a stalled consumer until release closes it; nil without one
	release  func()
	left     atomic.Int64  // objects of the initial list that are not handed over yet
	listed   chan struct{} // closed when left reaches 0
}

// everKnown is the queue's KnownObjects in per-key delivery. It decides whether a queue drops the
// Delete of a key that does not wait. It knows every key, as in an informer, where a deleted key
// was added before. So every deletion is delivered, whatever the timing, and no variant is faster
// because it delivers less. It lists nothing: Replace, the only caller that lists, comes first.
type everKnown struct{}

func (everKnown) ListKeys() []string                 { return nil }
func (everKnown) GetByKey(string) (any, bool, error) { return nil, true, nil }

func (f *fifo) setup(_ context.Context, w *workload) (err error) {
	f.w = w
	w.score.keys()
	if f.queue, err = f.build(); err != nil {
		return err
	}
	w.cleanupFunc(f.queue.Close)
	f.release = func() {}
	if w.material.Stalled {
		f.latch = make(chan struct{})
		f.release = sync.OnceFunc(func() { close(f.latch) })
	}
	f.handling = newHandling(w.material.HandlerCost)
	f.left.Store(int64(w.score.Initial))
	f.listed = make(chan struct{})
	if w.score.Initial == 0 {
		// A per-key queue hands over nothing for an empty list.
		close(f.listed)
	}
	room := len(w.score.Events)
	for _, c := range w.score.parts()[0] {
		room += len(c.list)
	}
	consumers := w.material.consumersOf(w.guarantees)
	if consumers > 1 {
		f.turns = newTurns(w.score.Storm)
	}
	for range consumers {
		l := newDeliveryLog(w.st, room/consumers)
		if f.turns != nil {
			l.turns = make([]turn, 0, cap(l.deltas))
		}
		f.logs = append(f.logs, l)
	}
	if w.rate.Paced() {
		f.probe = &lockProbe{queue: f.queue, empty: emptyQueue{}}
	}
	w.telemetry.queue(f.queue.Len, f.logs...)
	return nil
}

func (f *fifo) progress() (n uint64) {
	for _, l := range f.logs {
		n += l.published.Load()
	}
	return n
}

func (f *fifo) play(ctx context.Context, w *workload, rec *cell.Recorder) (err error) {
	consumed := make(chan struct{})
	errs := make([]error, len(f.logs))
	var consumers sync.WaitGroup
	for i, log := range f.logs {
		consumers.Go(func() { errs[i] = f.consume(ctx, log) })
	}
	go func() {
		defer close(consumed)
		consumers.Wait()
	}()
	// The consumers end before play returns, unless the queue blocks them.
	defer func() {
		f.handling.on.Store(false)
		f.release()
		f.queue.Close()
		_ = await(context.WithoutCancel(ctx), consumed, f.progress, w.stall, nil)
	}()

	s := w.score.Storm
	list := make([]any, s.Initial)
	for i := range list {
		list[i] = s.Events[i].Object
	}
	if err := f.queue.Replace(list, strconv.Itoa(s.Initial)); err != nil {
		return fmt.Errorf("Replace: %w", err)
	}
	if err := w.await(ctx, f.listed, f.progress); err != nil {
		return err
	}

	f.handling.on.Store(true)
	if w.material.Stalled {
		err = f.fillAndDrain(ctx, rec, consumed)
	} else {
		err = f.flow(ctx, rec, consumed)
	}
	if err != nil {
		return err
	}
	return errors.Join(errs...)
}

func (f *fifo) flow(ctx context.Context, rec *cell.Recorder, consumed <-chan struct{}) error {
	rec.Begin()
	stop := f.probe.start()
	err := f.produce(ctx)
	f.queue.Close()
	if err == nil {
		err = f.w.await(ctx, consumed, f.progress)
	}
	rec.End()
	stop()
	f.probe.note(rec)
	return err
}

// fillAndDrain queues all events while the latch blocks the consumer, measures the
// growth of the heap, and then measures the drain. The objects exist before the first
// measurement, so only the queue's own keys and slices count.
func (f *fifo) fillAndDrain(ctx context.Context, rec *cell.Recorder, consumed <-chan struct{}) error {
	before := liveHeap()
	begun := time.Now()
	if err := f.produce(ctx); err != nil {
		return err
	}
	filled := time.Since(begun)
	after := liveHeap()
	waiting := f.queue.Len()

	rec.Begin()
	f.release()
	f.queue.Close()
	begun = time.Now()
	err := f.w.await(ctx, consumed, f.progress)
	drained := time.Since(begun)
	rec.End()

	events := float64(len(f.w.score.Events) - f.w.score.Initial)
	rec.Note("B/queued-event", float64(int64(after)-int64(before))/events)
	rec.Note("waiting", float64(waiting))
	rec.Note("fill-ns/event", float64(filled)/events)
	rec.Note("drain-ns/event", float64(drained)/events)
	return err
}

// liveHeap returns the bytes of live objects.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // frees what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// produce returns when all producers have ended, with the first error.
func (f *fifo) produce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parts := f.w.score.parts()
	t0 := f.w.st.begin()
	var wg sync.WaitGroup
	for _, calls := range parts {
		wg.Go(func() {
			p := pace.On(f.w.score.schedule)
			defer func() { _ = p.Close() }()
			p.Start(t0)
			pprof.Do(ctx, stageProduce, func(ctx context.Context) {
				if err := f.produceCalls(ctx, p, calls); err != nil {
					cancel(err)
				}
			})
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (f *fifo) produceCalls(ctx context.Context, p *pace.Pacer, calls []call) error {
	st := f.w.st
	for i := range calls {
		c := &calls[i]
		if c.verb == replace {
			// A Replace has its place among the events, and no intended time.
			began := st.now()
			if err := f.queue.Replace(c.list, strconv.FormatUint(uint64(c.seq), 10)); err != nil {
				return fmt.Errorf("Replace after event %d: %w", c.seq, err)
			}
			st.other(uint64(c.seq)+1, began)
			st.replace(c.list)
			continue
		}
		switch {
		case st.paced:
			if err := p.Wait(ctx, int(c.seq)-1-st.initial); err != nil {
				return err
			}
		case i%sampleEvery == 0:
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		st.release(uint64(c.seq))
		var err error
		switch c.verb {
		case add:
			err = f.queue.Add(c.obj)
		case update:
			err = f.queue.Update(c.obj)
		case del:
			err = f.queue.Delete(c.obj)
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", c.seq, err)
		}
		st.enqueue(uint64(c.seq))
	}
	return nil
}

type consumer struct {
	*fifo
	log    *deliveryLog
	stages pprof.Stages // labels the goroutine: pop or handle
}

// consume pops until the queue is closed and empty. It waits at the latch before it
// takes more than the initial list.
func (f *fifo) consume(ctx context.Context, log *deliveryLog) error {
	c := &consumer{fifo: f, log: log, stages: pprof.Switch(ctx, stagePop, stageHandle)}
	c.stages.To(0)
	defer c.stages.End()
	// Each method value allocates, so these are built once.
	single, batch := c.single, c.batch
	take := func() error {
		_, err := f.queue.Pop(single)
		return err
	}
	if q, ok := f.queue.(deltafifo.BatchQueue); ok {
		take = func() error { return q.PopBatch(batch, single) }
	}
	for {
		if f.latch != nil && f.left.Load() <= 0 {
			<-f.latch
		}
		if err := take(); err != nil {
			log.finish()
			if errors.Is(err, cache.ErrFIFOClosed) {
				return nil
			}
			return err
		}
	}
}

// single takes one object, or one key's deltas.
func (c *consumer) single(obj any, _ bool) error {
	if deltas, ok := obj.(cache.Deltas); ok {
		c.take(deltas, false)
		return nil
	}
	deltas := [1]cache.Delta{{Object: obj}}
	c.take(deltas[:], false)
	return nil
}

func (c *consumer) batch(deltas []cache.Delta, _ bool) error {
	c.take(deltas, true)
	return nil
}

// take handles and logs a hand-over, before the queue gets control back. If a clock
// reading is due, it reads the clock before, and with a handler cost also after.
func (c *consumer) take(deltas []cache.Delta, batch bool) {
	c.stages.To(1)
	l := c.log
	var popped, handled int64
	if l.due(len(deltas)) {
		popped = l.st.now()
	}
	began := len(l.turns)
	if c.turns != nil {
		l.turns = c.turns.beginAll(l.turns, deltas, batch)
	}
	if c.handling.costs() {
		c.handling.do(objectsIn(deltas))
		if popped != 0 {
			handled = l.st.now()
		}
	}
	l.add(deltas, batch, popped, handled)
	if c.turns != nil {
		c.turns.end(l.turns[began:])
	}
	if c.left.Load() > 0 {
		n := int64(objectsIn(deltas))
		if left := c.left.Add(-n); left <= 0 && left+n > 0 {
			l.published.Store(uint64(len(l.ends)))
			close(c.listed)
		}
	}
	c.stages.To(0)
}

// check also computes the latencies, as they come from the logs.
func (f *fifo) check(w *workload, rec *cell.Recorder) outcome {
	s, st := w.score.Storm, w.st
	latest := w.guarantees.Coalesces == impls.CoalesceLatest
	log, broken := f.logs[0], violations{}
	if f.turns != nil {
		log = mergeLogs(f.logs, &broken)
	}
	c := log.check(s, w.score.keys(), expectations{
		// Several consumers keep only the order of each key.
		total:     w.guarantees.Order == impls.OrderTotal && f.turns == nil,
		producers: len(w.score.parts()),
		latest:    latest,
		identity:  true,
		relisted:  slices.ContainsFunc(w.score.parts()[0], func(c call) bool { return c.verb == replace }),
		whole:     true,
	})
	c.v.join(&broken)
	handOvers := 0
	for _, l := range f.logs {
		handOvers += len(l.ends)
	}
	rec.Note("hand-overs", float64(handOvers))
	o := outcome{broken: c.v, out: c.out, taken: st.popped, popped: "popped", intervals: []interval{
		{ReleasedEnqueued, st.released, st.enqueued},
		{EnqueuedPopped, st.enqueued, st.popped},
	}}
	copy(st.handled, st.popped)
	if f.handling.costs() {
		copy(st.handled, st.stored)
		clear(st.stored)
		if st.every {
			o.intervals = append(o.intervals, interval{PoppedHandled, st.popped, st.handled})
		}
	}
	if latest {
		completeByKey(s, st.handled, true)
		o.taken = slices.Clone(o.taken)
		completeByKey(s, o.taken, true)
	}
	return o
}
