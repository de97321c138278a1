package pipeline

import (
	"maps"
	"reflect"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls/merge"
	"watchlab/loadgen/storm"
)

// A notification does not name its event: its pod keeps the resourceVersion with which
// it was first seen. So the storm's notifications are computed in advance, pod by pod.
// Actual notifications are matched by pod, operation and content.

type notification struct {
	seq uint64
	op  merge.Op
	pod *v1.Pod
}

// notifications are the expected updates of a storm by pod, in order. final has the last
// version of each remaining pod.
type notifications struct {
	byPod map[types.UID][]notification
	final map[types.UID]*v1.Pod
}

// notificationsOf computes the notifications of a merger that gets the whole list after each event
// (k8s.io/kubernetes v1.31.14, pkg/kubelet/config/config.go, podStorage.merge).
func notificationsOf(s *storm.Storm) *notifications {
	t := &notifications{byPod: make(map[types.UID][]notification), final: make(map[types.UID]*v1.Pod)}
	expect := func(seq uint64, op merge.Op, pod *v1.Pod) {
		t.byPod[pod.UID] = append(t.byPod[pod.UID], notification{seq, op, pod})
	}
	live := make([]*v1.Pod, s.Keys)
	for i := range s.Events {
		e := &s.Events[i]
		pod, ok := e.Object.(*v1.Pod)
		if !ok {
			continue
		}
		old := live[e.KeyIndex]
		live[e.KeyIndex] = pod
		if old != nil && (e.Type == watch.Deleted || old.UID != pod.UID) {
			expect(e.Seq, merge.REMOVE, old)
			old = nil
		}
		switch {
		case e.Type == watch.Deleted:
			live[e.KeyIndex] = nil
		case old == nil:
			expect(e.Seq, merge.ADD, pod)
		case differ(old, pod) && pod.DeletionTimestamp != nil:
			expect(e.Seq, merge.DELETE, pod)
		case differ(old, pod):
			expect(e.Seq, merge.UPDATE, pod)
		case !reflect.DeepEqual(old.Status, pod.Status):
			expect(e.Seq, merge.RECONCILE, pod)
		}
	}
	for _, pod := range live {
		if pod != nil {
			t.final[pod.UID] = pod
		}
	}
	return t
}

// differ reports whether two pods differ in anything but the status that a merger compares.
func differ(a, b *v1.Pod) bool {
	return !reflect.DeepEqual(a.Spec, b.Spec) ||
		!reflect.DeepEqual(a.Labels, b.Labels) ||
		!reflect.DeepEqual(a.DeletionTimestamp, b.DeletionTimestamp) ||
		!reflect.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) ||
		!maps.Equal(plainAnnotations(a), plainAnnotations(b))
}

// plainAnnotations returns the annotations without kubelet's own.
func plainAnnotations(p *v1.Pod) map[string]string {
	m := maps.Clone(p.Annotations)
	maps.DeleteFunc(m, func(k, _ string) bool {
		return k == merge.ConfigSourceAnnotation || k == merge.ConfigMirrorAnnotation || k == merge.ConfigFirstSeenAnnotation
	})
	return m
}

// same reports whether two pods are equal in everything that a merger compares. Nil and
// empty are equal, as on the wire.
func same(sent, version *v1.Pod) bool {
	eq := equality.Semantic.DeepEqual
	return sent.Name == version.Name && sent.Namespace == version.Namespace &&
		eq(sent.Status, version.Status) &&
		eq(sent.Spec, version.Spec) &&
		eq(sent.Labels, version.Labels) &&
		eq(sent.DeletionTimestamp, version.DeletionTimestamp) &&
		eq(sent.DeletionGracePeriodSeconds, version.DeletionGracePeriodSeconds) &&
		maps.Equal(plainAnnotations(sent), plainAnnotations(version))
}

// noticeLog records the notifications that a receiver got. One goroutine appends;
// telemetry reads the published entries.
type noticeLog struct {
	notices     []notice
	published   atomic.Uint64 // entries that others may read, stored after the entry is written
	first, last chan struct{} // closed at the first notification, at that of lastPod
}

type notice struct {
	merge.PodUpdate
	merged, handled int64 // times at which it was received and handled
}

func newNoticeLog(events int) *noticeLog {
	return &noticeLog{notices: make([]notice, 0, events+sampleEvery), first: make(chan struct{}), last: make(chan struct{})}
}

// add logs a notification. It returns false for that of lastPod, which is not logged.
func (l *noticeLog) add(u merge.PodUpdate, merged, handled int64) bool {
	if isLast(u) {
		close(l.last)
		return false
	}
	l.notices = append(l.notices, notice{u, merged, handled})
	if l.published.Add(1) == 1 {
		close(l.first)
	}
	return true
}

// match matches notices with events and fills in their stamps. folds: a newer notification may
// replace a missing one. listed is the version of the newest list during the play; 0 for none.
// Changes up to that list may be missing, and the list's changes may come with another operation.
// out counts the pods of notifications about events after the initial list.
func (t *notifications) match(notices []notice, st *stamps, s *storm.Storm, folds bool, listed uint64) (v violations, out uint64) {
	superseded := supersededBy(s, listed)
	type progress struct {
		next int
		sent []bool
	}
	at := make(map[types.UID]*progress, len(t.byPod))
	for uid, all := range t.byPod {
		at[uid] = &progress{sent: make([]bool, len(all))}
	}
	state := make(map[types.UID]*v1.Pod)
	for _, n := range notices {
		switch n.Op {
		case merge.ADD, merge.UPDATE, merge.DELETE, merge.REMOVE, merge.RECONCILE:
		default:
			v[diverged].add("a notification %v of %d pods", n.Op, len(n.Pods))
			continue
		}
		for _, pod := range n.Pods {
			if n.Op == merge.REMOVE {
				delete(state, pod.UID)
			} else {
				state[pod.UID] = pod
			}
			all, known := t.byPod[pod.UID]
			if !known {
				v[diverged].add("%v of pod %s/%s, which never went in", n.Op, pod.Namespace, pod.Name)
				continue
			}
			p := at[pod.UID]
			i := nearest(all, p.next, n.Op, pod)
			if i < 0 {
				// A list may skip a pod's first events and show a later state.
				i = shown(all, p.next, n.Op, pod, listed)
			}
			switch {
			case i < 0:
				v[diverged].add("%v of pod %s/%s matches no event", n.Op, pod.Namespace, pod.Name)
				continue
			case i < p.next && p.sent[i]:
				v[duplicated].add("%v of pod %s/%s (event %d)", n.Op, pod.Namespace, pod.Name, all[i].seq)
				continue
			case i < p.next:
				p.sent[i] = true
				v[reordered].add("%v of pod %s/%s (event %d) after that of event %d", n.Op, pod.Namespace, pod.Name, all[i].seq, all[p.next-1].seq)
				continue
			}
			p.sent[i] = true
			p.next = i + 1
			seq := all[i].seq
			st.popped[seq], st.handled[seq] = n.merged, n.handled
			if seq > uint64(s.Initial) {
				out++
			}
		}
	}
	for uid, p := range at {
		for i, sent := range p.sent {
			if sent || folds && i < p.next {
				continue
			}
			e := t.byPod[uid][i]
			if superseded(e.seq) {
				continue
			}
			v[lost].add("event %d (%v of pod %s/%s)", e.seq, e.op, e.pod.Namespace, e.pod.Name)
		}
	}
	for uid, pod := range t.final {
		if sent, ok := state[uid]; !ok || !same(sent, pod) {
			v[diverged].add("pod %s/%s is not in the end what the storm left", pod.Namespace, pod.Name)
		}
		delete(state, uid)
	}
	for _, pod := range state {
		v[diverged].add("pod %s/%s is there in the end, but not in the storm", pod.Namespace, pod.Name)
	}
	return v, out
}

// nearest returns the index of the match that is nearest to an index, and the later one of
// two; -1 for none. Each lap repeats the same states of a pod.
func nearest(all []notification, at int, op merge.Op, pod *v1.Pod) int {
	for d := range len(all) + 1 {
		for _, i := range [...]int{at + d, at - d} {
			if i >= 0 && i < len(all) && all[i].matches(op, pod) {
				return i
			}
		}
	}
	return -1
}

// shown returns the index of the last notification in all[from:], up to a list, with the
// same pod version and any operation; -1 for none.
func shown(all []notification, from int, op merge.Op, pod *v1.Pod, listed uint64) int {
	if op == merge.REMOVE {
		return -1
	}
	found := -1
	for i := from; i < len(all) && all[i].seq <= listed; i++ {
		if all[i].op != merge.REMOVE && same(pod, all[i].pod) {
			found = i
		}
	}
	return found
}

func (t notification) matches(op merge.Op, pod *v1.Pod) bool {
	return t.op == op && (op == merge.REMOVE || same(pod, t.pod))
}
