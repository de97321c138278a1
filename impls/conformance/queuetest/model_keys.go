package queuetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// keysModel is the contents of a queue with per-key delivery.
type keysModel struct {
	entries map[string]*entry
	// order holds the entries in queue order, including removed ones.
	order []*entry
	// rank is that of the next key; keys of one call have equal ranks.
	rank int
}

// entry is a queued key. Its deltas are never changed in place, so that
// clones can share them.
type entry struct {
	key     string
	deltas  []delta
	rank    int
	initial bool
	gone    bool
}

func newKeysModel() *keysModel { return &keysModel{entries: map[string]*entry{}} }

func (k *keysModel) len() int { return len(k.entries) }

func (k *keysModel) clone() contents {
	c := *k
	c.entries = make(map[string]*entry, len(k.entries))
	c.order = nil
	for _, e := range k.order {
		if !e.gone {
			copied := *e
			c.entries[e.key] = &copied
			c.order = append(c.order, &copied)
		}
	}
	return &c
}

func (k *keysModel) write(b *strings.Builder) {
	for _, e := range k.order {
		if !e.gone {
			fmt.Fprintf(b, "%s: %v ", e.key, e.deltas)
		}
	}
}

func (k *keysModel) mark() int {
	for _, e := range k.entries {
		e.initial = true
	}
	return len(k.entries)
}

func (k *keysModel) event(m *deltaModel, d delta) {
	k.rank++
	if key := keyOf(d.obj); k.entries[key] != nil || d.typ != cache.Deleted || exists(m, key) {
		k.add(m, key, d)
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

func (k *keysModel) add(m *deltaModel, key string, d delta) {
	e := k.entries[key]
	if e == nil {
		e = &entry{key: key, rank: k.rank}
		k.entries[key] = e
		k.order = append(k.order, e)
	}
	m.place(d)
	last := len(e.deltas) - 1
	switch {
	case latest(m.setup) && last >= 0:
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

func (k *keysModel) replace(m *deltaModel, list []any) {
	listed := keysOf(list)
	for _, obj := range list {
		k.rank++
		k.add(m, keyOf(obj), delta{typ: cache.Replaced, obj: obj, placeless: true})
	}
	k.rank++
	for key, e := range k.entries {
		if !listed[key] {
			obj := e.deltas[len(e.deltas)-1].obj
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			k.add(m, key, tombstone(key, obj))
		}
	}
	if !m.known {
		return
	}
	bury := func(key string, obj any) {
		if !listed[key] && k.entries[key] == nil {
			k.add(m, key, tombstone(key, obj))
		}
	}
	inProcess := map[string]delta{}
	for _, deltas := range m.process {
		for _, d := range deltas {
			inProcess[keyOf(d.obj)] = d
		}
	}
	for key, d := range inProcess {
		if d.typ != cache.Deleted {
			bury(key, d.obj)
		}
	}
	for _, key := range sortedKeys(m.store) {
		if _, there := inProcess[key]; !there {
			bury(key, m.store[key])
		}
	}
}

func (k *keysModel) resync(m *deltaModel) {
	k.rank++
	for _, key := range sortedKeys(m.store) {
		if m.inProcess(key) == nil && k.entries[key] == nil {
			k.add(m, key, delta{typ: cache.Sync, obj: m.store[key], placeless: true})
		}
	}
}

func (k *keysModel) pop(m *deltaModel, p popped) ([]delta, error) {
	if !p.batch {
		return k.popKey(m, p.deltas)
	}
	popped := make([]delta, 0, len(p.deltas))
	for i := range p.deltas {
		one, err := k.popKey(m, p.deltas[i:i+1])
		if err != nil {
			return nil, fmt.Errorf("number %d of the batch %v: %w", i, words(p.deltas), err)
		}
		popped = append(popped, one...)
	}
	if fifo(m.setup) && !m.concurrent && popped[0].initial != popped[len(popped)-1].initial {
		return nil, errors.New("a batch extends beyond the initial list")
	}
	return popped, nil
}

// popKey removes a key with all its deltas.
func (k *keysModel) popKey(m *deltaModel, got []cache.Delta) ([]delta, error) {
	key := keyOf(got[0].Object)
	e := k.entries[key]
	if e == nil {
		return nil, fmt.Errorf("%v was popped, and %s is not queued", words(got), key)
	}
	if front := k.front(); fifo(m.setup) && e.rank != front.rank {
		return nil, fmt.Errorf("%v was popped before %s, which was queued before", words(got), front.key)
	}
	if err := match(got, e.deltas); err != nil {
		return nil, err
	}
	if rest := e.deltas[len(got):]; len(rest) > 0 {
		return nil, fmt.Errorf("%v was popped without %v, which are queued too", words(got), rest)
	}
	delete(k.entries, key)
	e.gone = true
	popped := slices.Clone(e.deltas)
	// The initial list counts keys.
	popped[0].initial = e.initial
	return popped, nil
}

// front returns the oldest entry.
func (k *keysModel) front() *entry {
	for k.order[0].gone {
		k.order = k.order[1:]
	}
	return k.order[0]
}

// tombstone is a delete that a list causes.
func tombstone(key string, obj any) delta {
	return delta{typ: cache.Deleted, obj: cache.DeletedFinalStateUnknown{Key: key, Obj: obj}, placeless: true}
}

func keysOf(list []any) map[string]bool {
	keys := make(map[string]bool, len(list))
	for _, obj := range list {
		keys[keyOf(obj)] = true
	}
	return keys
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
