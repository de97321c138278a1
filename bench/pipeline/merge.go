package pipeline

import (
	"cmp"
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/cell"
	"watchlab/bench/pprof"
	"watchlab/impls"
	"watchlab/impls/merge"
	"watchlab/loadgen/pace"
)

// NodePods is the number of pods on the node of the family merge: kubelet's default limit.
const NodePods = 110

// lastPod is added to the merger's source after everything else. A source's updates
// take effect in their order, so its ADD is the last notification.
var lastPod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "watchlab", Name: "last", UID: "watchlab-last"}}

func isLast(u merge.PodUpdate) bool {
	return u.Op == merge.ADD && len(u.Pods) == 1 && u.Pods[0].UID == lastPod.UID
}

// merging is the queue pipeline of the family merge.
//
// After each event the whole pod list goes to the merger's api channel, as kubelet's
// UndeltaStore pushes it. One goroutine receives the notifications. The list of the
// initial pods is handled before the clock starts.
type merging struct {
	build   func() (merge.Merger, error)
	merger  merge.Merger
	notices *noticeLog
}

func (m *merging) setup(ctx context.Context, w *workload) error {
	w.score.lists()
	return m.start(ctx, w)
}

func (m *merging) start(ctx context.Context, w *workload) (err error) {
	w.score.notifications()
	// The merger's goroutines belong to its stage.
	pprof.Do(ctx, stageMerge, func(context.Context) { m.merger, err = m.build() })
	if err != nil {
		return err
	}
	w.cleanupFunc(m.merger.Close)
	m.notices = newNoticeLog(len(w.score.Events))
	updates := m.merger.Updates()
	w.telemetry.merger(func() int { return len(updates) }, m.notices)
	return nil
}

func (m *merging) play(ctx context.Context, w *workload, rec *cell.Recorder) (err error) {
	inner, cancel := context.WithCancel(ctx)
	received := make(chan struct{})
	go func() {
		defer close(received)
		pprof.Do(inner, stageHandle, func(ctx context.Context) { m.receive(ctx, w.st) })
	}()
	defer func() {
		cancel()
		<-received
	}()
	ch, err := channelOf(inner, m.merger, merge.APISource)
	if err != nil {
		return err
	}

	lists := w.score.lists()
	if err := send(inner, ch, merge.SET, lists[0]); err != nil {
		return err
	}
	if err := w.await(ctx, m.notices.first, m.notices.published.Load); err != nil {
		return err
	}

	rec.Begin()
	sent := make(chan error, 1)
	p := pace.On(w.score.schedule)
	defer func() { _ = p.Close() }()
	p.Start(w.st.begin())
	go func() {
		pprof.Do(inner, stageProduce, func(ctx context.Context) { sent <- m.produce(ctx, w, p, ch, lists[1:]) })
	}()
	err = w.await(ctx, m.notices.last, m.notices.published.Load)
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

// produce sends a list for each event, and lastPod in the end.
func (m *merging) produce(ctx context.Context, w *workload, p *pace.Pacer, ch chan<- merge.PodUpdate, lists [][]*v1.Pod) error {
	seq := uint64(w.score.Initial)
	for i, list := range lists {
		seq++
		if err := p.Wait(ctx, i); err != nil {
			return err
		}
		w.st.release(seq)
		if err := send(ctx, ch, merge.SET, list); err != nil {
			return err
		}
		w.st.enqueue(seq)
	}
	return send(ctx, ch, merge.ADD, []*v1.Pod{lastPod})
}

func (m *merging) receive(ctx context.Context, st *stamps) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-m.merger.Updates():
			now := st.now()
			if !m.notices.add(u, now, now) {
				return
			}
		}
	}
}

func (m *merging) check(w *workload, rec *cell.Recorder) outcome { return m.match(w, rec, 0) }

// match matches the notifications with the storm's; see [notifications.match]. After a
// list, as with a coalescing merger, a newer notification may replace a missing one.
func (m *merging) match(w *workload, rec *cell.Recorder, listed uint64) outcome {
	rec.Note("notifications", float64(len(m.notices.notices)))
	st := w.st
	o := outcome{taken: st.popped, popped: "merged", intervals: []interval{
		{ReleasedEnqueued, st.released, st.enqueued},
		{EnqueuedMerged, st.enqueued, st.popped},
	}}
	folds := w.guarantees.Coalesces != impls.CoalesceNone || listed > 0
	o.broken, o.out = w.score.notifications().match(m.notices.notices, st, w.score.Storm, folds, listed)
	return o
}
