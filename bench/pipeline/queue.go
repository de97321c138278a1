package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
)

// consumable is what the families deltafifo and queue have in common.
type consumable interface {
	cache.Queue
	Len() int
}

// fifo is the queue pipeline of the families deltafifo and queue.
//
// The storm's initial list goes in by Replace and is handled before the clock
// starts. Then each producer makes its calls, the queue is closed, and the
// consumers drain it. Where the storm has a relist, the producer calls Replace
// with all that is there; a resync is left out, as there is no store that it could
// be of. A consumer takes by PopBatch where the queue has it,
// else by Pop; its handler does what is asked of it and appends what it got to
// the consumer's log.
type fifo struct {
	name       string
	build      func() (consumable, error)
	guarantees impls.Guarantees
	load       load
	material   *material
	rate       pace.Pace
	stall      time.Duration

	score *score
	queue consumable
	st    *stamps

	logs     []*ledger
	turns    *turns
	handling *handling

	gate    chan struct{}
	probe   *probe
	taps    *taps
	verdict *judge

	stalled error
}

var _ lab.Workload = (*fifo)(nil)

// everKnown stands for the store behind the queue in per-key delivery, which
// decides whether a Delete of a key that isn't queued is worth telling. Here
// the consumer is taken to know every key of the storm, as it does in an
// informer, where a key that is deleted was added before. So each deletion is
// delivered, whatever the timing, and no variant is faster because it had less
// to deliver. It is empty when it is listed: that happens in Replace only,
// which comes first.
type everKnown struct{}

func (everKnown) ListKeys() []string                 { return nil }
func (everKnown) GetByKey(string) (any, bool, error) { return nil, true, nil }

func (w *fifo) Setup(ctx context.Context) error {
	var err error
	w.score = w.material.score(w.rate)
	w.score.parts()
	w.score.keys()
	if w.queue, err = w.build(); err != nil {
		return err
	}
	which := w.load.stamps
	if w.load.stalled {
		which, w.gate = StampsNone, make(chan struct{})
	}
	w.st = newStamps(len(w.score.Events), w.rate.Paced(), which)
	w.st.budget = w.score.budget
	w.handling = newHandling(w.load.cost)
	room := len(w.score.Events)
	for _, list := range w.score.relists() {
		room += len(list)
	}
	consumers := max(1, w.load.consumers)
	if consumers > 1 {
		w.turns = newTurns(w.score.Storm)
	}
	for range consumers {
		// They needn't share alike, but most do.
		l := newLedger(w.st, room/consumers)
		if len(w.logs) > 0 {
			l.progress = w.logs[0].progress
		}
		if w.turns != nil {
			l.turns, l.handed = make([]turn, 0, cap(l.deltas)), make([]int32, 0, cap(l.ends))
		}
		w.logs = append(w.logs, l)
	}
	if w.load.probe && w.rate.Paced() {
		w.probe = newProbe(w.queue)
	}
	w.taps = newTaps(ctx, w.st, w.score)
	w.taps.depth(w.queue.Len, w.taps.meanSize())
	return nil
}

func (w *fifo) Run(ctx context.Context, rec *cell.Recorder) error {
	consumed := make(chan struct{})
	initial := newInitialList(w.score.Initial)
	errs := make([]error, len(w.logs))
	var consumers sync.WaitGroup
	for i, log := range w.logs {
		consumers.Go(func() { errs[i] = w.consume(ctx, log, initial) })
	}
	go func() {
		defer close(consumed)
		consumers.Wait()
	}()
	// Whatever happens, the consumers end before Run does, unless the queue
	// keeps them.
	open := sync.OnceFunc(func() {
		if w.gate != nil {
			close(w.gate)
		}
	})
	defer func() {
		w.handling.on.Store(false)
		open()
		w.queue.Close()
		_ = await(context.WithoutCancel(ctx), consumed, w.logs[0].progress, w.stall)
	}()

	s := w.score.Storm
	if err := w.queue.Replace(initialObjects(s), strconv.Itoa(s.Initial)); err != nil {
		return fmt.Errorf("%s: Replace: %w", w.name, err)
	}
	if err := w.awaitOr(ctx, initial.done); err != nil || w.stalled != nil {
		return err
	}

	w.handling.on.Store(true)
	var err error
	if w.load.stalled {
		err = w.fillAndDrain(ctx, rec, open, consumed)
	} else {
		err = w.flow(ctx, rec, consumed)
	}
	if err != nil || w.stalled != nil {
		return err
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	w.report(rec)
	return nil
}

// flow has producers and consumers at work at the same time, and measures both.
func (w *fifo) flow(ctx context.Context, rec *cell.Recorder, consumed <-chan struct{}) error {
	rec.Begin()
	stop := w.probe.start()
	err := w.produce(ctx)
	w.queue.Close()
	if err == nil {
		err = w.awaitOr(ctx, consumed)
	}
	rec.End()
	stop()
	w.probe.note(rec)
	return err
}

// awaitOr waits; that the queue stood still is for Check to tell.
func (w *fifo) awaitOr(ctx context.Context, done <-chan struct{}) error {
	return keepStall(await(ctx, done, w.logs[0].progress, w.stall), &w.stalled)
}

// produce runs the producers and returns when all have ended, with the first
// error.
func (w *fifo) produce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parts := w.score.parts()
	t0 := w.st.begin()
	var wg sync.WaitGroup
	for _, calls := range parts {
		wg.Go(func() {
			p := pace.On(w.score.schedule)
			defer func() { _ = p.Close() }()
			p.Start(t0)
			profile.Do(ctx, stageProduce, func(ctx context.Context) {
				if err := w.produceCalls(ctx, p, calls); err != nil {
					cancel(err)
				}
			})
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (w *fifo) produceCalls(ctx context.Context, p *pace.Pacer, calls []call) error {
	initial := w.score.Initial
	tap := w.taps.tap()
	defer tap.close()
	for i := range calls {
		c := &calls[i]
		if c.verb == replace {
			// At its place among the events: it has no time of its own.
			if err := w.queue.Replace(c.list, strconv.FormatUint(uint64(c.seq), 10)); err != nil {
				return fmt.Errorf("%s: Replace after event %d: %w", w.name, c.seq, err)
			}
			tap.replaced(len(c.list))
			continue
		}
		switch {
		case w.st.paced:
			if err := p.Wait(ctx, int(c.seq)-1-initial); err != nil {
				return err
			}
		case i%sampleEvery == 0:
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		w.st.release(uint64(c.seq))
		tap.released(uint64(c.seq))
		var err error
		switch c.verb {
		case add:
			err = w.queue.Add(c.obj)
		case update:
			err = w.queue.Update(c.obj)
		case del:
			err = w.queue.Delete(c.obj)
		}
		if err != nil {
			return fmt.Errorf("%s: event %d: %w", w.name, c.seq, err)
		}
		w.st.enqueue(uint64(c.seq))
		tap.enqueued(uint64(c.seq))
	}
	return nil
}

// consumer is one goroutine that takes from the queue.
type consumer struct {
	w       *fifo
	log     *ledger
	initial *initialList
	stages  profile.Stages
	tap     *tap
}

// consume takes until the queue is closed and empty, and tells initial what it
// was handed. It waits at the gate, where there is one, before it takes more than
// the initial list.
func (w *fifo) consume(ctx context.Context, log *ledger, initial *initialList) error {
	c := &consumer{w: w, log: log, initial: initial, stages: profile.Switch(ctx, stagePop, stageHandle), tap: w.taps.tap()}
	defer c.tap.close()
	c.stages.To(0)
	defer c.stages.End()
	// Once, as each use of a method as a value is an allocation.
	single, batch := c.single, c.batch
	take := func() error {
		_, err := w.queue.Pop(single)
		return err
	}
	if q, ok := w.queue.(deltafifo.BatchQueue); ok {
		take = func() error { return q.PopBatch(batch, single) }
	}
	for {
		if w.gate != nil && initial.over() {
			<-w.gate
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

// single is the hand-over of one object, or of one key's deltas.
func (c *consumer) single(obj any, _ bool) error {
	if deltas, ok := obj.(cache.Deltas); ok {
		popped, handled := c.begin(deltas, false)
		c.log.add(deltas, popped, handled)
		c.end(deltas, popped, handled)
		return nil
	}
	deltas := [1]cache.Delta{{Object: obj}}
	popped, handled := c.begin(deltas[:], false)
	c.log.addObject(obj, popped, handled)
	c.end(deltas[:], popped, handled)
	return nil
}

// batch is the hand-over of a batch.
func (c *consumer) batch(deltas []cache.Delta, _ bool) error {
	popped, handled := c.begin(deltas, true)
	c.log.addBatch(deltas, popped, handled)
	c.end(deltas, popped, handled)
	return nil
}

// begin handles what was handed over, and reads the clock before and, where the
// handler costs something, after, if that is due.
func (c *consumer) begin(deltas []cache.Delta, batch bool) (popped, handled int64) {
	c.stages.To(1)
	if c.log.due(len(deltas)) {
		popped = c.w.st.now()
	}
	if c.w.turns != nil {
		before := len(c.log.turns)
		c.log.turns = c.w.turns.beginAll(c.log.turns, deltas, batch)
		c.log.handed = append(c.log.handed, int32(len(c.log.turns)-before))
	}
	if c.w.handling.costs() {
		c.w.handling.do(objectsIn(deltas))
		if popped != 0 {
			handled = c.w.st.now()
		}
	}
	return popped, handled
}

// end is called when a hand-over has been logged, before the queue is told that it
// is done.
func (c *consumer) end(deltas []cache.Delta, popped, handled int64) {
	c.tap.consumed(deltas, popped, handled)
	if c.w.turns != nil {
		c.w.turns.endAll(c.log.turns[len(c.log.turns)-int(c.log.handed[len(c.log.handed)-1]):])
	}
	c.initial.took(deltas)
	c.stages.To(0)
}

// initialList tells when the initial list has been handed over.
type initialList struct {
	left atomic.Int64
	done chan struct{}
}

func newInitialList(n int) *initialList {
	l := &initialList{done: make(chan struct{})}
	l.left.Store(int64(n))
	if n == 0 {
		// A per-key queue hands over nothing for an empty list.
		close(l.done)
	}
	return l
}

func (l *initialList) over() bool { return l.left.Load() <= 0 }

// took counts what was handed over. It may be called by several consumers.
func (l *initialList) took(deltas []cache.Delta) {
	if l.over() {
		return
	}
	n := int64(objectsIn(deltas))
	if left := l.left.Add(-n); left <= 0 && left+n > 0 {
		close(l.done)
	}
}

// objectsIn counts what deltas are of: a whole list comes as one.
func objectsIn(deltas []cache.Delta) int {
	if len(deltas) == 1 {
		if all, ok := deltas[0].Object.(cache.ReplacedAllInfo); ok {
			return len(all.Objects)
		}
	}
	return len(deltas)
}

// report judges the logs, as the latencies come from them, and tells the
// recorder.
func (w *fifo) report(rec *cell.Recorder) {
	s := w.score.Storm
	latest := w.guarantees.Coalesces == impls.CoalesceLatest
	log, broken := w.logs[0], violations{}
	if w.turns != nil {
		log = merged(w.logs, s, &broken)
	}
	w.verdict = log.judge(s, w.score.keys(), promise{

		total:     w.guarantees.Order == impls.OrderTotal && w.turns == nil,
		producers: len(w.score.parts()),
		latest:    latest,
		identity:  true,
		relisted:  len(w.score.relists()) > 0,
		whole:     true,
	})
	w.verdict.v.join(&broken)
	rec.Count(uint64(len(s.Events)-s.Initial), w.verdict.out)
	rec.Note("hand-overs", float64(len(log.ends)))
	if w.load.stalled {
		// How long an event waited tells when the gate was opened.
		return
	}
	stretches := []stretch{
		{ReleasedEnqueued, w.st.released, w.st.enqueued},
		{EnqueuedPopped, w.st.enqueued, w.st.popped},
	}
	copy(w.st.handled, w.st.popped)
	if w.handling.costs() {
		copy(w.st.handled, w.st.stored)
		if w.st.every {
			stretches = append(stretches, stretch{PoppedHandled, w.st.popped, w.st.handled})
		}
	}
	taken := w.st.popped
	if latest {
		completeByKey(s, w.st.handled, true)
		taken = slices.Clone(taken)
		completeByKey(s, taken, true)
	}
	w.st.report(rec, pace.On(w.score.schedule), s.Initial, stretches...)
	w.st.timeline(rec, s.Initial, taken)
	w.taps.rest(stretches...)
	w.taps.journeys("popped", false)
}

func (w *fifo) Check() error {
	if w.stalled != nil {
		return fmt.Errorf("%w: %w", lab.ErrLost, w.stalled)
	}
	if w.verdict == nil {
		return errors.New("the workload has not been run")
	}
	return w.verdict.v.err()
}

func (w *fifo) Teardown() error {
	if w.queue != nil {
		w.queue.Close()
	}
	w.queue, w.logs, w.turns, w.st, w.probe, w.taps = nil, nil, nil, nil, nil, nil
	return nil
}
