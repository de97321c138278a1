// Package pipeline plays a storm through the stages of a pipeline and checks what
// came out. A pipeline with a chosen variant, pace and storm is a [lab.Workload].
//
//   - queue: one family alone. deltafifo and queue have producers that call Add,
//     Update and Delete, and a consumer that pops. merge has one goroutine that sends
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
//     enqueued; between them, from the apiserver, wire and decoded. The delivery log has the queue's
//     hand-overs with one reading of the clock each: popped, stored. The worker logs each look-up:
//     handled.
//  4. When the last event is handled, the clock stops and all goroutines end.
//  5. Package observe checks the delivery logs and the final state against the storm:
//     [lab.ErrLost], [lab.ErrReordered], [lab.ErrDuplicated], [lab.ErrDiverged].
//     No progress for ten seconds counts as lost events.
//  6. Package observe gives latencies and staleness to the recorder, and figures to
//     telemetry, from the same stamps and logs. Nothing observes an event a second time.
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
// With [source.Wire.InitialList] set, "initial-list-ns" is the time from start to the complete initial store.
//
// [Config.Readers] list the indexer's namespaces in a loop: [observe.Listed], "reads/s",
// "objects/read".
//
// [observe.Staleness] is the lag of the store behind the source when the worker looks a key up,
// in time and in events ("staleness-p99-events"). [observe.ListStaleness] is the same for a
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
// Under a context of [pprof.With], goroutines carry the label of their stage.
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
	"watchlab/bench/observe"
	"watchlab/bench/pprof"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// Stamps selects the stamped events of an unpaced cell of deltafifo or queue; see package observe.
// Paced cells stamp every event.
type Stamps string

const (
	StampsNone    Stamps = "none"    // no stamps; the cell has no latencies
	StampsSampled Stamps = "sampled" // default: one event, and one hand-over, in 64
	StampsAll     Stamps = "all"     // every event and hand-over
)

var samplings = map[Stamps]observe.Sampling{
	StampsNone: observe.None, "": observe.Sampled, StampsSampled: observe.Sampled, StampsAll: observe.All,
}

// The stages that label profiles; see [pprof.Do].
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
	name string
	round
	stages stages
	procs  int   // GOMAXPROCS to restore, 0 for none
	found  error // what Run found: a stall, broken invariants; nil for nothing
}

// stages is what a pipeline adds to the skeleton.
type stages interface {
	// setup builds the stages. It passes what Teardown has to release to r.cleanup.
	setup(ctx context.Context, r *round) error
	// play plays the storm and returns when all goroutines have ended. After an error other
	// than incomplete, check is not called.
	play(ctx context.Context, rec *cell.Recorder) error
	// check compares the logs with the storm, notes figures, and completes the stamps.
	check(rec *cell.Recorder) observe.Outcome
}

// round has what the stages of a pipeline share.
type round struct {
	guarantees impls.Guarantees
	prepared   *preparedStorm
	rate       pace.Pace
	stall      time.Duration // longest time without progress
	storm      *pacedStorm
	st         *observe.Stamps
	telemetry  *observe.Telemetry // nil without a session
	source     source.Source      // nil in the queue pipeline
	releases   []func() error     // functions given to cleanup
}

var _ lab.Workload = (*workload)(nil)

func (w *workload) Setup(ctx context.Context) error {
	p := w.prepared
	if p.Procs > 0 {
		w.procs = runtime.GOMAXPROCS(p.Procs)
	}
	w.storm = p.at(w.rate)
	opts := observe.Options{
		Storm: w.storm.Storm, Schedule: w.storm.schedule, Paced: w.rate.Paced(), Sampling: samplings[p.stampsOf()], Budget: w.storm.budget,
	}
	if p.Pipeline == QueuePipeline {
		opts.Producers = p.Producers
	}
	w.st = observe.NewStamps(opts)
	w.telemetry = observe.NewTelemetry(ctx, w.st)
	return w.stages.setup(ctx, &w.round)
}

// open opens the storm's source, whose goroutines carry the label of its stage.
func (r *round) open(ctx context.Context) (err error) {
	pprof.Do(ctx, stageSource, func(ctx context.Context) { r.source, err = r.storm.source(ctx) })
	if err == nil {
		r.cleanup(r.source.Close)
	}
	return err
}

func (w *workload) Run(ctx context.Context, rec *cell.Recorder) error {
	err := w.stages.play(ctx, rec)
	if api, ok := w.source.(*source.APIServer); ok && errors.Is(err, errStalled) {
		// Without its server a variant loses nothing.
		_, ended := api.Refresh()
		err = cmp.Or(ended, err)
	}
	if errors.Is(err, errStalled) {
		// Lost events are a finding, not a failure of the run.
		w.found = fmt.Errorf("%w: %w", lab.ErrLost, err)
		if !errors.As(err, &incomplete{}) {
			return nil
		}
	} else if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	w.telemetry.Rest()
	o := w.stages.check(rec)
	w.found = errors.Join(w.found, o.Violations.Err())
	w.st.Report(rec, o)
	w.telemetry.Finish(o)
	return nil
}

func (w *workload) Check() error { return w.found }

func (w *workload) Teardown() error {
	if w.procs > 0 {
		defer runtime.GOMAXPROCS(w.procs)
	}
	w.telemetry.Stop()
	var errs []error
	for _, release := range w.releases {
		errs = append(errs, release())
	}
	w.stages, w.round = nil, round{}
	return errors.Join(errs...)
}

// cleanup makes Teardown call release, in the order of the calls of cleanup.
func (r *round) cleanup(release func() error) { r.releases = append(r.releases, release) }

func (r *round) cleanupFunc(release func()) {
	r.cleanup(func() error {
		release()
		return nil
	})
}

// stallLimit is the longest time without progress.
const stallLimit = 10 * time.Second

var errStalled = errors.New("stalled")

// incomplete is a stall after which all goroutines have ended, so that the logs can be checked.
type incomplete struct{ error }

func (i incomplete) Unwrap() error { return i.error }

func (r *round) await(ctx context.Context, done <-chan struct{}, progress func() uint64) error {
	return await(ctx, done, progress, r.stall, nil)
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
