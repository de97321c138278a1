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

// Mutants returns one variant for each named invariant. Each is a snapshot with a method or an index
// function replaced.
func Mutants() []Mutant {
	snapshot := snapshotVariant()
	return []Mutant{
		mutant("stale-index", "leaves an updated object under the values that it had", "random operations", snapshot, newStaleIndex),
		mutant("shared-list", "returns one slice to all callers until the next write", "random operations", snapshot, newSharedList),
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

// newStaleIndex is a snapshot whose index functions are replaced.
func newStaleIndex(o Options) Store {
	changed := cache.Indexers{}
	for name, f := range o.Indexers {
		had := map[string][]string{}
		changed[name] = func(obj any) ([]string, error) {
			values, err := f(obj)
			if asked, _ := meta.Accessor(obj); asked.GetResourceVersion() == "0" {
				return values, err // Index is called with it, and it is not stored.
			}
			key, _ := o.KeyFunction(obj)
			had[key] = append(had[key], values...)
			return slices.Clone(had[key]), err
		}
	}
	o.Indexers = changed
	return newSnapshots(o)
}

type sharedList struct {
	*snapshots
	last atomic.Pointer[[]any]
	of   atomic.Pointer[snapshot]
}

func newSharedList(o Options) Store { return &sharedList{snapshots: newSnapshots(o)} }

func (s *sharedList) List() []any {
	if now := s.published.Load(); s.of.Swap(now) != now {
		list := s.snapshots.List()
		s.last.Store(&list)
	}
	return *s.last.Load()
}

type objectsKept struct {
	*snapshots
	kept []any
}

func newObjectsKept(o Options) Store { return &objectsKept{snapshots: newSnapshots(o)} }

func (s *objectsKept) Delete(obj any) error {
	old, _, _ := s.Get(obj)
	s.kept = append(s.kept, old)
	return s.snapshots.Delete(obj)
}

type tornHalf struct{ *snapshots }

func newTornHalf(o Options) Store { return tornHalf{newSnapshots(o)} }

func (s tornHalf) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	half := len(txns) / 2
	if err := s.snapshots.Transaction(txns[:half]...); err != nil {
		return err
	}
	runtime.Gosched()
	return s.snapshots.Transaction(txns[half:]...)
}

type versionFirst struct{ *snapshots }

func newVersionFirst(o Options) Store { return versionFirst{newSnapshots(o)} }

func (s versionFirst) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	if len(txns) > 0 {
		if object, err := meta.Accessor(txns[len(txns)-1].Object); err == nil {
			s.Bookmark(object.GetResourceVersion())
			runtime.Gosched() // A reader of the version waits for a write, not for the time between two.
		}
	}
	return s.snapshots.Transaction(txns...)
}
