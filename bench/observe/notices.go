package observe

import (
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/lab"
	"watchlab/impls/merge"
	"watchlab/loadgen/storm"
)

// LastPod is added to a merger's source after everything else. A source's updates
// take effect in their order, so its ADD is the last notification.
var LastPod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "watchlab", Name: "last", UID: "watchlab-last"}}

// Notices records the notifications that a receiver got.
type Notices struct {
	record[notice]
	st          *Stamps
	First, Last chan struct{} // closed at the first notification, at that of LastPod
}

type notice struct {
	merge.PodUpdate
	merged, handled int64 // times at which it was received and handled
}

// NewNotices returns an empty log with room for a notification of each event.
func NewNotices(st *Stamps) *Notices {
	l := &Notices{st: st, First: make(chan struct{}), Last: make(chan struct{})}
	l.reserve(len(st.at[popped]))
	return l
}

// Add logs a notification. It returns false for that of LastPod, which is not logged.
func (l *Notices) Add(u merge.PodUpdate, merged, handled int64) bool {
	if u.Op == merge.ADD && len(u.Pods) == 1 && u.Pods[0].UID == LastPod.UID {
		close(l.Last)
		return false
	}
	if l.add(notice{u, merged, handled}) == 1 {
		close(l.First)
	}
	return true
}

// Notifications are the expected updates of a storm by pod, in order. A notification does not name its
// event: its pod keeps the resourceVersion with which it was first seen. So the storm's notifications are
// computed in advance, pod by pod, and actual ones are matched by pod, operation and content.
type Notifications struct {
	byPod map[types.UID][]notification
	final map[types.UID]*v1.Pod // the last version of each remaining pod
}

type notification struct {
	seq uint64
	op  merge.Op
	pod *v1.Pod
}

// NotificationsOf computes the notifications of a merger that gets the whole list after each event
// (k8s.io/kubernetes v1.31.14, pkg/kubelet/config/config.go, podStorage.merge).
func NotificationsOf(s *storm.Storm) *Notifications {
	t := &Notifications{byPod: make(map[types.UID][]notification), final: make(map[types.UID]*v1.Pod)}
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

// differ reports whether two pods differ in anything but the status that a merger compares. It
// tells nil from empty, as a merger does.
func differ(a, b *v1.Pod) bool { return !alike(reflect.DeepEqual, a, b) }

// same reports whether two pods are equal in everything that a merger compares. Nil and
// empty are equal, as on the wire.
func same(sent, version *v1.Pod) bool {
	return sent.Name == version.Name && sent.Namespace == version.Namespace &&
		equality.Semantic.DeepEqual(sent.Status, version.Status) && alike(equality.Semantic.DeepEqual, sent, version)
}

func alike(equal func(a, b any) bool, a, b *v1.Pod) bool {
	return equal(a.Spec, b.Spec) && equal(a.Labels, b.Labels) &&
		equal(a.DeletionTimestamp, b.DeletionTimestamp) &&
		equal(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		maps.Equal(plainAnnotations(a), plainAnnotations(b))
}

// plainAnnotations returns the annotations without kubelet's own.
func plainAnnotations(p *v1.Pod) map[string]string {
	m := maps.Clone(p.Annotations)
	maps.DeleteFunc(m, func(k, _ string) bool {
		return k == merge.ConfigSourceAnnotation || k == merge.ConfigMirrorAnnotation || k == merge.ConfigFirstSeenAnnotation
	})
	return m
}

// podNotices matches the notifications of a pod.
type podNotices struct {
	want []notification
	sent []bool // of want
	next int    // first of want after the last match
}

// Check matches the notifications with the storm's and fills in the stamps. folds: a newer notification
// may replace a missing one. listed is the version of the newest list during the play; 0 for none.
// Changes up to that list may be missing, and the list's changes may come with another operation.
// out counts the pods of notifications about events after the initial list.
func (l *Notices) Check(t *Notifications, folds bool, listed uint64) (v Violations, out uint64) {
	byPod := make(map[types.UID]*podNotices, len(t.byPod))
	for uid, want := range t.byPod {
		byPod[uid] = &podNotices{want: want, sent: make([]bool, len(want))}
	}
	state := make(map[types.UID]*v1.Pod)
	for _, n := range l.log {
		switch n.Op {
		case merge.ADD, merge.UPDATE, merge.DELETE, merge.REMOVE, merge.RECONCILE:
		default:
			v.Add(lab.ErrDiverged, "a notification %v of %d pods", n.Op, len(n.Pods))
			continue
		}
		for _, pod := range n.Pods {
			if n.Op == merge.REMOVE {
				delete(state, pod.UID)
			} else {
				state[pod.UID] = pod
			}
			own, known := byPod[pod.UID]
			if !known {
				v.Add(lab.ErrDiverged, "%v of pod %s/%s, which never went in", n.Op, pod.Namespace, pod.Name)
				continue
			}
			seq := own.match(&v, n.Op, pod, listed)
			if seq == 0 {
				continue
			}
			l.st.at[popped][seq], l.st.at[handled][seq] = n.merged, n.handled
			if seq > uint64(l.st.initial) {
				out++
			}
		}
	}
	superseded := supersededBy(l.st.Storm, listed)
	for _, p := range byPod {
		for i, sent := range p.sent {
			if e := p.want[i]; !sent && (!folds || i >= p.next) && !superseded(e.seq) {
				v.Add(lab.ErrLost, "event %d (%v of pod %s/%s)", e.seq, e.op, e.pod.Namespace, e.pod.Name)
			}
		}
	}
	for uid, pod := range t.final {
		if sent, ok := state[uid]; !ok || !same(sent, pod) {
			v.Add(lab.ErrDiverged, "pod %s/%s is not in the end what the storm left", pod.Namespace, pod.Name)
		}
		delete(state, uid)
	}
	for _, pod := range state {
		v.Add(lab.ErrDiverged, "pod %s/%s is there in the end, but not in the storm", pod.Namespace, pod.Name)
	}
	return v, out
}

// match returns the event of a notification; 0 if it breaks an invariant.
func (p *podNotices) match(v *Violations, op merge.Op, pod *v1.Pod, listed uint64) (seq uint64) {
	i := p.nearest(op, pod)
	if i < 0 {
		// A list may skip a pod's first events and show a later state.
		i = p.shown(op, pod, listed)
	}
	switch {
	case i < 0:
		v.Add(lab.ErrDiverged, "%v of pod %s/%s matches no event", op, pod.Namespace, pod.Name)
		return 0
	case i < p.next && p.sent[i]:
		v.Add(lab.ErrDuplicated, "%v of pod %s/%s (event %d)", op, pod.Namespace, pod.Name, p.want[i].seq)
		return 0
	case i < p.next:
		p.sent[i] = true
		v.Add(lab.ErrReordered, "%v of pod %s/%s (event %d) after that of event %d", op, pod.Namespace, pod.Name, p.want[i].seq, p.want[p.next-1].seq)
		return 0
	}
	p.sent[i], p.next = true, i+1
	return p.want[i].seq
}

// nearest returns the index of the match that is nearest to the next one, and the later one of
// two; -1 for none. Each lap repeats the same states of a pod.
func (p *podNotices) nearest(op merge.Op, pod *v1.Pod) int {
	for d := range len(p.want) + 1 {
		for _, i := range [...]int{p.next + d, p.next - d} {
			if i >= 0 && i < len(p.want) && p.want[i].op == op && (op == merge.REMOVE || same(pod, p.want[i].pod)) {
				return i
			}
		}
	}
	return -1
}

// shown returns the index of the last notification from the next one on, up to a list, with the
// same pod version and any operation; -1 for none.
func (p *podNotices) shown(op merge.Op, pod *v1.Pod, listed uint64) int {
	found := -1
	for i := p.next; op != merge.REMOVE && i < len(p.want) && p.want[i].seq <= listed; i++ {
		if p.want[i].op != merge.REMOVE && same(pod, p.want[i].pod) {
			found = i
		}
	}
	return found
}
