package merge

import v1 "k8s.io/api/core/v1"

// notification is an unsent PodUpdate. Its pods are copied by the sender, not
// by the poster, which may hold a lock.
type notification struct {
	update PodUpdate
	// one or many are the pods to copy into update while update.Pods is nil. One
	// pod is the common case and needs no slice.
	one  held
	many []held
}

// ready returns the update to send, and copies its pods on the first call.
func (n *notification) ready() PodUpdate {
	if n.update.Pods != nil {
		return n.update
	}
	if n.many == nil {
		n.update.Pods = []*v1.Pod{n.one.copy()}
	} else {
		n.update.Pods = make([]*v1.Pod, len(n.many))
		for i, h := range n.many {
			n.update.Pods[i] = h.copy()
		}
	}
	n.one, n.many = held{}, nil
	return n.update
}

// backlog holds unsent notifications, oldest first. It has no lock of its own. A post costs O(1)
// amortized. Memory of sent notifications is released, except the array.
type backlog struct {
	waiting      []notification
	head         int    // index of the first unsent notification
	posted, sent uint64 // count all notifications since construction
}

func (b *backlog) empty() bool { return b.sent == b.posted }

// first returns the oldest notification. It may be changed in place, and stays
// valid until the next post.
func (b *backlog) first() *notification { return &b.waiting[b.head] }

// shift removes the oldest notification as sent.
func (b *backlog) shift() {
	b.sent++
	b.waiting[b.head] = notification{}
	if b.head++; b.head == len(b.waiting) {
		b.waiting, b.head = b.waiting[:0], 0
	}
}

func (b *backlog) post(n notification) {
	if b.head > 0 && len(b.waiting) == cap(b.waiting) {
		left := copy(b.waiting, b.waiting[b.head:])
		clear(b.waiting[left:])
		b.waiting, b.head = b.waiting[:left], 0
	}
	b.waiting = append(b.waiting, n)
	b.posted++
}

// postChanges posts the changes of the last update of s, with the current pods.
func (b *backlog) postChanges(s *source) {
	if s.changes.n == 0 && !s.changes.firstSet {
		return
	}
	s.changes.notify(func(op Op, entries []*entry) {
		n := notification{update: PodUpdate{Op: op, Source: s.name}}
		switch {
		case len(entries) == 0:
			n.update.Pods = []*v1.Pod{}
		case len(entries) == 1:
			n.one = entries[0].held
		default:
			n.many = make([]held, len(entries))
			for i, e := range entries {
				n.many[i] = e.held
			}
		}
		b.post(n)
	})
	s.changes.reset()
}

// postAll posts a SET of all pods of the sources.
func (b *backlog) postAll(sources []*source) {
	n := notification{update: PodUpdate{Op: SET, Source: AllSource}}
	total := 0
	for _, s := range sources {
		total += len(s.byUID)
	}
	n.many = make([]held, 0, total)
	for _, s := range sources {
		for _, e := range s.byUID {
			n.many = append(n.many, e.held)
		}
	}
	b.post(n)
}

// held is a pod of the merger: pod with another status. Neither is written to once it is held, so
// that it can be read without a lock. They share memory with received pods, except annotations.
type held struct {
	pod    *v1.Pod
	status *v1.PodStatus
}

// copy returns a deep copy of the pod.
func (h held) copy() *v1.Pod {
	out := new(v1.Pod)
	out.TypeMeta = h.pod.TypeMeta
	h.pod.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	h.pod.Spec.DeepCopyInto(&out.Spec)
	h.status.DeepCopyInto(&out.Status)
	return out
}
