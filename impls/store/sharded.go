package store

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// shardedVariant is shards by the hash of the key. Writers of a shard wait for each other, readers for
// nobody.
func shardedVariant() Variant {
	return ownVariant("sharded", "shards by key hash, each with a lock for writers and its part of each index; readers take no lock",
		impls.PerObject, func(o Options) Store { return newBase(o, newSharded(shards, newOpenTable), false) })
}

// shards is enough that a few writers seldom meet. It is small because a read of an index looks its
// value up in each shard.
const shards = 8

// sharded is an [engine] in shards by the hash of the key.
//
// Each shard has a lock that its writers hold, a table of entries by key, and its part of each index: a
// table of sets by value. An [entry] stands for a key in the table and in the sets. It points at the
// key's [version], which has the object and the sets that it belongs to. Writing an object with the same
// index values changes only that pointer.
//
// # What a read sees
//
// The pointer of the entry decides for all reads of the key: a read that finds the entry in a set shows
// the object only if the version belongs to the set. So a change of one object is atomic, with all its
// index values: there is one moment before which all reads see the old object and its values, and after
// which all see the new one and its values. Reads of one key are linearizable, and no read goes back.
//
// A list visits the shards in turn and the entries of a shard in turn, and loads the pointer of each
// once. The package's docs say what that means for callers. A Replace changes one shard after the
// other: it stores what is listed, and then removes the rest.
//
// # Complexity
//
// Get, and a write that keeps the index values, are O(1). Each value that an object gains or loses is
// O(1) amortised. ByIndex is O(shards + objects with the value), List is O(objects).
type sharded struct {
	shards []shard
	seed   maphash.Seed
	table  func(of *valueSet) table
}

type shard struct {
	mu      sync.Mutex // held for each write
	entries table
	// indices is replaced under mu. Readers load it once.
	indices atomic.Pointer[[]*index]

	// values and sets are scratch of a write.
	values [][]string
	sets   []*valueSet
	_      [64]byte // keeps mu off the cache line of the next shard
}

// index is the part of an index in a shard.
type index struct {
	name     string
	function cache.IndexFunc
	values   table // of entries whose key is a value, and whose version has the *valueSet as object
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

// valueSet is the entries of a shard that have a value of an index, and maybe others, whose version does
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

// table is a map of entries by key. Writers hold the lock of its shard; readers hold none.
type table interface {
	// find returns the entry of a key, or nil. The entry may have no version, or one that belongs
	// elsewhere.
	find(hash uint64, key string) *entry
	// join adds an entry, or takes the place of another one with its key. It is called before the
	// version of the entry belongs to the table, and leave after it does not any more.
	join(hash uint64, e *entry)
	leave(hash uint64, e *entry)
	// each calls yield for entries with a version that belongs to the table, until yield returns false.
	each(yield func(*entry, *version) bool)
	// size returns the number of entries that joined and did not leave.
	size() int
}

func newSharded(n int, newTable func(of *valueSet) table) *sharded {
	s := &sharded{shards: make([]shard, n), seed: maphash.MakeSeed(), table: newTable}
	for i := range s.shards {
		s.shards[i].entries = newTable(nil)
		s.shards[i].indices.Store(new([]*index))
	}
	return s
}

func (s *sharded) hash(key string) uint64 { return maphash.String(s.seed, key) }

// number returns the shard of a hash, by its low bits: tables use the high ones.
func (s *sharded) number(hash uint64) int { return int(hash % uint64(len(s.shards))) }

func (s *sharded) get(key string) (any, bool) {
	h := s.hash(key)
	if e := s.shards[s.number(h)].entries.find(h, key); e != nil {
		if v := e.version.Load(); v != nil {
			return v.obj, true
		}
	}
	return nil, false
}

func (s *sharded) list() []any                           { return objectsIn(s.entries()) }
func (s *sharded) listKeys() []string                    { return keysIn(s.entries()) }
func (s *sharded) byIndex(name, value string) []any      { return objectsIn(s.sets(name, value)) }
func (s *sharded) indexKeys(name, value string) []string { return keysIn(s.sets(name, value)) }

func (s *sharded) entries() []table {
	tables := make([]table, len(s.shards))
	for i := range s.shards {
		tables[i] = s.shards[i].entries
	}
	return tables
}

func objectsIn(tables []table) []any {
	list := make([]any, 0, size(tables))
	for _, t := range tables {
		t.each(func(_ *entry, v *version) bool { list = append(list, v.obj); return true })
	}
	return list
}

func keysIn(tables []table) []string {
	list := make([]string, 0, size(tables))
	for _, t := range tables {
		t.each(func(e *entry, _ *version) bool { list = append(list, e.key); return true })
	}
	return list
}

func size(tables []table) (n int) {
	for _, t := range tables {
		n += t.size()
	}
	return n
}

// index returns the part of an index, or nil while AddIndexers has not come to the shard.
func (s *shard) index(name string) *index {
	for _, x := range *s.indices.Load() {
		if x.name == name {
			return x
		}
	}
	return nil
}

// find returns the set of a value, or nil.
func (x *index) find(hash uint64, value string) *valueSet {
	if e := x.values.find(hash, value); e != nil {
		if v := e.version.Load(); v != nil {
			return v.obj.(*valueSet)
		}
	}
	return nil
}

// sets returns the sets of a value in all shards.
func (s *sharded) sets(name, value string) []table {
	hash, sets := s.hash(value), make([]table, 0, len(s.shards))
	for i := range s.shards {
		if set := s.shards[i].index(name).find(hash, value); set != nil {
			sets = append(sets, set.table)
		}
	}
	return sets
}

func (s *sharded) byValues(name string, values []string) []any {
	list, seen := []any{}, map[string]struct{}{}
	for _, value := range values {
		for _, set := range s.sets(name, value) {
			set.each(func(e *entry, v *version) bool {
				if _, ok := seen[e.key]; !ok {
					seen[e.key] = struct{}{}
					list = append(list, v.obj)
				}
				return true
			})
		}
	}
	return list
}

func (s *sharded) indexValues(name string) []string {
	found := map[string]struct{}{}
	for i := range s.shards {
		s.shards[i].index(name).values.each(func(e *entry, v *version) bool {
			v.obj.(*valueSet).each(func(*entry, *version) bool { found[e.key] = struct{}{}; return false })
			return true
		})
	}
	return slices.AppendSeq(make([]string, 0, len(found)), maps.Keys(found))
}

func (s *sharded) write(batch []write) {
	for i := range batch {
		hash := s.hash(batch[i].key)
		s.writeOne(&s.shards[s.number(hash)], hash, &batch[i])
	}
}

func (s *sharded) writeOne(sh *shard, hash uint64, w *write) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !w.remove {
		s.put(sh, hash, w)
	} else if e := sh.entries.find(hash, w.key); e != nil {
		w.old = e.object()
		s.remove(sh, hash, e)
	}
}

// put stores an object. Index functions may panic, and do so before anything has changed. The caller
// of put and of the methods below holds the lock of the shard.
func (s *sharded) put(sh *shard, hash uint64, w *write) *entry {
	indices := *sh.indices.Load()
	sh.values = sh.values[:0]
	for _, x := range indices {
		sh.values = append(sh.values, valuesOf(x.name, x.function, w.key, w.obj))
	}
	e := sh.entries.find(hash, w.key)
	if e == nil {
		e = &entry{key: w.key}
	}
	w.old = e.object()
	s.change(sh, hash, e, w.obj, s.membership(sh, e, nil, indices, sh.values))
	clear(sh.values)
	return e
}

// membership returns that of a version of e with some sets and those of the values in some indices. It
// is the present one if they are equal.
func (s *sharded) membership(
	sh *shard, e *entry, sets []*valueSet, indices []*index, values [][]string,
) *membership {
	old := &noSets
	if v := e.version.Load(); v != nil {
		old = v.sets
	}
	sh.sets = append(sh.sets[:0], sets...)
	defer func() { clear(sh.sets) }()
	for i, x := range indices {
		for _, value := range values[i] {
			var set *valueSet
			// Most versions have the values of the one before.
			if n := len(sh.sets); n < len(old.sets) && old.sets[n].index == x && old.sets[n].value.key == value {
				set = old.sets[n]
			} else {
				set = s.setOf(x, value)
			}
			if !slices.Contains(sh.sets, set) {
				sh.sets = append(sh.sets, set)
			}
		}
	}
	switch {
	case slices.Equal(sh.sets, old.sets):
		return old
	case len(sh.sets) == 1:
		set := sh.sets[0]
		if set.alone == nil {
			set.alone = &membership{[]*valueSet{set}}
		}
		return set.alone
	}
	return &membership{slices.Clone(sh.sets)}
}

var noSets membership

// setOf returns the set of a value, and adds it if there is none.
func (s *sharded) setOf(x *index, value string) *valueSet {
	hash := s.hash(value)
	if set := x.find(hash, value); set != nil {
		return set
	}
	e := x.values.find(hash, value)
	if e == nil {
		e = &entry{key: value}
	}
	set := &valueSet{index: x, value: e}
	set.table = s.table(set)
	x.values.join(hash, e)
	e.version.Store(&version{obj: set})
	return set
}

// change gives an entry its next version.
func (s *sharded) change(sh *shard, hash uint64, e *entry, obj any, next *membership) {
	old := &noSets
	if v := e.version.Load(); v != nil {
		old = v.sets
	} else {
		sh.entries.join(hash, e)
	}
	if next != old {
		for _, set := range next.sets {
			if !slices.Contains(old.sets, set) {
				set.join(hash, e)
			}
		}
	}
	e.version.Store(&version{obj, next})
	s.leave(hash, e, old, next)
}

// remove removes an entry that may have no version.
func (s *sharded) remove(sh *shard, hash uint64, e *entry) {
	if v := e.version.Load(); v != nil {
		e.version.Store(nil)
		sh.entries.leave(hash, e)
		s.leave(hash, e, v.sets, &noSets)
	}
}

// leave removes an entry from the old sets that it is not in any more, and empty sets from their index.
func (s *sharded) leave(hash uint64, e *entry, old, next *membership) {
	if old == next {
		return
	}
	for _, set := range old.sets {
		if slices.Contains(next.sets, set) {
			continue
		}
		if set.leave(hash, e); set.size() == 0 {
			set.value.version.Store(nil)
			set.index.values.leave(s.hash(set.value.key), set.value)
		}
	}
}

// replace goes through the shards in turn: it stores the listed objects, and then removes the others.
func (s *sharded) replace(batch []write) {
	parts := make([][]*write, len(s.shards))
	for i := range batch {
		n := s.number(s.hash(batch[i].key))
		parts[n] = append(parts[n], &batch[i])
	}
	for i := range s.shards {
		s.replaceShard(&s.shards[i], parts[i])
	}
}

func (s *sharded) replaceShard(sh *shard, part []*write) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	listed := make(map[*entry]struct{}, len(part))
	for _, w := range part {
		listed[s.put(sh, s.hash(w.key), w)] = struct{}{}
	}
	var gone []*entry
	sh.entries.each(func(e *entry, _ *version) bool {
		if _, ok := listed[e]; !ok {
			gone = append(gone, e)
		}
		return true
	})
	for _, e := range gone {
		s.remove(sh, s.hash(e.key), e)
	}
}

// addIndexers makes writers wait, and calls the functions for all objects before it changes anything.
func (s *sharded) addIndexers(more cache.Indexers) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		defer s.shards[i].mu.Unlock()
	}
	var added []index // without tables
	for name, f := range more {
		added = append(added, index{name: name, function: f})
	}
	entries := make([][]*entry, len(s.shards))
	var values [][]string // of all entries, each with those of all functions
	for i := range s.shards {
		s.shards[i].entries.each(func(e *entry, v *version) bool {
			entries[i] = append(entries[i], e)
			for _, x := range added {
				values = append(values, valuesOf(x.name, x.function, e.key, v.obj))
			}
			return true
		})
	}
	for i := range s.shards {
		sh := &s.shards[i]
		indices := make([]*index, len(added))
		for j, x := range added {
			x.values = s.table(nil)
			indices[j] = &x
		}
		for _, e := range entries[i] {
			v := e.version.Load()
			s.change(sh, s.hash(e.key), e, v.obj, s.membership(sh, e, v.sets.sets, indices, values[:len(indices)]))
			values = values[len(indices):]
		}
		indices = slices.Concat(*sh.indices.Load(), indices)
		sh.indices.Store(&indices)
	}
}
