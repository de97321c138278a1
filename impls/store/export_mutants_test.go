//go:build mutants

package store

import (
	"runtime"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// Mutant is a variant with a deliberate bug.
type Mutant struct {
	Variant
	// Broken describes the bug.
	Broken string
	// Check is the name of the subtest that must detect it.
	Check string
}

// Mutants returns one variant for each named invariant. Each is a variant of this package with a method or an index
// function replaced.
func Mutants() []Mutant {
	snapshot := snapshotVariant()
	return []Mutant{
		mutant("stale-index", "leaves an updated object under the values that it had", "an update moves an object between values", snapshot, newStaleIndex),
		mutant("shared-list", "returns one slice to all callers until the next write", "maps and slices are the caller's", snapshot, newSharedList),
		mutant("objects-kept", "keeps references to deleted objects", "old objects can be collected", snapshot, newObjectsKept),
		mutant("torn-half", "publishes a Transaction in two halves", "linearizable", snapshot, newTornHalf),
		mutant("version-first", "publishes the resourceVersion before the objects", "linearizable", snapshot, newVersionFirst),
	}
}

func mutant(name, broken, check string, of Variant, build func(Options) Store) Mutant {
	return Mutant{
		Variant: Variant{Name: name, Summary: broken, Guarantees: of.Guarantees, New: func(o Options) (Store, error) {
			return build(o.complete()), nil
		}},
		Broken: broken, Check: check,
	}
}

func newSnapshotBase(o Options) *base { return newBase(o, newSnapshots()) }

// differently is a snapshot whose index functions are replaced.
type differently struct {
	*snapshots
	function func(cache.IndexFunc) cache.IndexFunc
}

func (e differently) addIndexers(more cache.Indexers) {
	changed := cache.Indexers{}
	for name, f := range more {
		changed[name] = e.function(f)
	}
	e.snapshots.addIndexers(changed)
}

func newStaleIndex(o Options) Store {
	return newBase(o, differently{newSnapshots(), func(f cache.IndexFunc) cache.IndexFunc {
		had := map[string][]string{}
		return func(obj any) ([]string, error) {
			values, err := f(obj)
			key, _ := o.KeyFunction(obj)
			had[key] = append(had[key], values...)
			return slices.Clone(had[key]), err
		}
	}})
}

type sharedList struct {
	*snapshots
	last atomic.Pointer[[]any]
}

func newSharedList(o Options) Store { return newBase(o, &sharedList{snapshots: newSnapshots()}) }

func (e *sharedList) list() []any {
	if list := e.last.Load(); list != nil {
		return *list
	}
	list := e.snapshots.list()
	e.last.Store(&list)
	return list
}

func (e *sharedList) write(batch []write) {
	e.snapshots.write(batch)
	e.last.Store(nil)
}

type objectsKept struct {
	*snapshots
	kept *[]any
}

func newObjectsKept(o Options) Store {
	return newBase(o, objectsKept{newSnapshots(), new([]any)})
}

func (e objectsKept) write(batch []write) {
	for _, w := range batch {
		if obj, ok := e.get(w.key); ok && w.remove {
			*e.kept = append(*e.kept, obj)
		}
	}
	e.snapshots.write(batch)
}

type tornHalf struct{ *snapshots }

func newTornHalf(o Options) Store { return newBase(o, tornHalf{newSnapshots()}) }

func (e tornHalf) write(batch []write) {
	half := len(batch) / 2
	e.snapshots.write(batch[:half])
	runtime.Gosched()
	e.snapshots.write(batch[half:])
}

type versionFirst struct{ *base }

func newVersionFirst(o Options) Store { return versionFirst{newSnapshotBase(o)} }

func (s versionFirst) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	if len(txns) > 0 {
		if object, err := meta.Accessor(txns[len(txns)-1].Object); err == nil {
			s.Bookmark(object.GetResourceVersion())
			runtime.Gosched() // A reader of the version waits for a write, not for the time between two.
		}
	}
	return s.base.Transaction(txns...)
}
