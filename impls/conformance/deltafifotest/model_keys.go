package deltafifotest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// keysModel is what waits with per-key delivery.
type keysModel struct {
	entries map[string]*entry

	order []*entry
	head  int

	rank int

	uniqueness map[string]struct{}
}

// entry is a key that waits. Its deltas are never changed in place, so that
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
	c.order, c.head = nil, 0
	for _, e := range k.order[k.head:] {
		if !e.gone {
			copied := *e
			c.entries[e.key] = &copied
			c.order = append(c.order, &copied)
		}
	}
	return &c
}

func (k *keysModel) write(b *strings.Builder) {
	for _, e := range k.order[k.head:] {
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

func (k *keysModel) event(m *Model, d delta) {
	k.rank++
	if key := keyOf(d.obj); k.entries[key] != nil || d.typ != cache.Deleted || exists(m, key) {
		k.add(m, key, d)
	} else {
		m.slack++ // Until its turn comes.
	}
}

// exists tells whether the consumer has, or is about to have, an object of a key
// that does not wait.
func exists(m *Model, key string) bool {
	if !m.a.Known {
		return false
	}
	if d := m.inHand(key); d != nil {
		return d.typ != cache.Deleted
	}
	_, there := m.store[key]
	return there
}

func (k *keysModel) add(m *Model, key string, d delta) {
	e := k.entries[key]
	if e == nil {
		e = &entry{key: key, rank: k.rank}
		k.entries[key] = e
		k.order = append(k.order, e)
	}
	m.place(d)
	last := len(e.deltas) - 1
	switch {
	case m.a.latest() && last >= 0:
		m.fold(e.deltas[last])
		e.deltas = []delta{d}
	case last >= 0 && d.typ == cache.Deleted && e.deltas[last].typ == cache.Deleted:
		// Of two deletions in a row the one that knows the final state is kept.
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

func (k *keysModel) replace(m *Model, list []any) {
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
	if !m.a.Known {
		return
	}
	bury := func(key string, obj any) {
		if !listed[key] && k.entries[key] == nil {
			k.add(m, key, tombstone(key, obj))
		}
	}
	inHand := map[string]delta{}
	for _, hand := range m.hands {
		for _, d := range hand {
			inHand[keyOf(d.obj)] = d
		}
	}
	for key, d := range inHand {
		if d.typ != cache.Deleted {
			bury(key, d.obj)
		}
	}
	for _, key := range sortedKeys(m.store) {
		if _, there := inHand[key]; !there {
			bury(key, m.store[key])
		}
	}
}

func (k *keysModel) resync(m *Model) {
	k.rank++
	for _, key := range sortedKeys(m.store) {
		if m.inHand(key) == nil && k.entries[key] == nil {
			k.add(m, key, delta{typ: cache.Sync, obj: m.store[key], placeless: true})
		}
	}
}

func (k *keysModel) handOver(m *Model, h handover) ([]delta, error) {
	if !h.batch {
		return k.handOverKey(m, h.deltas)
	}
	if err := k.unique(h.deltas); err != nil {
		return nil, err
	}
	handed := make([]delta, 0, len(h.deltas))
	for i := range h.deltas {
		one, err := k.handOverKey(m, h.deltas[i:i+1])
		if err != nil {
			return nil, fmt.Errorf("number %d of the batch %v: %w", i, words(h.deltas), err)
		}
		handed = append(handed, one...)
	}
	if m.fifo && !m.concurrent && handed[0].initial != handed[len(handed)-1].initial {
		return nil, errors.New("a batch goes beyond the initial list")
	}
	return handed, nil
}

// unique is uniqueKeys with memory that is used again.
func (k *keysModel) unique(deltas []cache.Delta) error {
	if k.uniqueness == nil {
		k.uniqueness = make(map[string]struct{}, len(deltas))
	}
	clear(k.uniqueness)
	for _, d := range deltas {
		k.uniqueness[keyOf(d.Object)] = struct{}{}
	}
	if len(k.uniqueness) < len(deltas) {
		return uniqueKeys(deltas)
	}
	return nil
}

// handOverKey takes out a key with all that waits of it.
func (k *keysModel) handOverKey(m *Model, got []cache.Delta) ([]delta, error) {
	key := keyOf(got[0].Object)
	e := k.entries[key]
	if e == nil {
		return nil, fmt.Errorf("%v was handed over, and nothing of %s waits", words(got), key)
	}
	if front := k.front(); m.fifo && e.rank != front.rank {
		return nil, fmt.Errorf("%v was handed over before %s, which has waited longer", words(got), front.key)
	}
	if err := match(got, e.deltas); err != nil {
		return nil, err
	}
	if rest := e.deltas[len(got):]; len(rest) > 0 {
		return nil, fmt.Errorf("%v was handed over without %v, which waits too", words(got), rest)
	}
	delete(k.entries, key)
	e.gone = true
	handed := slices.Clone(e.deltas)
	// The initial list counts keys.
	handed[0].initial = e.initial
	return handed, nil
}

// front returns the entry that has waited longest.
func (k *keysModel) front() *entry {
	for k.order[k.head].gone {
		k.order[k.head] = nil
		k.head++
	}
	if k.head > len(k.order)/2 {
		k.order = append(k.order[:0], k.order[k.head:]...)
		k.head = 0
	}
	return k.order[k.head]
}

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
