package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
	"watchlab/impls"
	"watchlab/impls/merge"
	"watchlab/loadgen/pace"
)

// NodePods is how many pods the node of the merge family's storms has:
// kubelet's default limit.
const NodePods = 110

// lastPod is added to the merger's source when all else has gone in. As the
// updates of a source take effect in their order, its ADD is the last
// notification.
var lastPod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "watchlab", Name: "last", UID: "watchlab-last"}}

// merging is the queue pipeline of the family merge.
//
// After each event the whole list of pods goes to the merger's api channel, as
// kubelet's UndeltaStore pushes it; the lists are made beforehand. One
// goroutine receives the notifications. The list of the initial pods is told
// before the clock starts.
type merging struct {
	name       string
	build      func() (merge.Merger, error)
	guarantees impls.Guarantees
	material   *material
	rate       pace.Pace
	stall      time.Duration

	score   *score
	merger  merge.Merger
	st      *stamps
	taps    *taps
	notices []notice

	received atomic.Uint64

	judged  bool
	broken  violations
	stalled error
}

var _ lab.Workload = (*merging)(nil)

func (w *merging) Setup(ctx context.Context) error {
	var err error
	w.score = w.material.score(w.rate)
	w.score.lists()
	w.score.tellings()
	// What the merger starts is of its stage.
	profile.Do(ctx, stageMerge, func(context.Context) { w.merger, err = w.build() })
	if err != nil {
		return err
	}
	updates := w.merger.Updates()
	w.st = newStamps(len(w.score.Events), w.rate.Paced(), StampsAll)
	w.st.budget = w.score.budget
	w.taps = newTaps(ctx, w.st, w.score)
	w.taps.depth(func() int { return len(updates) }, w.taps.meanSize())
	w.notices = make([]notice, 0, len(w.score.Events)+sampleEvery)
	return nil
}

func (w *merging) Run(ctx context.Context, rec *cell.Recorder) error {
	inner, cancel := context.WithCancel(ctx)
	received := make(chan struct{})
	ready, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(received)
		profile.Do(inner, stageHandle, func(ctx context.Context) { w.receive(ctx, ready, finished) })
	}()
	defer func() {
		cancel()
		<-received
	}()
	ch, err := channelOf(inner, w.merger, merge.APISource)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}

	lists := w.score.lists()
	if err := w.send(inner, ch, merge.SET, lists[0]); err != nil {
		return err
	}
	if err := w.awaitOr(ctx, ready); err != nil || w.stalled != nil {
		return err
	}

	rec.Begin()
	sent := make(chan error, 1)
	t0 := w.st.begin()
	go func() {
		profile.Do(inner, stageProduce, func(ctx context.Context) { sent <- w.play(ctx, ch, t0, lists[1:]) })
	}()
	err = w.awaitOr(ctx, finished)
	rec.End()
	cancel()
	if sendErr := <-sent; err == nil && w.stalled == nil {
		err = sendErr
	}
	if err != nil || w.stalled != nil {
		return err
	}
	<-received
	w.report(rec)
	return nil
}

// channelOf opens a merger's channel; the goroutine that reads it is of the stage
// merge.
func channelOf(ctx context.Context, m merge.Merger, source string) (ch chan<- merge.PodUpdate, err error) {
	profile.Do(ctx, stageMerge, func(ctx context.Context) { ch, err = m.Channel(ctx, source) })
	return ch, err
}

func (w *merging) awaitOr(ctx context.Context, done <-chan struct{}) error {
	// While nothing is due, nothing moves.
	return keepStall(await(ctx, done, &w.received, w.stall+w.score.pause), &w.stalled)
}

func (w *merging) send(ctx context.Context, ch chan<- merge.PodUpdate, op merge.Op, pods []*v1.Pod) error {
	select {
	case ch <- merge.PodUpdate{Pods: pods, Op: op, Source: merge.APISource}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// play sends a list for each event, and lastPod in the end.
func (w *merging) play(ctx context.Context, ch chan<- merge.PodUpdate, t0 time.Time, lists [][]*v1.Pod) error {
	p := pace.On(w.score.schedule)
	defer func() { _ = p.Close() }()
	p.Start(t0)
	tap := w.taps.tap()
	defer tap.close()
	seq := uint64(w.score.Initial)
	for i, list := range lists {
		seq++
		if err := p.Wait(ctx, i); err != nil {
			return err
		}
		w.st.release(seq)
		tap.released(seq)
		if err := w.send(ctx, ch, merge.SET, list); err != nil {
			return err
		}
		w.st.enqueue(seq)
		tap.enqueued(seq)
	}
	return w.send(ctx, ch, merge.ADD, []*v1.Pod{lastPod})
}

// receive logs the notifications until lastPod's. It closes ready at the first
// one.
func (w *merging) receive(ctx context.Context, ready, finished chan<- struct{}) {
	tap := w.taps.tap()
	defer tap.close()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case u := <-w.merger.Updates():
			if isLast(u) {
				close(finished)
				return
			}
			now := w.st.now()
			w.notices = append(w.notices, notice{u, now, now})
			tap.notified(u, now)
			w.received.Add(1)
			if first {
				close(ready)
			}
		}
	}
}

func isLast(u merge.PodUpdate) bool {
	return u.Op == merge.ADD && len(u.Pods) == 1 && u.Pods[0].UID == lastPod.UID
}

func (w *merging) report(rec *cell.Recorder) {
	s := w.score.Storm
	folds := w.guarantees.Coalesces != impls.CoalesceNone
	broken, out := w.score.tellings().match(w.notices, w.st, s, folds, 0)
	w.broken, w.judged = broken, true
	rec.Count(uint64(len(s.Events)-s.Initial), out)
	rec.Note("notifications", float64(len(w.notices)))
	stretches := []stretch{
		{ReleasedEnqueued, w.st.released, w.st.enqueued},
		{EnqueuedMerged, w.st.enqueued, w.st.popped},
	}
	w.st.report(rec, pace.On(w.score.schedule), s.Initial, stretches...)
	w.st.timeline(rec, s.Initial, w.st.popped)
	w.taps.rest(stretches...)
	w.taps.journeys("merged", false)
}

func (w *merging) Check() error {
	if w.stalled != nil {
		return fmt.Errorf("%w: %w", lab.ErrLost, w.stalled)
	}
	if !w.judged {
		return errors.New("the workload has not been run")
	}
	return w.broken.err()
}

func (w *merging) Teardown() error {
	if w.merger != nil {
		w.merger.Close()
	}
	w.merger, w.st, w.taps, w.notices = nil, nil, nil, nil
	return nil
}
