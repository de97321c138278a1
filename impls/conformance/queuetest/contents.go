package queuetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// contents is the queued deltas of a [deltaModel].
type contents struct {
	// order holds the entries in queue order, including removed ones; live counts
	// the others.
	order []*entry
	live  int
	// newest holds the newest entry of each key.
	newest map[string]*entry
	// rank is that of the next entry. Entries of equal rank come in any order.
	rank int
}

// entry is a key with all its deltas or, with in-order delivery, one delta. Its
// deltas are never changed in place, so that clones can share them.
type entry struct {
	key     string
	deltas  []delta
	rank    int
	initial bool
	gone    bool
}

func (c *contents) clone() contents {
	copied := contents{live: c.live, rank: c.rank, newest: make(map[string]*entry, len(c.newest))}
	for _, e := range c.order {
		if !e.gone {
			e := *e
			copied.newest[e.key] = &e
			copied.order = append(copied.order, &e)
		}
	}
	return copied
}

func (c *contents) write(b *strings.Builder) {
	rank := 0
	for _, e := range c.order {
		if e.gone {
			continue
		}
		if e.rank == rank {
			b.WriteString("or ")
		}
		fmt.Fprintf(b, "%s: %v ", e.key, e.deltas)
		rank = e.rank
	}
}

// mark marks all entries as part of the initial list and returns their number.
func (c *contents) mark() int {
	for _, e := range c.order {
		e.initial = true
	}
	return c.live
}

func (c *contents) event(m *deltaModel, d delta) {
	c.rank++
	key := keyOf(d.obj)
	if inOrder(m.setup) || c.newest[key] != nil || d.typ != cache.Deleted || exists(m, key) {
		c.add(m, key, d)
	} else {
		m.slack++ // Until it takes effect.
	}
}

// exists reports whether the store has, or is about to have, an object of a key
// that is not queued.
func exists(m *deltaModel, key string) bool {
	if !m.known {
		return false
	}
	if d := m.inProcess(key); d != nil {
		return d.typ != cache.Deleted
	}
	_, there := m.store[key]
	return there
}

func (c *contents) add(m *deltaModel, key string, d delta) {
	e := c.newest[key]
	if e == nil || inOrder(m.setup) {
		e = &entry{key: key, rank: c.rank}
		c.newest[key] = e
		c.order = append(c.order, e)
		c.live++
	}
	m.place(d)
	last := len(e.deltas) - 1
	switch {
	case last >= 0 && latest(m.setup):
		m.fold(e.deltas[last])
		e.deltas = []delta{d}
	case last >= 0 && d.typ == cache.Deleted && e.deltas[last].typ == cache.Deleted:
		// Of two deletes in a row the one that has the final state is kept.
		if _, unsure := e.deltas[last].obj.(cache.DeletedFinalStateUnknown); unsure {
			m.fold(e.deltas[last])
			e.deltas = append(slices.Clone(e.deltas[:last]), d)
		} else {
			m.fold(d)
		}
	default:
		e.deltas = append(slices.Clip(e.deltas), d)
	}
}

// replace queues a list and the tombstones of the keys that it lacks: with in-order
// delivery these come first.
func (c *contents) replace(m *deltaModel, list []any) {
	listed := keysOf(list)
	addList := func() {
		for _, obj := range list {
			c.rank++
			c.add(m, keyOf(obj), delta{typ: cache.Replaced, obj: obj, placeless: true})
		}
	}
	if perKey(m.setup) {
		addList()
	}
	c.rank++
	newest := map[string]delta{}
	for key, obj := range m.store {
		newest[key] = delta{obj: obj}
	}
	if m.known {
		for _, deltas := range m.process {
			for _, d := range deltas {
				newest[keyOf(d.obj)] = d
			}
		}
	}
	for key, e := range c.newest {
		newest[key] = e.deltas[len(e.deltas)-1]
	}
	for _, key := range slices.Sorted(maps.Keys(newest)) {
		d := newest[key]
		if folds := perKey(m.setup) && c.newest[key] != nil; listed[key] || d.typ == cache.Deleted && !folds {
			continue
		}
		obj := d.obj
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		tombstone := cache.DeletedFinalStateUnknown{Key: key, Obj: obj}
		c.add(m, key, delta{typ: cache.Deleted, obj: tombstone, placeless: true})
	}
	if inOrder(m.setup) {
		addList()
	}
}

func (c *contents) resync(m *deltaModel) {
	c.rank++
	for _, key := range slices.Sorted(maps.Keys(m.store)) {
		if m.inProcess(key) == nil && c.newest[key] == nil {
			c.add(m, key, delta{typ: cache.Sync, obj: m.store[key], placeless: true})
			if inOrder(m.setup) {
				c.rank++
			}
		}
	}
}

func (c *contents) pop(m *deltaModel, p popped) ([]delta, error) {
	each := 1
	if !p.batch {
		each = len(p.deltas) // All of one key.
	}
	deltas := make([]delta, 0, len(p.deltas))
	for got := range slices.Chunk(p.deltas, each) {
		e, err := c.next(m, got)
		if err != nil {
			return nil, err
		}
		e.gone = true
		c.live--
		if c.newest[e.key] == e {
			delete(c.newest, e.key)
		}
		deltas = append(deltas, e.deltas...)
		deltas[len(deltas)-len(got)].initial = e.initial // The initial list counts entries.
	}
	if p.batch && fifo(m.setup) && !m.concurrent && deltas[0].initial != deltas[len(deltas)-1].initial {
		return nil, errors.New("a batch extends beyond the initial list")
	}
	return deltas, nil
}

// next returns the entry that was popped, or an error if it is not next.
func (c *contents) next(m *deltaModel, got []cache.Delta) (*entry, error) {
	for len(c.order) > 0 && c.order[0].gone {
		c.order = c.order[1:]
	}
	key := keyOf(got[0].Object)
	e := c.newest[key]
	if e == nil {
		return nil, fmt.Errorf("%v was popped, and nothing of %q is queued", words(got), key)
	}
	front := c.order[0]
	if inOrder(m.setup) {
		same := func(e *entry) bool { return e.key == key && !e.gone || e.rank != front.rank }
		e = c.order[max(slices.IndexFunc(c.order, same), 0)]
	}
	if fifo(m.setup) && e.rank != front.rank {
		return nil, fmt.Errorf("%v was popped before %v, which was queued before", words(got), front.deltas)
	}
	if !slices.EqualFunc(e.deltas, got, delta.is) {
		return nil, fmt.Errorf("%v was popped, %v is next", words(got), e.deltas)
	}
	return e, nil
}

func keysOf(list []any) map[string]bool {
	keys := make(map[string]bool, len(list))
	for _, obj := range list {
		keys[keyOf(obj)] = true
	}
	return keys
}
