package pipeline

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/impls/merge"
)

// podManager is the sync loop's handler in the kubelet pipeline. It keeps the pods, as
// kubelet's pod manager does, and logs the updates. Only the sync loop's goroutine uses
// it.
type podManager struct {
	st   *stamps
	pods map[types.UID]*v1.Pod
	// syncs and cleanups count calls.
	syncs, cleanups int
	// static checks the updates of the file and http sources; nil without static pods.
	static  *staticPods
	notices *noticeLog
	// merged is the time at which the current update was received.
	merged int64
}

var (
	_ SyncHandler  = (*podManager)(nil)
	_ SyncObserver = (*podManager)(nil)
	_ PodSource    = (*podManager)(nil)
)

func newPodManager(st *stamps, pods, events int) *podManager {
	return &podManager{
		st:      st,
		pods:    make(map[types.UID]*v1.Pod, pods),
		notices: newNoticeLog(events),
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
	m.notices.add(u, m.merged, m.st.now())
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

// HandlePodSyncs counts; there are no containers to sync.
func (m *podManager) HandlePodSyncs([]*v1.Pod) { m.syncs++ }

// HandlePodCleanups counts: there is nothing to clean up.
func (m *podManager) HandlePodCleanups(context.Context) error {
	m.cleanups++
	return nil
}

// PodByUID returns a pod that was added and not removed.
func (m *podManager) PodByUID(uid types.UID) (*v1.Pod, bool) {
	p, ok := m.pods[uid]
	return p, ok
}

// PodsToSync returns none: kubelet's pod workers request a resync after a minute, and
// this pipeline has no pod workers.
func (m *podManager) PodsToSync() []*v1.Pod { return nil }
