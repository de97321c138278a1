package store

import "slices"

// snapshotIndex finds objects by the values of a function. It never changes when published.
type snapshotIndex struct {
	values   dictionary
	postings vector[posting] // of the values by number
}

// posting returns the numbers of the objects with a value.
func (x *snapshotIndex) posting(value string) posting {
	if v, found := x.values.find(hashOf(value), value); found {
		return x.postings.at(v)
	}
	return posting{}
}

// place says where an object stands in an index: at a position of a value's posting.
type place struct{ value, position uint32 }

// In place.value, none says that the object has no value, and several that its places are in
// indexDraft.several.
const (
	none    = 1<<32 - 1
	several = none - 1
)

// indexDraft is the writer's version of an index.
type indexDraft struct {
	snapshotIndex
	published *snapshotIndex
	changed   bool // from published

	// places are those of the objects by number. Only the writer uses them.
	places  []place
	several map[uint32][]place
	emptied []uint32 // values whose posting became empty since published
	wanted  []uint32 // scratch
	next    []place  // scratch
}

func newIndexDraft() *indexDraft {
	return &indexDraft{published: new(snapshotIndex), changed: true, several: map[uint32][]place{}}
}

// edit returns the posting of a value for a write, and its published version.
func (x *indexDraft) edit(value uint32) (p *posting, old posting) {
	x.changed = true
	if value < x.published.values.n {
		old = x.published.postings.at(value)
	}
	return x.postings.edit(x.published.postings, value), old
}

func (x *indexDraft) placesOf(object uint32) []place {
	switch x.places[object].value {
	case none:
		return nil
	case several:
		return x.several[object]
	}
	return x.places[object : object+1]
}

func (x *indexDraft) setPlaces(object uint32, places []place) {
	if x.places[object].value == several {
		delete(x.several, object)
	}
	switch len(places) {
	case 0:
		x.places[object].value = none
	case 1:
		x.places[object] = places[0]
	default:
		x.places[object].value = several
		x.several[object] = slices.Clone(places)
	}
}

// put gives an object its values. The number after the last one is a new object.
func (x *indexDraft) put(object uint32, values []string) {
	if object == uint32(len(x.places)) {
		x.places = append(x.places, place{value: none})
	}
	if at := x.places[object]; len(values) == 1 && at.value < several && x.values.names.at(at.value) == values[0] {
		return // the common case: nothing changes
	}
	x.wanted, x.next = x.wanted[:0], x.next[:0]
	for _, value := range values {
		if v := x.number(value); !slices.Contains(x.wanted, v) {
			x.wanted = append(x.wanted, v)
		}
	}
	has := func(v uint32) func(place) bool { return func(at place) bool { return at.value == v } }
	for _, at := range x.placesOf(object) {
		if slices.Contains(x.wanted, at.value) {
			x.next = append(x.next, at)
		} else {
			x.leave(at)
		}
	}
	for _, v := range x.wanted {
		if !slices.ContainsFunc(x.next, has(v)) {
			p, old := x.edit(v)
			x.next = append(x.next, place{v, p.n})
			p.set(&old, p.n, object)
		}
	}
	x.setPlaces(object, x.next)
}

// number returns the number of a value, which may be new.
func (x *indexDraft) number(value string) uint32 {
	hash := hashOf(value)
	if v, found := x.values.find(hash, value); found {
		return v
	}
	x.changed = true
	return x.values.add(&x.published.values, hash, value)
}

// leave removes an object from a posting. The last object of the posting takes its position.
func (x *indexDraft) leave(at place) {
	p, old := x.edit(at.value)
	if last := p.n - 1; at.position != last {
		object := p.at(last)
		p.set(&old, at.position, object)
		x.change(object, at.value, at)
	}
	p.pop(&old)
	if p.n == 0 {
		x.emptied = append(x.emptied, at.value)
	}
}

// change changes the place that an object has at a value.
func (x *indexDraft) change(object, value uint32, to place) {
	places := x.placesOf(object)
	for i := range places {
		if places[i].value == value {
			places[i] = to
			return
		}
	}
}

// remove removes an object. The last object takes its number.
func (x *indexDraft) remove(object uint32) {
	x.put(object, nil)
	if last := uint32(len(x.places) - 1); last != object {
		places := x.placesOf(last)
		for _, at := range places {
			p, old := x.edit(at.value)
			p.set(&old, at.position, object)
		}
		x.setPlaces(object, places)
		x.setPlaces(last, nil)
	}
	x.places = x.places[:len(x.places)-1]
}

// sweep removes the values without objects. The last value takes the number of a removed one: it has
// objects, because the removed numbers fall. sweep is the last edit of a version, because a posting
// that has moved is not where published has its nodes.
func (x *indexDraft) sweep() {
	slices.Sort(x.emptied)
	for _, v := range slices.Backward(slices.Compact(x.emptied)) {
		if p := x.postings.at(v); p.n > 0 {
			continue // it has objects again
		}
		x.values.remove(&x.published.values, v)
		if last := x.values.n; last != v {
			p, _ := x.edit(v)
			*p = x.postings.at(last)
			x.renumber(p, last, v)

		}
		x.postings.pop(x.published.postings, x.values.n)
	}
	x.emptied = x.emptied[:0]
}

func (x *indexDraft) renumber(p *posting, from, to uint32) {
	position := uint32(0)
	for objects := range p.chunks {
		for _, object := range objects {
			x.change(object, from, place{to, position})
			position++
		}
	}
}

// freeze returns the published version, which is this one from now.
func (x *indexDraft) freeze() *snapshotIndex {
	x.sweep()
	if x.changed {
		published := x.snapshotIndex
		x.published, x.changed = &published, false
	}
	return x.published
}
