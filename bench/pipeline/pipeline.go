// Package pipeline plays a storm through the stages of a pipeline and checks what
// came out. A pipeline with a chosen variant, pace and storm is a [lab.Workload].
//
//   - queue: one family alone. deltafifo and queue have producers that call Add,
//     Update and Delete, and consumers that pop. merge has one goroutine that sends
//     the whole pod list after each event, as kubelet's api source does.
//   - informer: source → decode → Reflector → deltafifo → indexer → handler → workqueue →
//     worker. impls/informer puts the variant between client-go's own parts. The source
//     apiserver has the stage decode; see [source.Wire]. [Config.Store] and [Config.Workqueue]
//     name the indexer and the workqueue. The cell impl=clientgo-informer is client-go's
//     cache.NewSharedIndexInformer with client-go's workqueue.
//   - kubelet: source → Reflector → UndeltaStore → merge → sync loop, and, with
//     [Config.Static], kubelet's file and http sources.
//
// One round of a cell:
//
//  1. [Compare] returns the cells. They share what is expensive to prepare: copies of
//     the storm, calls, lists, encoded events.
//  2. Setup builds the stages. Run plays the initial list. Then the clock starts.
//  3. The source releases each event at its intended time and stamps it: released,
//     enqueued; between them, from the apiserver, wire and decoded. The delivery log has the queue's hand-overs with one reading of the
//     clock each: popped, stored. The worker logs each look-up: handled.
//  4. When the last event is handled, the clock stops and all goroutines end.
//  5. The checker compares the delivery logs and the final state with the storm:
//     [lab.ErrLost], [lab.ErrReordered], [lab.ErrDuplicated], [lab.ErrDiverged].
//     No progress for ten seconds counts as lost events.
//  6. The recorder, staleness, the timeline and telemetry read the same stamps and
//     logs. Nothing observes an event a second time.
//
// # Stamps
//
// Reading the clock costs as much as a fast queue does. Unpaced cells of deltafifo and queue
// therefore stamp every 64th event on the way in, and read the clock once a batch or 64 events on
// the way out. Events between two readings take the later one, so their latency is too long by less
// than 64 events. Such readings are too coarse to subtract: [PoppedStored] and [StoredHandled]
// exist in paced cells and with [StampsAll] only. [Handled] counts from the intended time and
// exists in paced cells only. Pipelines of merge stamp every event.
//
// A coalesced event is handled when a newer version of its key is. A latest-object
// queue never hands over a deletion: neither the deletion nor the versions that it
// removed have a latency, nor have events that change nothing for a merger.
//
// client-go's own informer has no hook between its queue and its store. There, enqueued is stamped
// by the transform function, stored by an index function (a deletion: by the handler), and popped
// not at all. The checker reads the log of handler calls, which every informer cell has.
//
// # Marks of a storm
//
// A relist ([storm.MarkRelist]) is a Replace in the queue pipeline. In the informer pipeline it
// breaks the watch and lets its version expire; the Reflector lists again after client-go's pauses
// of 2 to 5 s. A resync ([storm.MarkResync]) calls Resync of an informer's queue. client-go's own
// informer has no such call: a comparison on a storm with resyncs leaves it out. A queue alone has
// no store to resync from. clientgo-realfifo, without KnownObjects, ignores a Resync.
//
// # Load on the reading side
//
// Of an informer that is told how to list, "initial-list-ns" is the time until its store has the
// initial state.
//
// [Config.Readers] list the indexer's namespaces in a loop: [Listed], "reads/s",
// "objects/read". [Config.Consumers] pop at the same time where the variant allows it; a
// counter a key proves that no two had a key at once.
//
// [Staleness] is the lag of the store behind the source when the worker looks a key up,
// in time and in events ("staleness-p99-events"). [ListStaleness] is the same for a
// reader's list. Both need all stamps. Per-key delivery may store an event before an
// older one of another key; staleness does not show that.
//
// In paced cells "queue-max" is the most events that were sent to the variant and not handled yet, in a
// queue, a listener or process. There "blocked-ns/event" and "blocked-max-ns" are the time inside the
// variant's calls: Add, Update, Delete, Resync, a producer's Replace, a send to a merger. A call that
// makes releases late adds to the latency of their events, not to the generator's lag.
//
// With [Config.Stalled], "B/queued-event" is the growth of the live heap until everything
// is queued: keys, slices and maps, not the objects. "waiting" is Len at that time.
//
// In paced queue cells of deltafifo and queue a probe calls HasSynced every 3.7 ms.
// "lock-hold-max-ns" is the longest answer, "lock-hold-floor-ns" the longest time
// that an empty call took right before it. A probe rarely meets a single short hold.
// Variants without a lock in HasSynced show the floor.
//
// Under a context of [profile.With], goroutines carry the label of their stage.
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// The boundaries of latencies. A pipeline reports those whose stages it has.
const (
	Handled         cell.Boundary = "intended→handled" // headline of paced cells, with the lag
	ReleasedHandled cell.Boundary = "released→handled" // headline of unpaced cells

	// The intervals between two stages. Pipelines of merge have Merged instead of Popped.
	ReleasedEnqueued cell.Boundary = "released→enqueued"
	// The parts of released→enqueued where a client decodes: the server and the connection, the decoder
	// from the bytes of a frame on, the Reflector.
	ReleasedWire    cell.Boundary = "released→wire"
	WireDecoded     cell.Boundary = "wire→decoded"
	DecodedEnqueued cell.Boundary = "decoded→enqueued"

	EnqueuedPopped cell.Boundary = "enqueued→popped"
	PoppedStored   cell.Boundary = "popped→stored"
	PoppedHandled  cell.Boundary = "popped→handled"
	StoredHandled  cell.Boundary = "stored→handled"
	EnqueuedMerged cell.Boundary = "enqueued→merged"
	MergedHandled  cell.Boundary = "merged→handled"
)

// The stages that label profiles; see [profile.Do].
const (
	stageProduce = "produce"
	stageSource  = "source"
	stageDecode  = "decode"
	stagePop     = "pop"
	stageStore   = "store"
	stageHandle  = "handle"
	stageWork    = "work"
	stageRead    = "read"
	stageMerge   = "merge"
	stageSync    = "sync"
)

// workload is the skeleton of every pipeline: set up, play, check, tear down. A
// workload is used for one round.
type workload struct {
	name       string
	guarantees impls.Guarantees
	material   *material // nil for a live stream, whose score is set after the play
	rate       pace.Pace
	stall      time.Duration // longest time without progress
	stages     stages
	procs      int // GOMAXPROCS to restore, 0 for none; it is global, so concurrent cells share it
	score      *score
	st         *stamps
	telemetry  *telemetry     // nil without a session
	releases   []func() error // functions given to cleanup
	broken     violations     // the checker's findings, once checked is set
	checked    bool
	stalled    error         // stall that play found; nil for none
	source     source.Source // nil in the queue pipeline
}

// stages is what a pipeline adds to the skeleton.
type stages interface {
	// setup builds the stages. It passes what Teardown has to release to cleanup.
	setup(ctx context.Context, w *workload) error
	// play plays the storm and returns when all goroutines have ended. After an error,
	// check is not called.
	play(ctx context.Context, w *workload, rec *cell.Recorder) error
	// check compares the logs with the storm, notes figures, and completes the stamps.
	check(w *workload, rec *cell.Recorder) outcome
}

// outcome is the result of a check.
type outcome struct {
	broken    violations
	out       uint64 // deltas, objects or notifications handed over
	intervals []interval
	taken     []int64 // time at which each event left the queue
	popped    string  // stage of the popped stamps: popped or merged
	lookedUp  bool    // a worker looks keys up, so a popped event may still be coalesced
}

var _ lab.Workload = (*workload)(nil)

func (w *workload) Setup(ctx context.Context) error {
	if m := w.material; m != nil {
		if m.Procs > 0 {
			w.procs = runtime.GOMAXPROCS(m.Procs)
		}
		w.score = m.score(w.rate)
		w.st = newStamps(len(w.score.Events), w.rate.Paced(), m.stampsOf())
		w.st.schedule, w.st.initial, w.st.budget = w.score.schedule, w.score.Initial, w.score.budget
		if m.Pipeline == QueuePipeline {
			w.st.producers, w.st.events, w.st.called = m.Producers, w.score.Events, w.st.released
		}
		w.telemetry = newTelemetry(ctx, w.st, w.score)
	}
	return w.stages.setup(ctx, w)
}

func (w *workload) Run(ctx context.Context, rec *cell.Recorder) error {
	err := w.stages.play(ctx, w, rec)
	if api, ok := w.source.(*source.APIServer); ok && (w.stalled != nil || errors.Is(err, errStalled)) {
		// Without its server a variant loses nothing.
		_, ended := api.Refresh()
		err = cmp.Or(ended, err)
	}
	switch {
	case errors.Is(err, errStalled):
		// Lost events are a finding, not a failure of the run.
		w.stalled = err
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", w.name, err)
	}
	w.telemetry.rest()
	o := w.stages.check(w, rec)
	w.broken, w.checked = o.broken, true
	s := w.score
	rec.Count(uint64(len(s.Events)-s.Initial), o.out)
	w.st.report(rec, o.intervals)
	if w.st.paced {
		rec.Timeline(w.st.moments(o.taken))
	}
	w.telemetry.finish(o)
	return nil
}

func (w *workload) Check() error {
	if w.stalled != nil {
		return errors.Join(fmt.Errorf("%w: %w", lab.ErrLost, w.stalled), w.broken.err())
	}
	if !w.checked {
		return errors.New("the workload has not been run")
	}
	return w.broken.err()
}

func (w *workload) Teardown() error {
	if w.procs > 0 {
		defer runtime.GOMAXPROCS(w.procs)
	}
	w.telemetry.stop()
	var errs []error
	for _, release := range w.releases {
		errs = append(errs, release())
	}
	w.releases, w.stages, w.st, w.telemetry = nil, nil, nil, nil
	return errors.Join(errs...)
}

// cleanup makes Teardown call release, in the order of the calls of cleanup.
func (w *workload) cleanup(release func() error) { w.releases = append(w.releases, release) }

func (w *workload) cleanupFunc(release func()) {
	w.cleanup(func() error {
		release()
		return nil
	})
}

// stallLimit is the longest time without progress.
const stallLimit = 10 * time.Second

var errStalled = errors.New("stalled")

func (w *workload) await(ctx context.Context, done <-chan struct{}, progress func() uint64) error {
	return await(ctx, done, progress, w.stall, nil)
}

const (
	look         = 10 * time.Millisecond // interval at which await reads the progress
	settledLooks = 3                     // consecutive looks that find a settled pipeline without progress
)

// await waits for done, or until settled (nil: never) holds for [settledLooks]
// without progress. It returns errStalled where progress has not changed for the
// limit, and ctx's error where that ends first.
func await(ctx context.Context, done <-chan struct{}, progress func() uint64, limit time.Duration, settled func() bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, since, looks := progress(), time.Now(), 0
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := progress()
		switch {
		case now != last:
			last, since, looks = now, time.Now(), 0
		case settled != nil && settled():
			if looks++; looks == settledLooks {
				return nil
			}
		case time.Since(since) >= limit:
			return fmt.Errorf("%w: nothing moved for %v", errStalled, limit)
		default:
			looks = 0
		}
	}
}

// every calls f periodically until its first error. stop ends that, waits for the last
// call, and returns the error.
func every(period time.Duration, f func() error) (stop func() error) {
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-done:
				result <- nil
				return
			case <-tick.C:
			}
			if err := f(); err != nil {
				result <- err
				return
			}
		}
	}()
	return func() error {
		close(done)
		return <-result
	}
}
