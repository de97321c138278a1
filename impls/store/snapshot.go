package store

import (
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

func snapshotVariant() Variant {
	return Variant{
		Name:       "snapshot",
		Summary:    "immutable versions that share memory, published once a batch: reads take no lock",
		Guarantees: guarantees(true),
		New:        func(o Options) (Store, error) { return newBase(o.complete(), newSnapshots()), nil },
	}
}

// snapshots is an [engine] that publishes an immutable version of its contents after each batch. A read
// loads the version once and then uses only that, so it takes no lock, and all that it returns is of
// one point in time. The writer edits a draft, which shares the memory of the published version but
// for the nodes that the batch changes (see [vector]).
//
// Objects have numbers from 0 to n-1, without gaps. What is found by key or by value is a number.
//
// Rejected: postings that hold the objects. A list would be a copy, but each update would copy a chunk
// in each index, and an index would take four times the memory.
type snapshots struct {
	// published is stored after the last write to what it points to, and read before the first read
	// of it. That is the only order that readers need.
	published atomic.Pointer[snapshot]
	draft     draft      // the writer's
	values    [][]string // the writer's scratch
}

// snapshot is an immutable state of the contents.
type snapshot struct {
	keys    dictionary
	objects vector[any] // by number
	// indices stand in the order of names, which changes with AddIndexers alone.
	names   []string
	indices []*snapshotIndex
}

// draft is the version that the next batch publishes.
type draft struct {
	keys    dictionary
	objects vector[any]
	indices []*indexDraft
	names   []string
	funcs   []cache.IndexFunc
}

func newSnapshots() *snapshots {
	s := new(snapshots)
	s.published.Store(new(snapshot))
	return s
}

func (s *snapshots) get(key string) (any, bool) {
	v := s.published.Load()
	if number, found := v.keys.find(hashOf(key), key); found {
		return v.objects.at(number), true
	}
	return nil, false
}

func (s *snapshots) list() []any {
	v := s.published.Load()
	list := make([]any, 0, v.keys.n)
	for objects := range v.objects.chunks(v.keys.n) {
		list = append(list, objects...)
	}
	return list
}

func (s *snapshots) listKeys() []string {
	v := s.published.Load()
	list := make([]string, 0, v.keys.n)
	for keys := range v.keys.names.chunks(v.keys.n) {
		list = append(list, keys...)
	}
	return list
}

// index returns an index that AddIndexers has published.
func (v *snapshot) index(name string) *snapshotIndex { return v.indices[slices.Index(v.names, name)] }

func (s *snapshots) byIndex(name, value string) []any {
	v := s.published.Load()
	p := v.index(name).posting(value)
	list := make([]any, 0, p.n)
	for numbers := range p.chunks {
		at := len(list)
		list = list[:at+len(numbers)]
		for i, number := range numbers {
			list[at+i] = v.objects.at(number)
		}
	}
	return list
}

func (s *snapshots) byValues(name string, values []string) []any {
	v := s.published.Load()
	x := v.index(name)
	list, seen := []any{}, map[uint32]bool{}
	for _, value := range values {
		p := x.posting(value)
		for numbers := range p.chunks {
			for _, number := range numbers {
				if !seen[number] {
					seen[number] = true
					list = append(list, v.objects.at(number))
				}
			}
		}
	}
	return list
}

func (s *snapshots) indexKeys(name, value string) []string {
	v := s.published.Load()
	p := v.index(name).posting(value)
	list := make([]string, 0, p.n)
	for numbers := range p.chunks {
		for _, number := range numbers {
			list = append(list, v.keys.names.at(number))
		}
	}
	return list
}

func (s *snapshots) indexValues(name string) []string {
	x := s.published.Load().index(name)
	list := make([]string, 0, x.values.n)
	for values := range x.values.names.chunks(x.values.n) {
		list = append(list, values...)
	}
	return list
}

// write calls the index functions first. So a panic of one changes nothing.
func (s *snapshots) write(batch []write) {
	d, old := &s.draft, s.published.Load()
	s.values = slices.Grow(s.values[:0], len(batch)*len(d.indices))
	defer func() { clear(s.values) }()
	for i := range batch {
		s.values = d.valuesOf(s.values, &batch[i])
	}
	for i := range batch {
		d.write(old, &batch[i], s.values[i*len(d.indices):])
	}
	s.published.Store(d.freeze())
}

// replace makes a new draft, which shares nothing with the published version.
func (s *snapshots) replace(batch []write) {
	d, old := draft{names: s.draft.names, funcs: s.draft.funcs}, new(snapshot)
	for range d.names {
		d.indices = append(d.indices, newIndexDraft())
	}
	d.keys.resize(&old.keys, uint32(len(batch)+len(batch)/3))
	var values [][]string
	for i := range batch {
		values = d.valuesOf(values[:0], &batch[i])
		d.write(old, &batch[i], values)
	}
	s.published.Store(d.freeze())
	s.draft = d
}

func (s *snapshots) addIndexers(more cache.Indexers) {
	d, v := s.draft, s.published.Load()
	d.names, d.funcs, d.indices = slices.Clone(d.names), slices.Clone(d.funcs), slices.Clone(d.indices)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		f, x := more[name], newIndexDraft()
		for number := range v.keys.n {
			x.put(number, valuesOf(name, f, v.keys.names.at(number), v.objects.at(number)))
		}
		d.names, d.funcs, d.indices = append(d.names, name), append(d.funcs, f), append(d.indices, x)
	}
	s.published.Store(d.freeze())
	s.draft = d
}

// valuesOf appends the values of a written object in each index.
func (d *draft) valuesOf(values [][]string, w *write) [][]string {
	for i, f := range d.funcs {
		if w.remove {
			values = append(values, nil)
		} else {
			values = append(values, valuesOf(d.names[i], f, w.key, w.obj))
		}
	}
	return values
}

// write stores or removes an object with its values in each index. old is the published version.
func (d *draft) write(old *snapshot, w *write, values [][]string) {
	hash := hashOf(w.key)
	number, found := d.keys.find(hash, w.key)
	if found {
		w.old = d.objects.at(number)
	}
	switch {
	case w.remove && found:
		d.remove(old, number)
	case !w.remove:
		if !found {
			number = d.keys.add(&old.keys, hash, w.key)
		}
		*d.objects.edit(old.objects, number) = w.obj
		for i, x := range d.indices {
			x.put(number, values[i])
		}
	}
}

// remove removes an object. The last object takes its number.
func (d *draft) remove(old *snapshot, number uint32) {
	for _, x := range d.indices {
		x.remove(number)
	}
	d.keys.remove(&old.keys, number)
	if last := d.keys.n; last != number {
		*d.objects.edit(old.objects, number) = d.objects.at(last)
	}
	d.objects.pop(old.objects, d.keys.n)
}

// freeze returns the draft as a version. Later writes copy what they change of it.
func (d *draft) freeze() *snapshot {
	v := &snapshot{keys: d.keys, objects: d.objects, names: d.names, indices: make([]*snapshotIndex, len(d.indices))}
	for i, x := range d.indices {
		v.indices[i] = x.freeze()
	}
	return v
}
