package store

import (
	"github.com/puzpuzpuz/xsync/v4"

	"watchlab/impls"
)

// concurrentMapVariant is the concurrent map of a library for objects and for the objects of each value.
func concurrentMapVariant() Variant {
	return ownVariant("concurrent-map", "xsync's concurrent maps of objects, and of the objects of each index value; one writer at a time",
		impls.PerObject, func(o Options) Store { return newBase(o, newSharded(1, newMapTable), false) })
}

// mapTable is a [table] on a map of xsync. Its searches take no lock. A list locks one bucket at a time
// while it copies the few entries there, which only a write that adds or removes an entry waits for; a
// list without these locks (RangeRelaxed) may show a key twice. Range may go on in buckets that a resize
// has left: their entries are still those of the keys. The smallest map takes 2.5 KiB, so an index with
// few objects per value is expensive.
type mapTable struct {
	of      *valueSet
	entries *xsync.Map[string, *entry]
}

func newMapTable(of *valueSet) table { return &mapTable{of, xsync.NewMap[string, *entry]()} }

func (t *mapTable) find(_ uint64, key string) *entry {
	e, _ := t.entries.Load(key)
	return e
}

func (t *mapTable) join(_ uint64, e *entry)  { t.entries.Store(e.key, e) }
func (t *mapTable) leave(_ uint64, e *entry) { t.entries.Delete(e.key) }

func (t *mapTable) each(yield func(*entry, *version) bool) {
	t.entries.Range(func(_ string, e *entry) bool {
		v := e.version.Load()
		return !t.of.has(v) || yield(e, v)
	})
}

func (t *mapTable) size() int { return t.entries.Size() }
