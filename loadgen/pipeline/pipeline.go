// Package pipeline plays storms through pipelines that are built from the
// contestants of impls. Each pipeline is a [lab.Workload].
//
//   - queue is one family alone. deltafifo and queue: producers call Add,
//     Update and Delete, one consumer takes. merge: one goroutine sends the
//     whole list of pods after each event, as kubelet's api source does, one
//     receives the notifications.
//   - informer is client-go's own controller: source → Reflector → deltafifo →
//     indexer → handler → workqueue → worker.
//   - kubelet is source → Reflector → UndeltaStore → channel → merge → sync
//     loop. With [Spec.Static], the kubelet's file and http sources feed the same
//     merger, with static pods that change while the storm is played; what they
//     tell is judged by itself, and the storm's events as if it were alone.
//
// [Compare] makes the cells of a comparison.
//
// # Marks
//
// A relist of the storm ([storm.MarkRelist]) is a Replace of all that is there in
// the queue pipeline. In the informer pipeline it is what causes one: the watch
// is broken off and its version has expired, so that the Reflector lists anew,
// after client-go's pauses of 2 to 5 s; unpaced, most of the time goes by with
// those. A resync ([storm.MarkResync]) is a Resync of the queue in
// the informer pipeline; a queue alone has no store of which it could be. Queues
// without KnownObjects that don't know SyncAll (clientgo-realfifo) do nothing. The
// kubelet's pipelines play no marks.
//
// # What is measured
//
// The initial list is played and handled before the clock starts. The measured
// part runs from the first release to the last event handled. Everything that
// is played is prepared before; the copies that long storms need, the calls and
// the lists are made once and shared by all cells of a comparison.
//
// # Stamps
//
// An event has a stamp for each stage: intended, released, enqueued, popped (or
// merged), stored, handled. In the informer pipeline, handled is when the
// worker at its end has looked the object up. [Handled] is the boundary that
// matters, and is there for paced cells only: an unpaced event has no intended
// time, so [ReleasedHandled] takes its place there.
//
// Reading the clock costs about as much as a fast queue does. So in unpaced
// cells of deltafifo and queue, every 64th event is stamped on the way in, and
// on the way out the clock is read once a batch, or once every 64 events where
// there are no batches; an event in between takes the next reading, so that its
// latency is rather too long, by less than 64 events. Two such readings are too
// coarse to be subtracted from each other, so that [PoppedStored] and
// [StoredHandled] are there for paced cells only. These stamp every event. The
// pipelines with a merge stamp every event
// always, as one of theirs costs microseconds.
//
// An event that was coalesced away is complete when a version at least as new
// of its key has been handled. Latest-object queues never hand over a deletion:
// it has no latency, nor have the versions that it took out of the queue.
// Events that give a merger nothing to tell have none either.
//
// # Checks
//
// What a consumer gets is written to a log while the clock runs, and judged
// afterwards: see [lab.ErrLost], [lab.ErrReordered], [lab.ErrDuplicated] and
// [lab.ErrDiverged]. A pipeline that stands still for ten seconds with events
// outstanding has lost them.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// The boundaries that pipelines report, as far as they have the stages.
const (
	// Handled is the headline of paced cells.
	Handled cell.Boundary = "intended→handled"
	// ReleasedHandled takes its place in unpaced cells.
	ReleasedHandled cell.Boundary = "released→handled"

	ReleasedEnqueued cell.Boundary = "released→enqueued"
	EnqueuedPopped   cell.Boundary = "enqueued→popped"
	PoppedStored     cell.Boundary = "popped→stored"
	PoppedHandled    cell.Boundary = "popped→handled"
	StoredHandled    cell.Boundary = "stored→handled"
	EnqueuedMerged   cell.Boundary = "enqueued→merged"
	MergedHandled    cell.Boundary = "merged→handled"
)

// stallLimit is how long a pipeline may stand still with events outstanding.
// Tests of faults, which wait for it, shorten it.
var stallLimit = 10 * time.Second

// errStalled says that nothing moved any more.
var errStalled = errors.New("stalled")

// look is how often await looks at the progress.
const look = 10 * time.Millisecond

// await waits for done. It gives up with errStalled where progress has not
// changed for the limit, and with ctx's error where that ends first.
func await(ctx context.Context, done <-chan struct{}, progress *atomic.Uint64, limit time.Duration) error {
	return awaitSettled(ctx, done, progress, limit, func() bool { return false })
}

// awaitSettled is await that also ends when settled returns true at two looks
// without progress in between.
func awaitSettled(ctx context.Context, done <-chan struct{}, progress *atomic.Uint64, limit time.Duration, settled func() bool) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, since, was := progress.Load(), time.Now(), false
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			now, is := progress.Load(), settled()
			switch {
			case now != last:
				last, since, is = now, time.Now(), false
			case is && was:
				return nil
			case time.Since(since) >= limit:
				return fmt.Errorf("%w: nothing moved for %v", errStalled, limit)
			}
			was = is
		}
	}
}

// keepStall puts the news that a pipeline stood still where Check finds it, and
// returns any other error: that events were lost is a finding, not a failure of
// the run.
func keepStall(err error, stalled *error) error {
	if errors.Is(err, errStalled) {
		*stalled, err = err, nil
	}
	return err
}

// violations counts broken invariants and keeps the first of each.
type violations struct {
	lost, reordered, duplicated, diverged violation
}

type violation struct {
	n     int
	first string
}

// join adds what was found elsewhere.
func (v *violations) join(o *violations) {
	for _, b := range []struct{ to, from *violation }{
		{&v.lost, &o.lost}, {&v.reordered, &o.reordered},
		{&v.duplicated, &o.duplicated}, {&v.diverged, &o.diverged},
	} {
		if b.from.n > 0 {
			b.to.add("%s", b.from.first)
			b.to.n += b.from.n - 1
		}
	}
}

func (v *violation) add(format string, args ...any) {
	if v.n == 0 {
		v.first = fmt.Sprintf(format, args...)
	}
	v.n++
}

func (v *violation) err(kind error) error {
	switch v.n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s", kind, v.first)
	default:
		return fmt.Errorf("%w: %d times, first %s", kind, v.n, v.first)
	}
}

// err joins an error for each invariant that was broken; nil for none.
func (v *violations) err() error {
	return errors.Join(
		v.lost.err(lab.ErrLost),
		v.reordered.err(lab.ErrReordered),
		v.duplicated.err(lab.ErrDuplicated),
		v.diverged.err(lab.ErrDiverged),
	)
}
