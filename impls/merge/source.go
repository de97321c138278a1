package merge

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/impls"
)

// source holds the pods of one source and finds out what an update changes. It
// has no lock of its own.
//
// # Unchanged pods
//
// A pod that is received by the pointer it was received by last is unchanged,
// because whoever sends it must not change it afterwards. Such a pod costs a
// look into byPointer and two marks. A pod that has another pointer and the
// resourceVersion received last is unchanged if it comes from the API server;
// it costs a look into byUID as well. Only then pods are compared, where
// generations are trusted without their specs if these are of one generation.
//
// # Marks
//
// Every update has a generation; marks are generations, so that none has to be
// cleared:
//
//   - a name's mark says that the current update has had a pod of that name,
//     so that another is a duplicate;
//   - an entry's mark says that the current SET has it. A SET that marked as
//     many entries as there are removed none, and none is looked for.
//
// # Held pods
//
// A pod is never written to once it is held: a change makes a shallow copy with
// the changed parts in it. So the sender can copy deeply without a lock, and
// receivers can share what is held. A changed status takes no copy at all where
// they don't.
type source struct {
	name string
	// versioned is true where pods of one UID and one resourceVersion are
	// equal.
	versioned bool
	// counted is true where pods of one UID, node and metadata.generation have
	// equal specs.
	counted bool
	// shares is true where held pods are handed over as they are.
	shares bool
	// set is true after the first SET.
	set bool
	// generation of the current update.
	generation uint64
	byUID      map[types.UID]*entry
	byPointer  pointers
	names      map[string]*fullName
	// loose are names that lost a pod in the current update; those that have
	// none left at its end are forgotten, not earlier: their marks count.
	loose []*fullName
	// key is where a full name is put together to look it up.
	key []byte
	// delta is what the current update changed. It is reused.
	delta delta
	// verdicts on the pods of the current update, by their place in it, if it
	// was judged.
	verdicts []verdict
}

// states are the states of all sources, in order of appearance. There are three
// sources, so that a loop is the fastest map.
type states struct {
	terms
	all []*source
}

// terms are what the options say of a state.
type terms struct {
	// shares is true where held pods are handed over as they are.
	shares bool
	// trust is what is taken on the API server's word.
	trust Trust
}

func (o Options) terms() terms {
	return terms{shares: o.HandOver == impls.Shared, trust: o.Trust}
}

// of returns the state of a source, which it makes if there is none.
func (t *states) of(name string) *source {
	for _, s := range t.all {
		if s.name == name {
			return s
		}
	}
	s := newSource(name, t.terms)
	t.all = append(t.all, s)
	return s
}

// entry is a held pod.
type entry struct {
	held
	// version is the memory of pod; nil where held pods aren't handed over.
	version *version
	// received is the pointer received last. That it is kept makes sure that
	// no other pod gets its address.
	received *v1.Pod
	// specGeneration is the metadata.generation received last; 0 for none.
	specGeneration int64
	// name of the pod received last.
	name *fullName
	// mark is the generation of the last SET that had the pod.
	mark uint64
	// born is the generation of the update that brought the pod.
	born uint64
}

// fullName is a pod's name_namespace.
type fullName struct {
	// mark is the generation of the last update that had a pod of this name.
	mark uint64
	// entries that have this name.
	entries int
	text    string
}

// delta is what an update changed, by what has to be told.
type delta struct {
	removes, adds, updates, deletes, reconciles []*entry

	// firstSet is true for a source's first SET.
	firstSet bool
}

func (d *delta) empty() bool {
	return !d.firstSet && len(d.removes) == 0 && len(d.adds) == 0 &&
		len(d.updates) == 0 && len(d.deletes) == 0 && len(d.reconciles) == 0
}

// reset empties the delta and keeps its arrays.
func (d *delta) reset() {
	d.firstSet = false
	for _, list := range []*[]*entry{&d.removes, &d.adds, &d.updates, &d.deletes, &d.reconciles} {
		clear(*list)
		*list = (*list)[:0]
	}
}

func newSource(name string, t terms) *source {
	return &source{
		name:      name,
		versioned: name == APISource,
		counted:   name == APISource && t.trust == TrustGenerations,
		shares:    t.shares,
		byUID:     make(map[types.UID]*entry),
		names:     make(map[string]*fullName),
	}
}

// apply takes an update that passed Check into the state, leaves in s.delta
// what it changed and returns the pods that it dropped as duplicates.
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
		s.delta.firstSet = !s.set
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

// upsert inserts or updates pods. It returns how many entries it marked, and
// what it dropped. If whole is true, the pods are all that the source has, and
// a pod is new if it wasn't there before the update, as in kubelet, where a
// SET fills a new map.
func (s *source) upsert(pods []*v1.Pod, whole bool) (kept int, duplicates []*v1.Pod) {
	generation := s.generation
	for i, pod := range pods {
		e := s.byPointer.get(pod)
		if e != nil {
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
		if e = s.byUID[pod.UID]; e != nil && sameName(e.received, pod) {
			// The usual change: no name has to be looked up.
			if e.name.mark == generation {
				duplicates = append(duplicates, pod)
				continue
			}
			e.name.mark = generation
			if s.sameVersion(e.received, pod) {
				s.move(e, pod)
			} else {
				s.receive(e, pod, e.name, i)
			}
		} else {
			name := s.fullName(pod)
			if name.mark == generation {
				duplicates = append(duplicates, pod)
				continue
			}
			name.mark = generation
			switch {
			case e == nil:
				e = s.add(pod, name)
				// Marked below.
			case whole && e.born == generation:
				// A second pod of the same UID takes the place of the first,
				// which has been told as added nevertheless.
				s.release(e)
				e = s.add(pod, name)
				e.mark = generation
			default:
				s.receive(e, pod, name, i)
			}
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

// sameVersion reports whether two pods of one UID and name are known to be
// equal without a look at more of them.
func (s *source) sameVersion(a, b *v1.Pod) bool {
	return s.versioned && a.ResourceVersion != "" && a.ResourceVersion == b.ResourceVersion
}

// add holds a new pod.
func (s *source) add(pod *v1.Pod, name *fullName) *entry {
	e := &entry{received: pod, specGeneration: pod.Generation, name: name, born: s.generation}
	first := s.hold(e, pod)
	first.Annotations = firstAnnotations(s.name, pod.Annotations)
	e.status = s.statusOf(first, pod)
	name.entries++
	s.byUID[pod.UID] = e
	s.byPointer.put(pod, e)
	s.delta.adds = append(s.delta.adds, e)
	return e
}

// hold puts a shallow copy of a pod into an entry and returns it, to be written
// to before anybody sees it.
func (s *source) hold(e *entry, pod *v1.Pod) *v1.Pod {
	if s.shares {
		e.version = &version{pod: *pod}
		e.pod = &e.version.pod
	} else {
		e.pod = new(v1.Pod)
		*e.pod = *pod
	}
	return e.pod
}

// statusOf returns where the status of a held pod lies that received has
// brought.
func (s *source) statusOf(held, received *v1.Pod) *v1.PodStatus {
	if s.shares {
		return &held.Status
	}
	return &received.Status
}

// move notes that a pod has come by another pointer.
func (s *source) move(e *entry, pod *v1.Pod) {
	s.byPointer.remove(e.received)
	e.received = pod
	s.byPointer.put(pod, e)
}

// receive takes a pod that was received by a new pointer into its entry. It is
// number i of the update.
func (s *source) receive(e *entry, pod *v1.Pod, name *fullName, i int) {
	s.move(e, pod)
	if e.name != name {
		s.loosen(e.name)
		e.name = name
		name.entries++
	}
	v := s.verdict(e, pod, i)
	e.specGeneration = pod.Generation
	switch {
	case !v.same:
		s.change(e, pod)
	case !v.sameStatus:
		s.reconcile(e, pod)
	}
}

// change takes over what makes a pod differ.
func (s *source) change(e *entry, pod *v1.Pod) {
	before := e.pod
	changed := s.hold(e, before)
	changed.Spec = pod.Spec
	changed.Labels = pod.Labels
	changed.DeletionTimestamp = pod.DeletionTimestamp
	changed.DeletionGracePeriodSeconds = pod.DeletionGracePeriodSeconds
	changed.Annotations = mergeAnnotations(before.Annotations, pod.Annotations)
	changed.Status = pod.Status
	e.status = s.statusOf(changed, pod)
	e.body = nil
	if pod.DeletionTimestamp != nil {
		s.delta.deletes = append(s.delta.deletes, e)
	} else {
		s.delta.updates = append(s.delta.updates, e)
	}
}

// reconcile takes over a status.
func (s *source) reconcile(e *entry, pod *v1.Pod) {
	if s.shares {
		s.hold(e, e.pod).Status = pod.Status
		e.status = &e.pod.Status
	} else {
		e.status = &pod.Status
		if e.body == nil {
			e.body = &body{}
		}
	}
	s.delta.reconciles = append(s.delta.reconciles, e)
}

// remove lets go of a pod and tells.
func (s *source) remove(e *entry) {
	s.release(e)
	delete(s.byUID, e.pod.UID)
	s.delta.removes = append(s.delta.removes, e)
}

// release takes the pointer and the name of an entry away.
func (s *source) release(e *entry) {
	s.byPointer.remove(e.received)
	s.loosen(e.name)
}

func (s *source) loosen(name *fullName) {
	name.entries--
	s.loose = append(s.loose, name)
}

// fullName returns the pod's full name, which it makes if there is none.
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

// forgetNames forgets the names that have no pod any more.
func (s *source) forgetNames() {
	for i, name := range s.loose {
		if name.entries == 0 {
			delete(s.names, name.text)
		}
		s.loose[i] = nil
	}
	s.loose = s.loose[:0]
}
