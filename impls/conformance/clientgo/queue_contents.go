package clientgo

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// entry is a key with all its deltas or, with in-order delivery, one delta; of family queue, with its newest
// object. Its deltas are never changed in place, so that clones can share them.
type entry struct {
	key     string
	deltas  []delta
	rank    int
	initial bool
	loose   bool // of family queue: the key was deleted before, so that its position is open
	gone    bool
}

// event lets an event take effect.
func (m *queueModel) event(d delta) {
	m.rank++
	key := keyOf(d.obj)
	if m.objects {
		m.object(key, d)
	} else if inOrder(m.queueSetup) || m.newest[key] != nil || d.typ != cache.Deleted || m.exists(key) {
		m.add(key, d)
	} else {
		m.slack++ // Until it takes effect.
	}
}

// object lets an event of family queue take effect.
func (m *queueModel) object(key string, d delta) {
	if d.typ != cache.Deleted {
		m.add(key, delta{obj: d.obj, placeless: true})
	} else if e := m.newest[key]; e != nil {
		m.remove(e)
		m.deleted[key] = true
		// Upstream's HasSynced shows a delete at the next Pop only.
		m.uncertain = m.uncertain || e.initial && upstream(m.queueSetup)
		m.leave(e.initial)
	}
}

// list replaces all that is queued of family queue. HasSynced does not wait for what is in process.
func (m *queueModel) list(objs []any) {
	m.order, m.newest, m.deleted, m.live = nil, map[string]*entry{}, map[string]bool{}, 0
	m.rank++
	for _, obj := range objs {
		m.add(keyOf(obj), delta{obj: obj, placeless: true})
	}
	for c, deltas := range m.process {
		d := deltas[0]
		d.initial = false
		m.process[c] = []delta{d}
	}
}

// remove removes an entry.
func (m *queueModel) remove(e *entry) {
	e.gone = true
	m.live--
	if m.newest[e.key] == e {
		delete(m.newest, e.key)
	}
}

// exists reports whether the store has, or is about to have, an object of a key that is not queued.
func (m *queueModel) exists(key string) bool {
	if !m.known {
		return false
	}
	if d := m.inProcess(key); d != nil {
		return d.typ != cache.Deleted
	}
	_, there := m.store[key]
	return there
}

func (m *queueModel) add(key string, d delta) {
	e := m.newest[key]
	if e == nil || inOrder(m.queueSetup) {
		e = &entry{key: key, rank: m.rank, loose: m.deleted[key]}
		m.newest[key] = e
		m.order = append(m.order, e)
		m.live++
	}
	if !d.placeless {
		m.used++
	}
	last := len(e.deltas) - 1
	switch {
	case m.objects:
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
func (m *queueModel) replace(list []any) {
	listed := keysOf(list)
	addList := func() {
		for _, obj := range list {
			m.rank++
			m.add(keyOf(obj), delta{typ: cache.Replaced, obj: obj, placeless: true})
		}
	}
	if perKey(m.queueSetup) {
		addList()
	}
	m.rank++
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
	for key, e := range m.newest {
		newest[key] = e.deltas[len(e.deltas)-1]
	}
	for _, key := range slices.Sorted(maps.Keys(newest)) {
		d := newest[key]
		if folds := perKey(m.queueSetup) && m.newest[key] != nil; listed[key] || d.typ == cache.Deleted && !folds {
			continue
		}
		obj := d.obj
		if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = t.Obj
		}
		tombstone := cache.DeletedFinalStateUnknown{Key: key, Obj: obj}
		m.add(key, delta{typ: cache.Deleted, obj: tombstone, placeless: true})
	}
	if inOrder(m.queueSetup) {
		addList()
	}
}

func (m *queueModel) resync() {
	m.rank++
	for _, key := range slices.Sorted(maps.Keys(m.store)) {
		if m.inProcess(key) == nil && m.newest[key] == nil {
			m.add(key, delta{typ: cache.Sync, obj: m.store[key], placeless: true})
			if inOrder(m.queueSetup) {
				m.rank++
			}
		}
	}
}

// take removes what was popped.
func (m *queueModel) take(p popped) ([]delta, error) {
	each := 1
	if !p.batch {
		each = len(p.deltas) // All of one key.
	}
	deltas := make([]delta, 0, len(p.deltas))
	for got := range slices.Chunk(p.deltas, each) {
		e, err := m.next(got)
		if err != nil {
			return nil, err
		}
		m.remove(e)
		deltas = append(deltas, e.deltas...)
		deltas[len(deltas)-len(got)].initial = e.initial // The initial list counts entries.
	}
	if p.batch && fifo(m.queueSetup) && !m.concurrent && deltas[0].initial != deltas[len(deltas)-1].initial {
		return nil, errors.New("a batch extends beyond the initial list")
	}
	return deltas, nil
}

// next returns the entry that was popped, or an error if it is not next.
func (m *queueModel) next(got []cache.Delta) (*entry, error) {
	for len(m.order) > 0 && m.order[0].gone {
		m.order = m.order[1:]
	}
	key := keyOf(got[0].Object)
	e := m.newest[key]
	if e == nil {
		return nil, fmt.Errorf("%v was popped, and nothing of %q is queued", words(got), key)
	}
	if front := m.order[0]; inOrder(m.queueSetup) {
		same := func(e *entry) bool { return e.key == key && !e.gone || e.rank != front.rank }
		e = m.order[max(slices.IndexFunc(m.order, same), 0)]
	}
	for _, before := range m.order {
		if before.rank == e.rank || e.loose || !fifo(m.queueSetup) {
			break
		}
		// Other consumers pass over a key of family queue that is in process.
		if !before.gone && (!m.objects || m.inProcess(before.key) == nil) {
			return nil, fmt.Errorf("%v was popped before %v, which was queued before", words(got), before.deltas)
		}
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
