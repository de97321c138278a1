package store

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"watchlab/impls"
)

// ExpirationCache is a [cache.Store] whose objects expire, like client-go's (v0.37.2,
// tools/cache/expiration_cache.go). Each write stamps its object with the time. A read asks the policy
// about the stamp, omits an expired object and removes it. Nothing expires without a read.
//
//   - Get, GetByKey and List return no object that the policy calls expired. ListKeys also returns the
//     keys of expired objects that no such read has removed yet.
//   - An expired object is removed only if it is still the one that was judged. An object that is written
//     meanwhile stays.
//   - Update, also with an equal object, stamps anew.
//   - LastStoreSyncResourceVersion follows Delete, Replace and Bookmark, and not Add and Update, whose
//     stamped objects have no resourceVersion: as upstream.
//
// Upstream takes a lock for each object that it reads, also for those of a List. Here only the removal
// of expired objects and writes take it, so the policy must be safe for concurrent use, as
// [cache.TTLPolicy] is. List shows what a list of the variant shows, less what has expired when the
// policy is asked.
type ExpirationCache struct {
	policy cache.ExpirationPolicy
	clock  clock.PassiveClock
	key    cache.KeyFunc

	// removal is held for writes, and for the removal of expired objects from the second look to the
	// deletion, so that no fresh object is deleted.
	removal sync.Mutex
	entries Store // of *stamped
}

var _ cache.Store = (*ExpirationCache)(nil)

// stamped is what is stored. Upstream's type has a key too, which only its package can set.
type stamped struct {
	cache.TimestampedEntry
	key string
}

func newStamped(obj any, at time.Time, key string) *stamped {
	return &stamped{cache.TimestampedEntry{Obj: obj, Timestamp: at}, key}
}

// NewExpirationCache returns an ExpirationCache on the named variant. The clock makes the stamps; nil
// means the system's. A [cache.TTLPolicy] should have the same clock. The errors are those of [New], and
// one that wraps [impls.ErrOptions] for indexers, which a [cache.Store] cannot use.
func NewExpirationCache(
	variant string, policy cache.ExpirationPolicy, c clock.PassiveClock, opts Options,
) (*ExpirationCache, error) {
	if len(opts.Indexers) > 0 {
		return nil, fmt.Errorf("%w: an ExpirationCache has no indexers", impls.ErrOptions)
	}
	if c == nil {
		c = clock.RealClock{}
	}
	opts = opts.complete()
	e := &ExpirationCache{policy: policy, clock: c, key: opts.KeyFunction}
	opts.KeyFunction = func(obj any) (string, error) {
		if s, ok := obj.(*stamped); ok {
			return s.key, nil
		}
		return e.key(obj)
	}
	var err error
	if e.entries, err = New(variant, opts); err != nil {
		return nil, err
	}
	return e, nil
}

// Add stores an object with the present time.
func (c *ExpirationCache) Add(obj any) error {
	key, err := c.key(obj)
	if err != nil {
		return cache.KeyError{Obj: obj, Err: err}
	}
	c.removal.Lock()
	defer c.removal.Unlock()
	return c.entries.Add(newStamped(obj, c.clock.Now(), key))
}

// Update is Add: it stamps anew.
func (c *ExpirationCache) Update(obj any) error { return c.Add(obj) }

// Delete removes an object, expired or not.
func (c *ExpirationCache) Delete(obj any) error {
	c.removal.Lock()
	defer c.removal.Unlock()
	return c.entries.Delete(obj)
}

// Replace replaces the contents. All objects get the same stamp. If one has no key, it changes nothing.
func (c *ExpirationCache) Replace(list []any, resourceVersion string) error {
	entries := make([]any, len(list))
	now := c.clock.Now()
	for i, obj := range list {
		key, err := c.key(obj)
		if err != nil {
			return cache.KeyError{Obj: obj, Err: err}
		}
		entries[i] = newStamped(obj, now, key)
	}
	c.removal.Lock()
	defer c.removal.Unlock()
	return c.entries.Replace(entries, resourceVersion)
}

// Get returns the object with the key of obj unless it has expired.
func (c *ExpirationCache) Get(obj any) (item any, exists bool, err error) {
	key, err := c.key(obj)
	if err != nil {
		return nil, false, cache.KeyError{Obj: obj, Err: err}
	}
	return c.GetByKey(key)
}

// GetByKey returns the object with a key unless it has expired.
func (c *ExpirationCache) GetByKey(key string) (item any, exists bool, err error) {
	stored, exists, err := c.entries.GetByKey(key)
	if !exists || err != nil {
		return nil, false, err
	}
	e := stored.(*stamped)
	if !c.policy.IsExpired(&e.TimestampedEntry) {
		return e.Obj, true, nil
	}
	if fresh := c.remove([]*stamped{e}, nil); len(fresh) > 0 {
		return fresh[0], true, nil
	}
	return nil, false, nil
}

// List returns the objects that have not expired, and removes the others, all in one Transaction.
func (c *ExpirationCache) List() []any { return c.unexpired(c.entries.List()) }

// ListKeys returns all stored keys, also those of expired objects.
func (c *ExpirationCache) ListKeys() []string { return c.entries.ListKeys() }

// LastStoreSyncResourceVersion is that of the variant.
func (c *ExpirationCache) LastStoreSyncResourceVersion() string {
	return c.entries.LastStoreSyncResourceVersion()
}

// Bookmark is that of the variant.
func (c *ExpirationCache) Bookmark(rv string) { c.entries.Bookmark(rv) }

// Resync does nothing.
func (c *ExpirationCache) Resync() error { return nil }

// unexpired replaces the entries of a list by their objects, in the memory of the list. It removes
// those that have expired.
func (c *ExpirationCache) unexpired(entries []any) []any {
	var expired []*stamped
	list := entries[:0]
	for _, e := range entries {
		if e := e.(*stamped); c.policy.IsExpired(&e.TimestampedEntry) {
			expired = append(expired, e)
		} else {
			list = append(list, e.Obj)
		}
	}
	clear(entries[len(list):])
	if len(expired) == 0 {
		return list
	}
	return c.remove(expired, list)
}

// remove deletes expired entries. If a key has another entry by now that has not expired, remove
// appends its object to the list instead.
func (c *ExpirationCache) remove(expired []*stamped, list []any) []any {
	c.removal.Lock()
	defer c.removal.Unlock()
	var deletes []cache.Transaction
	for _, e := range expired {
		stored, exists, _ := c.entries.GetByKey(e.key)
		if !exists {
			continue
		}
		if now := stored.(*stamped); now == e || c.policy.IsExpired(&now.TimestampedEntry) {
			deletes = append(deletes, cache.Transaction{Type: cache.TransactionTypeDelete, Object: now})
		} else {
			list = append(list, now.Obj)
		}
	}
	if err := c.entries.Transaction(deletes...); err != nil {
		panic(err) // each entry has its key
	}
	return list
}
