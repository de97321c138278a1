package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"watchlab/impls/merge"
)

// SyncHandler receives what a [SyncLoop] dispatches, one call at a time. It owns the
// pods.
type SyncHandler interface {
	HandlePodAdditions(pods []*v1.Pod)
	HandlePodUpdates(pods []*v1.Pod)
	HandlePodRemoves(pods []*v1.Pod)
	HandlePodReconcile(pods []*v1.Pod)
	HandlePodSyncs(pods []*v1.Pod)
	HandlePodCleanups(ctx context.Context) error
}

// PodSource holds the pods that a [SyncLoop] dispatched.
type PodSource interface {
	// PodByUID returns the pod with the UID, if there is one.
	PodByUID(uid types.UID) (*v1.Pod, bool)
	// PodsToSync returns the pods that are due for a sync.
	PodsToSync() []*v1.Pod
}

// SyncObserver is called before and after each dispatch, by the loop's goroutine.
type SyncObserver interface {
	Received(u merge.PodUpdate)
	Dispatched(u merge.PodUpdate)
}

// PodLifecycleEvent is a change of a pod's containers, reported by the container
// runtime.
type PodLifecycleEvent struct {
	// ID is the UID of the pod.
	ID types.UID
	// Type is a PLEG event type of kubelet, such as [ContainerRemoved].
	Type string
}

// ContainerRemoved is the only type of [PodLifecycleEvent] that syncs no pod.
const ContainerRemoved = "ContainerRemoved"

// SyncLoop is kubelet's main loop for pods: one goroutine reads four channels and
// dispatches to a handler (k8s.io/kubernetes v1.31.14, pkg/kubelet/kubelet.go,
// syncLoopIteration):
//
//   - ConfigCh: ADD, UPDATE, REMOVE and RECONCILE each go to the handler's
//     method. DELETE is handled as an update, as deletion is graceful. An
//     unknown operation, and SET, is an error: it is counted and logged, and
//     the loop goes on. After any operation its source counts as seen.
//   - PlegCh: the pod is synced, if it exists.
//   - SyncCh: the pods that are due are synced.
//   - HousekeepingCh: the handler cleans up, once all sources are ready, so that it
//     keeps the pods of a source without updates yet.
//
// A channel that is nil is never read from. Probe results and container
// managers have no channels here.
type SyncLoop struct {
	// ConfigCh has the merger's updates. Run ends when it is closed.
	ConfigCh <-chan merge.PodUpdate
	// PlegCh has the container runtime's events; nil for none.
	PlegCh <-chan PodLifecycleEvent
	// SyncCh ticks when pods may be due for a sync; nil for never.
	SyncCh <-chan time.Time
	// HousekeepingCh ticks for cleanups; nil for never.
	HousekeepingCh <-chan time.Time
	// Handler receives the dispatched pods. It must not be nil.
	Handler SyncHandler
	// Pods finds the pods to sync; nil only without PlegCh and SyncCh.
	Pods PodSource
	// SourcesReady reports whether all sources are among those seen; a merger's
	// SeenAllSources. It is called for each tick of HousekeepingCh.
	SourcesReady func(seen sets.Set[string]) bool
	// Observer is called before and after each dispatch; nil for none.
	Observer SyncObserver
	// seen has the sources of all updates so far. Only Run's goroutine uses it.
	seen sets.Set[string]
	// errors counts failed dispatches and cleanups; other goroutines read it.
	errors atomic.Uint64
}

// Errors returns the number of failed dispatches and cleanups. It may be called while
// Run runs.
func (l *SyncLoop) Errors() uint64 { return l.errors.Load() }

// Run loops until ctx ends or ConfigCh is closed. It is called once.
func (l *SyncLoop) Run(ctx context.Context) {
	l.seen = sets.New[string]()
	for l.iterate(ctx) {
	}
}

// iterate reads one channel; it returns false at the end of the loop.
func (l *SyncLoop) iterate(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case u, open := <-l.ConfigCh:
		if !open {
			return false
		}
		l.dispatch(u)
	case e := <-l.PlegCh:
		if e.Type == ContainerRemoved {
			break
		}
		if pod, ok := l.Pods.PodByUID(e.ID); ok {
			l.Handler.HandlePodSyncs([]*v1.Pod{pod})
		}
	case <-l.SyncCh:
		if pods := l.Pods.PodsToSync(); len(pods) > 0 {
			l.Handler.HandlePodSyncs(pods)
		}
	case <-l.HousekeepingCh:
		if !l.SourcesReady(l.seen) {
			break
		}
		if err := l.Handler.HandlePodCleanups(ctx); err != nil {
			l.errors.Add(1)
			klog.ErrorS(err, "Pods could not be cleaned up")
		}
	}
	return true
}

func (l *SyncLoop) dispatch(u merge.PodUpdate) {
	if l.Observer != nil {
		l.Observer.Received(u)
		defer l.Observer.Dispatched(u)
	}
	switch u.Op {
	case merge.ADD:
		l.Handler.HandlePodAdditions(u.Pods)
	case merge.UPDATE, merge.DELETE:
		l.Handler.HandlePodUpdates(u.Pods)
	case merge.REMOVE:
		l.Handler.HandlePodRemoves(u.Pods)
	case merge.RECONCILE:
		l.Handler.HandlePodReconcile(u.Pods)
	default:
		// SET is among these: a sync loop takes changes, not states.
		l.errors.Add(1)
		klog.ErrorS(nil, "A pod update with this operation can't be dispatched",
			"operation", u.Op, "source", u.Source, "pods", len(u.Pods))
	}
	l.seen.Insert(u.Source)
}
