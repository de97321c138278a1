package store

import "sync/atomic"

// openTable is a [table] with open addressing that is read without a lock.
//
// A key keeps its slot until the slots are replaced, also while its entry does not belong to the table.
// So a reader of the slots meets a key at most once. Entries that do not belong are dropped when the
// slots are replaced: when they are full, and when more than half of the entries have left.
type openTable struct {
	of      *valueSet
	slots   atomic.Pointer[slots] // nil while the table is new
	used    int32                 // slots with an entry; the writer's
	members atomic.Int32
}

// slots are tags and entries at the same places. A tag is half of a hash and never 0, which marks the
// end of a search: one slot at least is empty. The entry of a slot is stored before its tag, so who has
// loaded a tag finds an entry.
type slots struct {
	tags    []atomic.Uint32
	entries []atomic.Pointer[entry]
}

func newOpenTable(of *valueSet) table { return &openTable{of: of} }

func newSlots(n int) *slots {
	return &slots{make([]atomic.Uint32, n), make([]atomic.Pointer[entry], n)}
}

func tagOf(hash uint64) uint32 { return uint32(hash>>32) | 1 }

// search returns the slot of a key, or the empty one at the end of the search.
func (s *slots) search(tag uint32, key string) (at int, e *entry) {
	at = int(uint64(tag) * uint64(len(s.tags)) >> 32)
	for {
		switch s.tags[at].Load() {
		case 0:
			return at, nil
		case tag:
			if e = s.entries[at].Load(); e.key == key {
				return at, e
			}
		}
		if at++; at == len(s.tags) {
			at = 0
		}
	}
}

func (t *openTable) find(hash uint64, key string) *entry {
	s := t.slots.Load()
	if s == nil {
		return nil
	}
	_, e := s.search(tagOf(hash), key)
	return e
}

func (t *openTable) join(hash uint64, e *entry) {
	members, tag := t.members.Add(1), tagOf(hash)
	s := t.slots.Load()
	if s == nil {
		s = t.replace(members)
	}
	at, have := s.search(tag, e.key)
	if have != nil {
		s.entries[at].Store(e)
		return
	}
	if int(t.used+1)*8 > len(s.tags)*7 {
		s = t.replace(members)
		at, _ = s.search(tag, e.key)
	}
	t.used++
	s.entries[at].Store(e)
	s.tags[at].Store(tag)
}

func (t *openTable) leave(uint64, *entry) {
	if members := t.members.Add(-1); t.used > 8 && members < t.used/2 {
		t.replace(members)
	}
}

// replace makes slots for a number of members, of which those that belong now get one.
func (t *openTable) replace(members int32) *slots {
	next := newSlots(int(members) + int(members)/2 + 1)
	t.used = 0
	if old := t.slots.Load(); old != nil {
		for i := range old.entries {
			if e := old.entries[i].Load(); e != nil && t.of.has(e.version.Load()) {
				tag := old.tags[i].Load()
				at, _ := next.search(tag, e.key)
				next.entries[at].Store(e)
				next.tags[at].Store(tag)
				t.used++
			}
		}
	}
	t.slots.Store(next)
	return next
}

// each goes through the slots in blocks, and first loads what a block points to: the cache misses of
// different entries then overlap.
func (t *openTable) each(yield func(*entry, *version) bool) {
	s := t.slots.Load()
	if s == nil {
		return
	}
	var found [32]*entry
	var versions [len(found)]*version
	for at := 0; at < len(s.entries); {
		n := 0
		for ; n < len(found) && at < len(s.entries); at++ {
			if e := s.entries[at].Load(); e != nil {
				found[n] = e
				n++
			}
		}
		for i, e := range found[:n] {
			versions[i] = e.version.Load()
		}
		for i, v := range versions[:n] {
			if t.of.has(v) && !yield(found[i], v) {
				return
			}
		}
	}
}

func (t *openTable) size() int { return int(t.members.Load()) }
