package pipeline

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"watchlab/impls/merge"
)

// The periods of kubelet's tickers (k8s.io/kubernetes v1.31.14, pkg/kubelet/kubelet.go).
const (
	syncPeriod         = time.Second
	housekeepingPeriod = 2 * time.Second
)

// syncLoop is kubelet's main loop for pods: one goroutine reads four channels and keeps
// the pods, as kubelet's pod manager does (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/kubelet.go, syncLoopIteration):
//
//   - updates: ADD, UPDATE and RECONCILE keep the pods, REMOVE forgets them. DELETE is
//     handled as an update, as deletion is graceful. An unknown operation, and SET, is an
//     error: it is counted and logged, and the loop goes on. After any operation its
//     source counts as seen.
//   - pleg: nothing arrives, as no containers run.
//   - syncTick: no pod is due, as there are no pod workers that request a resync.
//   - housekeepingTick: counts cleanups, once all sources are ready.
//
// Probe results and container managers have no channels here.
type syncLoop struct {
	// updates has the merger's notifications. run ends when it is closed.
	updates          <-chan merge.PodUpdate
	pleg             <-chan struct{}
	syncTick         <-chan time.Time
	housekeepingTick <-chan time.Time
	sourcesReady     func(seen sets.Set[string]) bool // a merger's SeenAllSources
	st               *stamps
	notices          *noticeLog  // logs the updates
	static           *staticPods // checks those of the file and http sources; nil without static pods

	// Only run's goroutine uses the fields below until it ends.
	pods             map[types.UID]*v1.Pod
	seen             sets.Set[string]
	errors, cleanups int // errors are updates with unknown operations
}

func newSyncLoop(m merge.Merger, st *stamps, notices *noticeLog, pods int) *syncLoop {
	return &syncLoop{
		updates: m.Updates(), pleg: make(chan struct{}), sourcesReady: m.SeenAllSources,
		st: st, notices: notices,
		pods: make(map[types.UID]*v1.Pod, pods), seen: sets.New[string](),
	}
}

// run loops until ctx ends or updates is closed. It is called once.
func (l *syncLoop) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u, open := <-l.updates:
			if !open {
				return
			}
			l.dispatch(u)
		case <-l.pleg:
		case <-l.syncTick:
		case <-l.housekeepingTick:
			if l.sourcesReady(l.seen) {
				l.cleanups++
			}
		}
	}
}

func (l *syncLoop) dispatch(u merge.PodUpdate) {
	received := l.st.now()
	switch u.Op {
	case merge.ADD, merge.UPDATE, merge.DELETE, merge.RECONCILE:
		for _, p := range u.Pods {
			l.pods[p.UID] = p
		}
	case merge.REMOVE:
		for _, p := range u.Pods {
			delete(l.pods, p.UID)
		}
	default:
		// SET is among these: a sync loop takes changes, not states.
		l.errors++
		klog.ErrorS(nil, "A pod update with this operation can't be dispatched",
			"operation", u.Op, "source", u.Source, "pods", len(u.Pods))
	}
	l.seen.Insert(u.Source)
	if l.static != nil && u.Source != merge.APISource {
		l.static.take(u)
		return
	}
	l.notices.add(u, received, l.st.now())
}
