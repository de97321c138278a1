package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
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
// consumer drains it. Where the storm has a relist, the producer calls Replace
// with all that is there; a resync is left out, as there is no store that it could
// be of. The consumer takes by PopBatch where the queue has it,
// else by Pop; its handler appends what it got to the log.
type fifo struct {
	name       string
	build      func() (consumable, error)
	guarantees impls.Guarantees
	material   *material
	rate       pace.Pace
	stall      time.Duration

	score   *score
	queue   consumable
	st      *stamps
	log     *ledger
	verdict *judge
	// stalled is set where the queue stood still.
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

func (w *fifo) Setup(context.Context) error {
	var err error
	w.score = w.material.score(w.rate)
	w.score.parts()
	w.score.keys()
	if w.queue, err = w.build(); err != nil {
		return err
	}
	w.st = newStamps(len(w.score.Events), w.rate.Paced(), false)
	w.st.budget = w.score.budget
	room := len(w.score.Events)
	for _, list := range w.score.relists() {
		room += len(list)
	}
	w.log = newLedger(w.st, room)
	return nil
}

func (w *fifo) Run(ctx context.Context, rec *cell.Recorder) error {
	consumed := make(chan struct{})
	initial := make(chan struct{})
	var consumeErr error
	go func() {
		defer close(consumed)
		consumeErr = w.consume(initial)
	}()
	// Whatever happens, the consumer ends before Run does, unless the queue
	// keeps it.
	defer func() {
		w.queue.Close()
		_ = await(context.WithoutCancel(ctx), consumed, &w.log.progress, w.stall)
	}()

	s := w.score.Storm
	if err := w.queue.Replace(initialObjects(s), strconv.Itoa(s.Initial)); err != nil {
		return fmt.Errorf("%s: Replace: %w", w.name, err)
	}
	if err := w.awaitOr(ctx, initial); err != nil || w.stalled != nil {
		return err
	}

	rec.Begin()
	err := w.produce(ctx)
	w.queue.Close()
	if err == nil {
		err = w.awaitOr(ctx, consumed)
	}
	rec.End()
	if err != nil || w.stalled != nil {
		return err
	}
	if consumeErr != nil {
		return fmt.Errorf("%s: %w", w.name, consumeErr)
	}
	w.report(rec)
	return nil
}

// awaitOr waits; that the queue stood still is for Check to tell.
func (w *fifo) awaitOr(ctx context.Context, done <-chan struct{}) error {
	return keepStall(await(ctx, done, &w.log.progress, w.stall), &w.stalled)
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
			if err := w.produceCalls(ctx, p, calls); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (w *fifo) produceCalls(ctx context.Context, p *pace.Pacer, calls []call) error {
	initial := w.score.Initial
	for i := range calls {
		c := &calls[i]
		if c.verb == replace {
			// At its place among the events: it has no time of its own.
			if err := w.queue.Replace(c.list, strconv.FormatUint(uint64(c.seq), 10)); err != nil {
				return fmt.Errorf("%s: Replace after event %d: %w", w.name, c.seq, err)
			}
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
	}
	return nil
}

// consume takes until the queue is closed and empty. It closes initial when the
// initial list has been handled.
func (w *fifo) consume(initial chan<- struct{}) error {
	pending := w.score.Initial
	arrived := func(deltas []cache.Delta) {
		if pending < 0 {
			return
		}
		for _, d := range deltas {
			if all, ok := d.Object.(cache.ReplacedAllInfo); ok {
				pending -= len(all.Objects)
			} else {
				pending--
			}
		}
		if pending <= 0 {
			pending = -1
			close(initial)
		}
	}
	// A per-key queue hands over nothing for an empty list.
	arrived(nil)

	reading := func(n int) int64 {
		if w.log.due(n) {
			return w.st.now()
		}
		return 0
	}
	single := func(obj any, _ bool) error {
		if deltas, ok := obj.(cache.Deltas); ok {
			at := reading(len(deltas))
			w.log.add(deltas, at, 0)
			arrived(deltas)
			return nil
		}
		w.log.addObject(obj, reading(1))
		if pending >= 0 {
			arrived([]cache.Delta{{Object: obj}})
		}
		return nil
	}
	batch := func(deltas []cache.Delta, _ bool) error {
		at := reading(len(deltas))
		w.log.addBatch(deltas, at, 0)
		arrived(deltas)
		return nil
	}
	take := func() error {
		_, err := w.queue.Pop(single)
		return err
	}
	if q, ok := w.queue.(deltafifo.BatchQueue); ok {
		take = func() error { return q.PopBatch(batch, single) }
	}
	for {
		if err := take(); err != nil {
			w.log.finish()
			if errors.Is(err, cache.ErrFIFOClosed) {
				return nil
			}
			return err
		}
	}
}

// report judges the log, as the latencies come from it, and tells the
// recorder.
func (w *fifo) report(rec *cell.Recorder) {
	s := w.score.Storm
	latest := w.guarantees.Coalesces == impls.CoalesceLatest
	w.verdict = w.log.judge(s, w.score.keys(), promise{
		total:     w.guarantees.Order == impls.OrderTotal,
		producers: len(w.score.parts()),
		latest:    latest,
		identity:  true,
		relisted:  len(w.score.relists()) > 0,
		whole:     true,
	})
	copy(w.st.handled, w.st.popped)
	if latest {
		completeByKey(s, w.st.handled, true)
	}
	rec.Count(uint64(len(s.Events)-s.Initial), w.verdict.out)
	rec.Note("hand-overs", float64(len(w.log.ends)))
	w.st.report(rec, pace.On(w.score.schedule), s.Initial,
		stretch{ReleasedEnqueued, w.st.released, w.st.enqueued},
		stretch{EnqueuedPopped, w.st.enqueued, w.st.popped},
	)
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
	w.queue, w.log, w.st = nil, nil, nil
	return nil
}
