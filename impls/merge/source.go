package merge

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// source holds the pods of one source and computes what an update changes. It has
// no lock of its own.
//
// # Unchanged pods
//
// The sender must not change a pod that it has sent. So a pod with the pointer of
// the last update is unchanged; this costs one lookup in byPointer and two marks.
// A pod from the API server with another pointer but the last resourceVersion is
// unchanged too; this costs one more lookup, in byUID. All other pods are
// compared.
//
// # Marks
//
// Each update has a generation. Marks are generations, so that no mark must be cleared:
//
//   - The mark of a name says that the current update had a pod with that
//     name. A second one is a duplicate.
//   - The mark of an entry says that the current SET has it. If a SET marks
//     all entries, it removes none, and the search for removed pods is
//     skipped.
//
// # Held pods
//
// A held pod is never written to. A change makes a shallow copy with the changed
// parts; a changed status needs none. So the sender can copy deeply without a lock.
type source struct {
	name       string
	versioned  bool   // pods with the same UID and resourceVersion are equal
	set        bool   // true after the first SET
	generation uint64 // of the current update
	byUID      map[types.UID]*entry
	byPointer  pointers
	names      map[string]*fullName
	// loose holds the names that lost a pod in the current update. Names without
	// a pod are deleted at its end, because their marks count until then.
	loose       []*fullName
	key         []byte          // the buffer for full names in lookups
	changes     changes[*entry] // of the current update; reused
	comparisons []comparison    // the results of compareAhead by index in the current update
}

// states holds the states of all sources, in order of appearance. With three
// sources, a loop is faster than a map.
type states struct {
	*mux
	all []*source
}

// execute executes a command: it merges the update and posts its notifications, or
// posts a snapshot. It returns the dropped duplicates.
func (t *states) execute(c command, to *backlog) (duplicates []*v1.Pod) {
	if c.sync {
		to.postAll(t.all)
		return nil
	}
	s := t.of(c.source)
	duplicates = s.apply(c.update)
	if s.changes.firstSet {
		t.sawSET(s.name)
	}
	to.postChanges(s)
	return duplicates
}

// of returns the state of a source, and creates it if needed.
func (t *states) of(name string) *source {
	for _, s := range t.all {
		if s.name == name {
			return s
		}
	}
	s := newSource(name)
	t.all = append(t.all, s)
	return s
}

// entry is a held pod.
type entry struct {
	held
	// received is the last received pointer. Keeping it ensures that no other pod gets its address.
	received *v1.Pod
	name     *fullName // of the last received pod
	mark     uint64    // generation of the last SET that had the pod
	born     uint64    // generation of the update that added the pod
}

// fullName is a pod's name_namespace.
type fullName struct {
	mark    uint64 // generation of the last update that had a pod of this name
	entries int    // counts the entries with this name
	text    string
}

func newSource(name string) *source {
	return &source{
		name:      name,
		versioned: name == APISource,
		byUID:     make(map[types.UID]*entry),
		names:     make(map[string]*fullName),
	}
}

// apply merges an update that passed Check. It leaves the changes in s.changes and
// returns the dropped duplicates.
func (s *source) apply(update PodUpdate) (duplicates []*v1.Pod) {
	s.generation++
	switch update.Op {
	case REMOVE:
		for _, pod := range update.Pods {
			if e, ok := s.byUID[pod.UID]; ok {
				s.remove(e)
			}
		}
	case SET:
		s.changes.firstSet = !s.set
		s.set = true
		var kept int
		kept, duplicates = s.upsert(update.Pods, true)
		if kept < len(s.byUID) {
			for _, e := range s.byUID {
				if e.mark != s.generation {
					s.remove(e)
				}
			}
		}
	default:
		_, duplicates = s.upsert(update.Pods, false)
	}
	s.forgetNames()
	return duplicates
}

// upsert inserts or updates pods. It returns the number of marked entries and the dropped
// duplicates. If whole is true, pods is the complete state, and a pod is new if it was absent
// before the update. This is kubelet's behavior, where a SET fills a new map.
func (s *source) upsert(pods []*v1.Pod, whole bool) (kept int, duplicates []*v1.Pod) {
	generation := s.generation
	for i, pod := range pods {
		if e := s.byPointer.get(pod); e != nil { // The pod is unchanged.
			name := e.name
			if name.mark == generation {
				duplicates = append(duplicates, pod)
				continue
			}
			name.mark = generation
			if e.mark != generation {
				e.mark = generation
				kept++
			}
			continue
		}
		e := s.byUID[pod.UID]
		named := e != nil && sameName(e.received, pod)
		var name *fullName
		if named { // In the common case no name lookup is needed.
			name = e.name
		} else {
			name = s.fullName(pod)
		}
		if name.mark == generation {
			duplicates = append(duplicates, pod)
			continue
		}
		name.mark = generation
		switch {
		case e == nil:
			e = s.add(pod, name)
		case named && s.sameVersion(e.received, pod):
			s.move(e, pod)
		case !named && whole && e.born == generation:
			// The second pod with the same UID replaces the first, which is still sent
			// as added and already marked.
			s.release(e)
			e = s.add(pod, name)
			e.mark = generation
		default:
			s.receive(e, pod, name, i)
		}
		if e.mark != generation {
			e.mark = generation
			kept++
		}
	}
	return kept, duplicates
}

func sameName(a, b *v1.Pod) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace
}

// sameVersion reports whether two pods with one UID and name are equal by their resourceVersion.
func (s *source) sameVersion(a, b *v1.Pod) bool {
	return s.versioned && a.ResourceVersion != "" && a.ResourceVersion == b.ResourceVersion
}

func (s *source) add(pod *v1.Pod, name *fullName) *entry {
	e := &entry{received: pod, name: name, born: s.generation}
	first := s.hold(e, pod)
	first.Annotations = firstAnnotations(s.name, pod.Annotations)
	e.status = &pod.Status
	name.entries++
	s.byUID[pod.UID] = e
	s.byPointer.put(pod, e)
	s.changes.add(ADD, e)
	return e
}

// hold stores a shallow copy of a pod in an entry and returns it. The caller may
// write to it until others see it.
func (s *source) hold(e *entry, pod *v1.Pod) *v1.Pod {
	e.pod = new(v1.Pod)
	*e.pod = *pod
	return e.pod
}

// move records the new pointer of a pod.
func (s *source) move(e *entry, pod *v1.Pod) {
	s.byPointer.remove(e.received)
	e.received = pod
	s.byPointer.put(pod, e)
}

// receive updates an entry from a pod with a new pointer, number i of the update.
func (s *source) receive(e *entry, pod *v1.Pod, name *fullName, i int) {
	s.move(e, pod)
	if e.name != name {
		s.loosen(e.name)
		e.name = name
		name.entries++
	}
	c := s.compare(e, pod, i)
	switch {
	case !c.same:
		s.change(e, pod)
	case !c.sameStatus:
		s.reconcile(e, pod)
	}
}

func (s *source) change(e *entry, pod *v1.Pod) {
	before := e.pod
	changed := s.hold(e, before)
	changed.Spec = pod.Spec
	changed.Labels = pod.Labels
	changed.DeletionTimestamp = pod.DeletionTimestamp
	changed.DeletionGracePeriodSeconds = pod.DeletionGracePeriodSeconds
	changed.Annotations = mergeAnnotations(before.Annotations, pod.Annotations)
	changed.Status = pod.Status
	e.status = &pod.Status
	if pod.DeletionTimestamp != nil {
		s.changes.add(DELETE, e)
	} else {
		s.changes.add(UPDATE, e)
	}
}

func (s *source) reconcile(e *entry, pod *v1.Pod) {
	e.status = &pod.Status
	s.changes.add(RECONCILE, e)
}

// remove deletes an entry and records it as removed.
func (s *source) remove(e *entry) {
	s.release(e)
	delete(s.byUID, e.pod.UID)
	s.changes.add(REMOVE, e)
}

// release removes the pointer and the name of an entry from the tables.
func (s *source) release(e *entry) {
	s.byPointer.remove(e.received)
	s.loosen(e.name)
}

func (s *source) loosen(name *fullName) {
	name.entries--
	s.loose = append(s.loose, name)
}

// fullName returns the pod's full name, and creates it if needed.
func (s *source) fullName(pod *v1.Pod) *fullName {
	s.key = append(s.key[:0], pod.Name...)
	s.key = append(s.key, '_')
	s.key = append(s.key, pod.Namespace...)
	if name, ok := s.names[string(s.key)]; ok {
		return name
	}
	name := &fullName{text: string(s.key)}
	s.names[name.text] = name
	return name
}

// forgetNames deletes the names without a pod.
func (s *source) forgetNames() {
	for i, name := range s.loose {
		if name.entries == 0 {
			delete(s.names, name.text)
		}
		s.loose[i] = nil
	}
	s.loose = s.loose[:0]
}
