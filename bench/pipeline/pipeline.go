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
//     loop. With [Config.Static], the kubelet's file and http sources feed the same
//     merger, with static pods that change while the storm is played; what they
//     tell is judged by itself, and the storm's events as if it were alone.
//
// [Compare] makes the cells of a comparison. Ratios are for cells of one class
// ([lab.Cell]): order, coalescing, and what is taken on trust. Bounds, hand-over and
// how many consumers there are stand beside the figures. [lab.Comparison].Input is a
// digest of the storm's events (type, key, time, size) and of how they are played.
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
// time. [ReleasedHandled] is there for both.
//
// Reading the clock costs about as much as a fast queue does. So in unpaced
// cells of deltafifo and queue, every 64th event is stamped on the way in, and
// on the way out the clock is read once a batch, or once every 64 events where
// there are no batches; an event in between takes the next reading, so that its
// latency is rather too long, by less than 64 events. Two such readings are too
// coarse to be subtracted from each other, so that [PoppedStored] and
// [StoredHandled] are there only where every event is stamped: in paced cells, and
// with [StampsAll]. What stamps cost can be seen by comparing that with
// [StampsNone]. The pipelines with a merge stamp every event
// always, as one of theirs costs microseconds.
//
// An event that was coalesced away is complete when a version at least as new
// of its key has been handled. Latest-object queues never hand over a deletion:
// it has no latency, nor have the versions that it took out of the queue.
// Events that give a merger nothing to tell have none either.
//
// # The reading side
//
// [Config.HandlerCost] has the handler keep a processor busy for each event: a loop
// of so many turns as take that long on an idle processor, found out once in a
// process. It doesn't look at the clock, so that a handler that is held up by others
// has no less to do. In the queue pipeline an event is then handled when the
// hand-over that has it is done ([PoppedHandled]).
//
// [Config.Readers] list the namespaces of the indexer one after the other, without a
// pause, as generated listers do: [Listed] is how long a list took, the notes
// "reads/s" and "objects/read" how many there were and of what size. With as many
// readers as processors, whatever paces the storm has to wait its turn too: then
// the verdict is that the generator is at fault, and rightly so.
//
// Staleness is how far the store is behind the source when somebody decides by it,
// in events (the highest resourceVersion that has been released, less the highest
// that is stored: "staleness-p50-events", "-p99-", "-max-") and in time (for how long
// the first event beyond what is stored had been released: [Staleness]). It is taken at each look-up of the
// worker, and at each list of the readers ("list-staleness-…", [ListStaleness]), from
// what was stored when the list began to what had been released when it was done.
// All of it comes from the stamps, so that it costs nothing while the clock runs,
// and is there only where every event is stamped. Per-key delivery may store an
// event before an older one of another key, which its staleness doesn't show, as a
// resourceVersion doesn't.
//
// [Config.Stalled] holds the consumer outside of the queue until all is queued, and
// then lets it go. What the queue's heap grew by, after a collection, over the events
// is "B/queued-event": keys, slices and maps, not the objects, which are there
// before. "waiting" is what Len said then. The clock runs while it drains
// ("drain-ns/event"): events/s, allocations and CPU time are those of draining, and
// there are no latencies. "fill-ns/event" is from the first call to the last.
//
// [Config.Consumers] take at the same time, where a variant lets them. Each logs what
// it gets, and for each key a counter says which hand-over was first, so that nothing
// lost, nothing twice, per-key order and one consumer a key at a time are checked as
// ever; a total order, across keys, is not. The counters cost a consumer a look at
// each object and two atomic additions a key, which one consumer alone doesn't pay.
//
// # The longest lock hold
//
// In paced cells of deltafifo and queue alone a probe calls HasSynced every 3.7 ms,
// for 1 to 2 % of a processor where each question wakes an idle one up, and for too
// little to be told from noise where it doesn't. The longest answer is
// "lock-hold-max-ns"; "lock-hold-floor-ns" is the longest that asking nothing took,
// right before and as often: what lies below is the scheduler's. It sees a hold that
// is under way when it asks, from then on, and the time until it is awake again. A
// lock that is held for 1 % of the time is met by one question in a hundred, so that
// a single short hold is hardly ever seen. Upstream's queues take their lock for
// HasSynced. Ours don't, so that the probe finds the floor there, whatever lock they
// have inside: what producers wait for is in [ReleasedEnqueued], of all variants.
// [Config.NoProbe] leaves it out.
//
// # Profiles
//
// Under a context of [profile.With], what a pipeline runs is labelled by stage:
// produce, pop and handle in the queue pipeline, source, pop, store, handle, work
// and read in the informer pipeline, source, merge and sync in the kubelet pipeline.
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
	// ReleasedHandled is the headline of unpaced ones.
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
