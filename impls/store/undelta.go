package store

import (
	"sync"

	"k8s.io/client-go/tools/cache"
)

// UndeltaStore pushes the whole list after each change, like client-go's (v0.37.2,
// tools/cache/undelta_store.go). It is a [cache.Store] for a Reflector whose consumer wants complete
// states.
//
// Upstream releases the store's lock between a write, its list and its push. So of two writers, one
// may push a list before the other and the older list last, and two lists may be equal. Here a change
// and its push are one step:
//
//   - Each Add, Update, Delete and Replace that returns no error has made exactly one push. A failed
//     one pushes nothing. Bookmark, Resync and reads push nothing.
//   - The n-th push has the contents after the n-th change: all changes before it and none after. Two
//     concurrent writers push in the order of their changes, whichever comes first, and the last push is
//     the final state. This holds on each variant, also if its lists are [impls.PerObject], because no
//     write goes on during the list.
//   - A push has returned when its change returns. Pushes do not overlap, so PushFunc needs no lock.
//
// The price: writers wait for the pushes of others. Readers do not; a read may show a change before
// its push. PushFunc may read the store. It must not write to it, nor wait for a goroutine that does:
// that is a deadlock, where upstream would push recursively. After a panic of PushFunc, the change is
// stored and the store is usable.
//
// Each change costs O(objects).
type UndeltaStore struct {
	cache.Store // writes that bypass the UndeltaStore push nothing and void the order above
	// PushFunc receives the list, which it may keep. It is not changed after the first write.
	PushFunc func([]any)

	mu sync.Mutex // held for a change and its push
}

// NewUndeltaStore returns an UndeltaStore on the named variant. The errors are those of [New].
func NewUndeltaStore(variant string, push func([]any), opts Options) (*UndeltaStore, error) {
	s, err := New(variant, opts)
	if err != nil {
		return nil, err
	}
	return &UndeltaStore{Store: s, PushFunc: push}, nil
}

// Add stores an object and pushes the list.
func (u *UndeltaStore) Add(obj any) error {
	return u.change(func() error { return u.Store.Add(obj) })
}

// Update stores an object and pushes the list.
func (u *UndeltaStore) Update(obj any) error {
	return u.change(func() error { return u.Store.Update(obj) })
}

// Delete removes an object and pushes the list, also if there was no such object.
func (u *UndeltaStore) Delete(obj any) error {
	return u.change(func() error { return u.Store.Delete(obj) })
}

// Replace replaces the contents and pushes the new list, once.
func (u *UndeltaStore) Replace(list []any, resourceVersion string) error {
	return u.change(func() error { return u.Store.Replace(list, resourceVersion) })
}

func (u *UndeltaStore) change(write func() error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := write(); err != nil {
		return err
	}
	u.PushFunc(u.Store.List())
	return nil
}
