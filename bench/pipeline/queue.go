package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/observe"
	"watchlab/bench/pprof"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
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
// each producer makes its calls, the queue is closed, and the consumer drains it: by
// PopBatch where the queue has it, else by Pop.
type fifo struct {
	build    func() (consumable, error)
	r        *round
	queue    consumable
	log      *observe.Log
	handling *handling
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

func (f *fifo) setup(_ context.Context, r *round) (err error) {
	f.r = r
	r.storm.keys()
	if f.queue, err = f.build(); err != nil {
		return err
	}
	r.cleanupFunc(f.queue.Close)
	f.release = func() {}
	if r.prepared.Stalled {
		f.latch = make(chan struct{})
		f.release = sync.OnceFunc(func() { close(f.latch) })
	}
	f.handling = newHandling(r.prepared.HandlerCost)
	f.left.Store(int64(r.storm.Initial))
	f.listed = make(chan struct{})
	if r.storm.Initial == 0 {
		// A per-key queue hands over nothing for an empty list.
		close(f.listed)
	}
	room := len(r.storm.Events)
	for _, c := range r.storm.parts()[0] {
		room += len(c.list)
	}
	f.log = observe.NewConsumerLog(r.st, room)
	r.telemetry.Watch(observe.Stages{Length: f.queue.Len, Log: f.log})
	return nil
}

func (f *fifo) play(ctx context.Context, rec *cell.Recorder) (err error) {
	consumed := make(chan struct{})
	var failed error // of the consumer; set before consumed is closed
	go func() {
		defer close(consumed)
		failed = f.consume(ctx, f.log)
	}()
	// The consumer ends before play returns, unless the queue blocks it.
	defer func() {
		f.handling.on.Store(false)
		f.release()
		f.queue.Close()
		_ = await(context.WithoutCancel(ctx), consumed, f.log.Published, f.r.stall, nil)
	}()

	s := f.r.storm
	list := make([]any, s.Initial)
	for i := range list {
		list[i] = s.Events[i].Object
	}
	if err := f.queue.Replace(list, strconv.Itoa(s.Initial)); err != nil {
		return fmt.Errorf("Replace: %w", err)
	}
	if err := f.r.await(ctx, f.listed, f.log.Published); err != nil {
		return err
	}

	f.handling.on.Store(true)
	if f.r.prepared.Stalled {
		err = f.fillAndDrain(ctx, rec, consumed)
	} else {
		err = f.flow(ctx, rec, consumed)
	}
	if err != nil {
		return err
	}
	return failed
}

func (f *fifo) flow(ctx context.Context, rec *cell.Recorder, consumed <-chan struct{}) error {
	rec.Begin()
	err := f.produce(ctx)
	f.queue.Close()
	if err == nil {
		err = f.r.await(ctx, consumed, f.log.Published)
	}
	rec.End()
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
	err := f.r.await(ctx, consumed, f.log.Published)
	drained := time.Since(begun)
	rec.End()

	events := float64(len(f.r.storm.Events) - f.r.storm.Initial)
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
	parts := f.r.storm.parts()
	t0 := f.r.st.Begin()
	var wg sync.WaitGroup
	for _, calls := range parts {
		wg.Go(func() {
			p := pace.On(f.r.storm.schedule)
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
	st := f.r.st
	for i := range calls {
		c := &calls[i]
		if c.verb == replace {
			// A Replace has its place among the events, and no intended time.
			began := st.Now()
			if err := f.queue.Replace(c.list, strconv.FormatUint(uint64(c.seq), 10)); err != nil {
				return fmt.Errorf("Replace after event %d: %w", c.seq, err)
			}
			st.ControlCall(uint64(c.seq)+1, began)
			st.Replace(c.list)
			continue
		}
		switch {
		case st.Paced:
			if err := p.Wait(ctx, int(c.seq)-1-st.Initial()); err != nil {
				return err
			}
		case i%observe.SampleEvery == 0:
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		st.Release(uint64(c.seq))
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
		st.Enqueue(uint64(c.seq))
	}
	return nil
}

// consumer takes what a queue hands over, on one goroutine.
type consumer struct {
	log      *observe.Log
	handling *handling
	left     *atomic.Int64 // see fifo
	listed   chan struct{} // see fifo
	stages   pprof.Stages  // labels the goroutine: pop or handle
}

// consume pops until the queue is closed and empty. It waits at the latch before it
// takes more than the initial list.
func (f *fifo) consume(ctx context.Context, log *observe.Log) error {
	c := &consumer{log, f.handling, &f.left, f.listed, pprof.Switch(ctx, stagePop, stageHandle)}
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
			log.Finish()
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
	popped := c.log.Begin(len(deltas))
	handled := popped
	if c.handling.costs() {
		c.handling.do(observe.ObjectsIn(deltas))
		if popped != 0 {
			handled = c.log.Now()
		}
	}
	c.log.Add(deltas, batch, popped, handled)
	if c.left.Load() > 0 {
		n := int64(observe.ObjectsIn(deltas))
		if left := c.left.Add(-n); left <= 0 && left+n > 0 {
			c.log.Finish()
			close(c.listed)
		}
	}
	c.stages.To(0)
}

func (f *fifo) check(rec *cell.Recorder) observe.Outcome {
	s, parts := f.r.storm, f.r.storm.parts()
	c := observe.Check(s.keys(), observe.Expectations{
		Total:    f.r.guarantees.Order == impls.OrderTotal,
		Latest:   f.r.guarantees.Coalesces == impls.CoalesceLatest,
		Identity: true,
		Relisted: slices.ContainsFunc(parts[0], func(c call) bool { return c.verb == replace }),
		Whole:    true,
	}, f.log)
	rec.Note("hand-overs", float64(f.log.HandOvers()))
	o := observe.Outcome{Violations: c.Violations, Out: c.Out, Boundaries: []cell.Boundary{observe.ReleasedEnqueued, observe.EnqueuedPopped}}
	if f.handling.costs() && f.r.st.Sampling == observe.All {
		o.Boundaries = append(o.Boundaries, observe.PoppedHandled)
	}
	return o
}

// handling is a handler's work for an event: a loop of fixed length that takes about
// the cost on an idle processor. It does not read the clock: a loop that does so does
// less work the longer it is preempted.
type handling struct {
	turns int         // turns of the loop for each event; 0 for no work
	on    atomic.Bool // handling takes time; set while the clock runs
}

func newHandling(cost time.Duration) *handling {
	if cost <= 0 {
		return &handling{}
	}
	return &handling{turns: max(1, int(math.Round(float64(cost)/spinTurn())))}
}

// costs reports whether handling an event takes time.
func (h *handling) costs() bool { return h.turns > 0 }

// do handles n events. It ends early when handling is switched off.
func (h *handling) do(n int) {
	if h.turns == 0 {
		return
	}
	x := uint64(seed)
	for range n {
		if !h.on.Load() {
			return
		}
		spin(&x, h.turns)
	}
}

const seed = 88172645463325252 // start value of the loop

// spin runs a loop in which each turn depends on the one before. It stores the result,
// so that the compiler keeps the loop.
//
//go:noinline
func spin(x *uint64, turns int) {
	v := *x
	for range turns {
		v ^= v << 13
		v ^= v >> 7
		v ^= v << 17
	}
	*x = v
}

// spinTurn is the time of a turn of [spin] in nanoseconds: the shortest of several
// measurements. It is measured once a process, so that all cells do the same work.
var spinTurn = sync.OnceValue(func() float64 {
	const turns, tries = 1 << 19, 16
	shortest, x := math.Inf(1), uint64(seed)
	for range tries {
		start := time.Now()
		spin(&x, turns)
		shortest = min(shortest, float64(time.Since(start)))
	}
	return shortest / turns
})

// NodePods is the number of pods on the node of the family merge: kubelet's default limit.
const NodePods = 110

// merging is the queue pipeline of the family merge.
//
// After each event the whole pod list goes to the merger's api channel, as kubelet's
// UndeltaStore pushes it. One goroutine receives the notifications. The list of the
// initial pods is handled before the clock starts.
type merging struct {
	build   func() (merge.Merger, error)
	merger  merge.Merger
	r       *round
	notices *observe.Notices
}

func (m *merging) setup(ctx context.Context, r *round) error {
	r.storm.lists()
	return m.start(ctx, r)
}

func (m *merging) start(ctx context.Context, r *round) (err error) {
	m.r = r
	r.storm.notifications()
	// The merger's goroutines belong to its stage.
	pprof.Do(ctx, stageMerge, func(context.Context) { m.merger, err = m.build() })
	if err != nil {
		return err
	}
	r.cleanupFunc(m.merger.Close)
	m.notices = observe.NewNotices(r.st)
	updates := m.merger.Updates()
	r.telemetry.Watch(observe.Stages{Length: func() int { return len(updates) }, Notices: m.notices, Source: r.source})
	return nil
}

func (m *merging) play(ctx context.Context, rec *cell.Recorder) (err error) {
	inner, cancel := context.WithCancel(ctx)
	received := make(chan struct{})
	go func() {
		defer close(received)
		pprof.Do(inner, stageHandle, func(ctx context.Context) { m.receive(ctx) })
	}()
	defer func() {
		cancel()
		<-received
	}()
	ch, err := channelOf(inner, m.merger, merge.APISource)
	if err != nil {
		return err
	}

	lists := m.r.storm.lists()
	if err := send(inner, ch, merge.SET, lists[0]); err != nil {
		return err
	}
	if err := m.r.await(ctx, m.notices.First, m.notices.Published); err != nil {
		return err
	}

	rec.Begin()
	sent := make(chan error, 1)
	p := pace.On(m.r.storm.schedule)
	defer func() { _ = p.Close() }()
	p.Start(m.r.st.Begin())
	go func() {
		pprof.Do(inner, stageProduce, func(ctx context.Context) { sent <- m.produce(ctx, p, ch, lists[1:]) })
	}()
	err = m.r.await(ctx, m.notices.Last, m.notices.Published)
	rec.End()
	cancel()
	return cmp.Or(err, <-sent)
}

// channelOf opens a merger's channel, whose reader belongs to the stage merge.
func channelOf(ctx context.Context, m merge.Merger, source string) (ch chan<- merge.PodUpdate, err error) {
	pprof.Do(ctx, stageMerge, func(ctx context.Context) { ch, err = m.Channel(ctx, source) })
	return ch, err
}

func send(ctx context.Context, ch chan<- merge.PodUpdate, op merge.Op, pods []*v1.Pod) error {
	select {
	case ch <- merge.PodUpdate{Pods: pods, Op: op, Source: merge.APISource}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// produce sends a list for each event, and observe.LastPod in the end.
func (m *merging) produce(ctx context.Context, p *pace.Pacer, ch chan<- merge.PodUpdate, lists [][]*v1.Pod) error {
	seq := uint64(m.r.storm.Initial)
	for i, list := range lists {
		seq++
		if err := p.Wait(ctx, i); err != nil {
			return err
		}
		m.r.st.Release(seq)
		if err := send(ctx, ch, merge.SET, list); err != nil {
			return err
		}
		m.r.st.Enqueue(seq)
	}
	return send(ctx, ch, merge.ADD, []*v1.Pod{observe.LastPod})
}

func (m *merging) receive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-m.merger.Updates():
			now := m.r.st.Now()
			if !m.notices.Add(u, now, now) {
				return
			}
		}
	}
}

func (m *merging) check(rec *cell.Recorder) observe.Outcome { return m.match(rec, 0) }

// match matches the notifications with the storm's; see [observe.Notices.Check]. After a
// list, as with a coalescing merger, a newer notification may replace a missing one.
func (m *merging) match(rec *cell.Recorder, listed uint64) observe.Outcome {
	rec.Note("notifications", float64(m.notices.Len()))
	o := observe.Outcome{Boundaries: []cell.Boundary{observe.ReleasedEnqueued, observe.EnqueuedMerged}}
	folds := m.r.guarantees.Coalesces != impls.CoalesceNone || listed > 0
	o.Violations, o.Out = m.notices.Check(m.r.storm.notifications(), folds, listed)
	return o
}
