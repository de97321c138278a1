package pipeline

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/impls/merge"
)

// podManager is what stands behind the sync loop of the kubelet pipeline: it
// keeps the pods that it is told of, as kubelet's own does, and the log. It is
// used by the sync loop's goroutine alone, until that has ended.
type podManager struct {
	st   *stamps
	pods map[types.UID]*v1.Pod

	syncs, cleanups int

	static *staticPods

	notices []notice

	merged int64

	ready, finished chan struct{}

	progress atomic.Uint64
	tap      *tap
}

var (
	_ SyncHandler  = (*podManager)(nil)
	_ SyncObserver = (*podManager)(nil)
	_ PodSource    = (*podManager)(nil)
)

func newPodManager(st *stamps, pods, events int) *podManager {
	return &podManager{
		st:       st,
		pods:     make(map[types.UID]*v1.Pod, pods),
		notices:  make([]notice, 0, events+sampleEvery),
		ready:    make(chan struct{}),
		finished: make(chan struct{}),
	}
}

// Received stamps the update.
func (m *podManager) Received(merge.PodUpdate) { m.merged = m.st.now() }

// Dispatched logs the update.
func (m *podManager) Dispatched(u merge.PodUpdate) {
	if m.static != nil && u.Source != merge.APISource {
		m.static.take(u)
		return
	}
	if m.progress.Add(1) == 1 {
		close(m.ready)
	}
	if isLast(u) {
		close(m.finished)
		return
	}
	now := m.st.now()
	m.notices = append(m.notices, notice{u, m.merged, now})
	m.tap.notified(u, now)
}

// HandlePodAdditions keeps the pods.
func (m *podManager) HandlePodAdditions(pods []*v1.Pod) { m.keep(pods) }

// HandlePodUpdates keeps the pods.
func (m *podManager) HandlePodUpdates(pods []*v1.Pod) { m.keep(pods) }

// HandlePodReconcile keeps the pods.
func (m *podManager) HandlePodReconcile(pods []*v1.Pod) { m.keep(pods) }

func (m *podManager) keep(pods []*v1.Pod) {
	for _, p := range pods {
		m.pods[p.UID] = p
	}
}

// HandlePodRemoves forgets the pods.
func (m *podManager) HandlePodRemoves(pods []*v1.Pod) {
	for _, p := range pods {
		delete(m.pods, p.UID)
	}
}

// HandlePodSyncs counts: there are no containers to sync.
func (m *podManager) HandlePodSyncs([]*v1.Pod) { m.syncs++ }

// HandlePodCleanups counts: there is nothing that could be left over.
func (m *podManager) HandlePodCleanups(context.Context) error {
	m.cleanups++
	return nil
}

// PodByUID returns a pod that was told of and not removed.
func (m *podManager) PodByUID(uid types.UID) (*v1.Pod, bool) {
	p, ok := m.pods[uid]
	return p, ok
}

// PodsToSync returns none: kubelet syncs a pod when it has not been synced for
// a minute, by its workers' queue, and there are no workers here.
func (m *podManager) PodsToSync() []*v1.Pod { return nil }
