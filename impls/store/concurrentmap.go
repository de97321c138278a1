package store

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v4"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// concurrentMapVariant is the concurrent map of a library for objects and for the objects of each value.
// Writers wait for each other, readers for nobody.
func concurrentMapVariant() Variant {
	return ownVariant("concurrent-map", "xsync's concurrent maps of objects, and of the objects of each index value; one writer at a time",
		impls.PerObject, func(o Options) Store { return newBase(o, newConcurrentMap(), false) })
}

// concurrentMap is an [engine] whose writers hold a lock and whose readers hold none.
//
// It has a table of entries by key and, for each index, a table of sets by value. An [entry] stands for
// a key in the table and in the sets. It points at the key's [version], which has the object and the
// sets that it belongs to. Writing an object with the same index values changes only that pointer.
//
// # What a read sees
//
// The pointer of the entry decides for all reads of the key: a read that finds the entry in a set shows
// the object only if the version belongs to the set. So a change of one object is atomic, with all its
// index values: there is one moment before which all reads see the old object and its values, and after
// which all see the new one and its values. Reads of one key are linearizable, and no read goes back.
//
// A list visits the entries in turn, and loads the pointer of each once. The package's docs say what
// that means for callers. A Replace stores what is listed, and then removes the rest.
//
// # Complexity
//
// Get, and a write that keeps the index values, are O(1). Each value that an object gains or loses is
// O(1) amortised. ByIndex is O(objects with the value), List is O(objects).
type concurrentMap struct {
	mu      sync.Mutex // held for each write
	entries table
	// indices is replaced under mu. Readers load it once.
	indices atomic.Pointer[[]*index]

	// values and sets are scratch of a write.
	values [][]string
	sets   []*valueSet
}

// index is a table of entries whose key is a value, and whose version has the *valueSet as object.
type index struct {
	name     string
	function cache.IndexFunc
	values   table
}

// entry stands for a key as long as a table or a set has it. Two entries may have the same key, if all
// but one have no version any more.
type entry struct {
	key string
	// version is nil before the first write and after a removal. Its store is the moment at which a write
	// happens for readers. The entry joins the table and all sets of the new version before it, and leaves
	// the sets of the old version after it.
	version atomic.Pointer[version]
}

// object returns the stored object, or nil.
func (e *entry) object() any {
	if v := e.version.Load(); v != nil {
		return v.obj
	}
	return nil
}

// version is immutable.
type version struct {
	obj  any
	sets *membership // nil in the table of an index
}

// membership is the sets that an object belongs to, in the order of indices and values. It is shared by
// the versions of a key that have the same values.
type membership struct{ sets []*valueSet }

// valueSet is the entries that have a value of an index, and maybe others, whose version does
// not belong to it.
type valueSet struct {
	table
	index *index
	value *entry      // of the set in the index, while the set has members
	alone *membership // of objects that belong to no other set; the writer's, nil until one does
}

// has reports whether a version belongs to the set. Every version that is not nil belongs to nil.
func (s *valueSet) has(v *version) bool {
	return v != nil && (s == nil || slices.Contains(v.sets.sets, s))
}

// table is a map of xsync of entries by key. Writers hold the engine's lock, readers hold none. Searches
// take no lock. A list locks one bucket at a time
// while it copies the few entries there, which only a write that adds or removes an entry waits for; a
// list without these locks (RangeRelaxed) may show a key twice. Range may go on in buckets that a resize
// has left: their entries are still those of the keys. The smallest map takes 2.5 KiB, so an index with
// few objects per value is expensive.
type table struct {
	of      *valueSet
	entries *xsync.Map[string, *entry]
}

func newTable(of *valueSet) table { return table{of, xsync.NewMap[string, *entry]()} }

// find returns the entry of a key, or nil. The entry may have no version, or one that belongs elsewhere.
func (t table) find(key string) *entry {
	e, _ := t.entries.Load(key)
	return e
}

// join adds an entry, or takes the place of another one with its key. It is called before the version of
// the entry belongs to the table, and leave after it does not any more.
func (t table) join(e *entry)  { t.entries.Store(e.key, e) }
func (t table) leave(e *entry) { t.entries.Delete(e.key) }

// each calls yield for entries with a version that belongs to the table, until yield returns false.
func (t table) each(yield func(*entry, *version) bool) {
	t.entries.Range(func(_ string, e *entry) bool {
		v := e.version.Load()
		return !t.of.has(v) || yield(e, v)
	})
}

// size returns the number of entries that joined and did not leave.
func (t table) size() int { return t.entries.Size() }

func newConcurrentMap() *concurrentMap {
	s := &concurrentMap{entries: newTable(nil)}
	s.indices.Store(new([]*index))
	return s
}

func (s *concurrentMap) get(key string) (any, bool) {
	if e := s.entries.find(key); e != nil {
		if v := e.version.Load(); v != nil {
			return v.obj, true
		}
	}
	return nil, false
}

func (s *concurrentMap) list() []any        { return objectsIn(s.entries) }
func (s *concurrentMap) listKeys() []string { return keysIn(s.entries) }

func (s *concurrentMap) byIndex(name, value string) []any {
	if set := s.index(name).find(value); set != nil {
		return objectsIn(set.table)
	}
	return []any{}
}

func (s *concurrentMap) indexKeys(name, value string) []string {
	if set := s.index(name).find(value); set != nil {
		return keysIn(set.table)
	}
	return []string{}
}

func objectsIn(t table) []any {
	list := make([]any, 0, t.size())
	t.each(func(_ *entry, v *version) bool { list = append(list, v.obj); return true })
	return list
}

func keysIn(t table) []string {
	list := make([]string, 0, t.size())
	t.each(func(e *entry, _ *version) bool { list = append(list, e.key); return true })
	return list
}

func (s *concurrentMap) index(name string) *index {
	indices := *s.indices.Load()
	return indices[slices.IndexFunc(indices, func(x *index) bool { return x.name == name })]
}

// find returns the set of a value, or nil.
func (x *index) find(value string) *valueSet {
	if e := x.values.find(value); e != nil {
		if v := e.version.Load(); v != nil {
			return v.obj.(*valueSet)
		}
	}
	return nil
}

func (s *concurrentMap) byValues(name string, values []string) []any {
	list, seen, x := []any{}, map[string]struct{}{}, s.index(name)
	for _, value := range values {
		set := x.find(value)
		if set == nil {
			continue
		}
		set.each(func(e *entry, v *version) bool {
			if _, ok := seen[e.key]; !ok {
				seen[e.key] = struct{}{}
				list = append(list, v.obj)
			}
			return true
		})
	}
	return list
}

func (s *concurrentMap) indexValues(name string) []string {
	list := []string{}
	s.index(name).values.each(func(e *entry, v *version) bool {
		v.obj.(*valueSet).each(func(*entry, *version) bool { list = append(list, e.key); return false })
		return true
	})
	return list
}

func (s *concurrentMap) write(batch []write) {
	for i := range batch {
		s.writeOne(&batch[i])
	}
}

func (s *concurrentMap) writeOne(w *write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.remove {
		s.put(w)
	} else if e := s.entries.find(w.key); e != nil {
		w.old = e.object()
		s.remove(e)
	}
}

// put stores an object. Index functions may panic, and do so before anything has changed. The caller
// of put and of the methods below holds the lock.
func (s *concurrentMap) put(w *write) *entry {
	indices := *s.indices.Load()
	s.values = s.values[:0]
	for _, x := range indices {
		s.values = append(s.values, valuesOf(x.name, x.function, w.key, w.obj))
	}
	e := s.entries.find(w.key)
	if e == nil {
		e = &entry{key: w.key}
	}
	w.old = e.object()
	s.change(e, w.obj, s.membership(e, nil, indices, s.values))
	clear(s.values)
	return e
}

// membership returns that of a version of e with some sets and those of the values in some indices. It
// is the present one if they are equal.
func (s *concurrentMap) membership(e *entry, sets []*valueSet, indices []*index, values [][]string) *membership {
	old := &noSets
	if v := e.version.Load(); v != nil {
		old = v.sets
	}
	s.sets = append(s.sets[:0], sets...)
	defer func() { clear(s.sets) }()
	for i, x := range indices {
		for _, value := range values[i] {
			var set *valueSet
			// Most versions have the values of the one before.
			if n := len(s.sets); n < len(old.sets) && old.sets[n].index == x && old.sets[n].value.key == value {
				set = old.sets[n]
			} else {
				set = s.setOf(x, value)
			}
			if !slices.Contains(s.sets, set) {
				s.sets = append(s.sets, set)
			}
		}
	}
	switch {
	case slices.Equal(s.sets, old.sets):
		return old
	case len(s.sets) == 1:
		set := s.sets[0]
		if set.alone == nil {
			set.alone = &membership{[]*valueSet{set}}
		}
		return set.alone
	}
	return &membership{slices.Clone(s.sets)}
}

var noSets membership

// setOf returns the set of a value, and adds it if there is none.
func (s *concurrentMap) setOf(x *index, value string) *valueSet {
	if set := x.find(value); set != nil {
		return set
	}
	e := x.values.find(value)
	if e == nil {
		e = &entry{key: value}
	}
	set := &valueSet{index: x, value: e}
	set.table = newTable(set)
	x.values.join(e)
	e.version.Store(&version{obj: set})
	return set
}

// change gives an entry its next version.
func (s *concurrentMap) change(e *entry, obj any, next *membership) {
	old := &noSets
	if v := e.version.Load(); v != nil {
		old = v.sets
	} else {
		s.entries.join(e)
	}
	if next != old {
		for _, set := range next.sets {
			if !slices.Contains(old.sets, set) {
				set.join(e)
			}
		}
	}
	e.version.Store(&version{obj, next})
	s.leave(e, old, next)
}

// remove removes an entry that may have no version.
func (s *concurrentMap) remove(e *entry) {
	if v := e.version.Load(); v != nil {
		e.version.Store(nil)
		s.entries.leave(e)
		s.leave(e, v.sets, &noSets)
	}
}

// leave removes an entry from the old sets that it is not in any more, and empty sets from their index.
func (s *concurrentMap) leave(e *entry, old, next *membership) {
	if old == next {
		return
	}
	for _, set := range old.sets {
		if slices.Contains(next.sets, set) {
			continue
		}
		if set.leave(e); set.size() == 0 {
			set.value.version.Store(nil)
			set.index.values.leave(set.value)
		}
	}
}

// replace stores the listed objects, and then removes the others.
func (s *concurrentMap) replace(batch []write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := make(map[*entry]struct{}, len(batch))
	for i := range batch {
		listed[s.put(&batch[i])] = struct{}{}
	}
	var gone []*entry
	s.entries.each(func(e *entry, _ *version) bool {
		if _, ok := listed[e]; !ok {
			gone = append(gone, e)
		}
		return true
	})
	for _, e := range gone {
		s.remove(e)
	}
}

// addIndexers makes writers wait, and calls the functions for all objects before it changes anything.
func (s *concurrentMap) addIndexers(more cache.Indexers) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var added []*index
	for name, f := range more {
		added = append(added, &index{name: name, function: f, values: newTable(nil)})
	}
	var entries []*entry
	var values [][]string // of all entries, each with those of all functions
	s.entries.each(func(e *entry, v *version) bool {
		entries = append(entries, e)
		for _, x := range added {
			values = append(values, valuesOf(x.name, x.function, e.key, v.obj))
		}
		return true
	})
	for _, e := range entries {
		v := e.version.Load()
		s.change(e, v.obj, s.membership(e, v.sets.sets, added, values[:len(added)]))
		values = values[len(added):]
	}
	indices := slices.Concat(*s.indices.Load(), added)
	s.indices.Store(&indices)
}
