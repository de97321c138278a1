package clientgo

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// objectModel is the contract of family queue.
type objectModel struct {
	modelBase

	queued  []queuedKey
	process map[int]queuedKey // by consumer
	deleted map[string]bool   // keys that were deleted since the last list

	lists int
	// epoch is the list that HasSynced waits for; left counts its remaining keys.
	epoch, left int
}

type queuedKey struct {
	key         string
	version     int
	epoch, list int  // of the list that brought it, if any
	loose       bool // it was deleted before, so that its position is open
}

func newObjectModel(s queueSetup, concurrent bool) *objectModel {
	return &objectModel{
		modelBase: modelBase{queueSetup: s, concurrent: concurrent},
		process:   map[int]queuedKey{}, deleted: map[string]bool{},
	}
}

func (m *objectModel) clone() queueModel {
	c := *m
	c.queued = slices.Clone(m.queued)
	c.process = maps.Clone(m.process)
	c.deleted = maps.Clone(m.deleted)
	return &c
}

func (m *objectModel) String() string {
	var b strings.Builder
	for _, w := range m.queued {
		fmt.Fprintf(&b, "%s@%d e%d l%d %t, ", w.key, w.version, w.epoch, w.list, w.loose)
	}
	fmt.Fprintf(&b, "process %v, deleted %v, begun %t, synced %t, left %d of list %d, closed %t",
		m.process, slices.Sorted(maps.Keys(m.deleted)), m.begun, m.synced, m.left, m.epoch, m.closed)
	return b.String()
}

func (m *objectModel) len() int   { return len(m.queued) }
func (m *objectModel) full() bool { return false }

func (m *objectModel) find(key string) int {
	return slices.IndexFunc(m.queued, func(w queuedKey) bool { return w.key == key })
}

// refused is that of the base. Whether a call after Close counts as the first is open.
func (m *objectModel) refused(err error) bool {
	m.uncertain = m.uncertain || m.closed && !m.begun
	return m.modelBase.refused(err)
}

func (m *objectModel) call(d cache.Delta, err error) error {
	switch {
	case withoutKey(d):
		return wantKeyError(err)
	case d.Type == cache.SyncAll:
		return err
	case d.Type == cache.ReplacedAll:
		return m.replace(d.Object.(cache.ReplacedAllInfo).Objects, err)
	}
	key := keyOf(d.Object)
	at := m.find(key)
	if m.refused(err) {
		return err
	}
	m.begin()
	switch {
	case d.Type != cache.Deleted && at >= 0:
		m.queued[at].version = version(d.Object)
	case d.Type != cache.Deleted:
		m.queued = append(m.queued, queuedKey{key: key, version: version(d.Object), loose: m.deleted[key]})
	case at >= 0:
		epoch := m.queued[at].epoch
		m.queued = slices.Delete(m.queued, at, at+1)
		m.deleted[key] = true
		// Upstream's HasSynced shows a delete at the next Pop only.
		m.uncertain = m.uncertain || epoch != 0 && upstream(m.queueSetup)
		m.leave(epoch)
	}
	return nil
}

// leave counts a key that is neither queued nor in process any more.
func (m *objectModel) leave(epoch int) {
	if epoch != 0 && epoch == m.epoch && !m.synced {
		m.left--
		m.synced = m.left == 0
	}
}

func (m *objectModel) replace(list []any, err error) error {
	if m.refused(err) {
		return err
	}
	epoch := 0
	if !m.begun || !m.synced {
		// A list that comes before the first one has been processed takes its
		// place. Not so upstream.
		m.uncertain = m.uncertain || m.begun && upstream(m.queueSetup)
		m.epoch++
		epoch = m.epoch
	}
	m.begun = true
	m.queued, m.deleted = nil, map[string]bool{}
	m.lists++
	for _, obj := range list {
		key := keyOf(obj)
		at := m.find(key)
		if at < 0 {
			at = len(m.queued)
			m.queued = append(m.queued, queuedKey{key: key, epoch: epoch, list: m.lists})
		}
		m.queued[at].version = version(obj)
	}
	if epoch != 0 {
		m.left = m.len()
		m.synced = m.left == 0
	}
	return nil
}

func (m *objectModel) popped(consumer int, p popped) error {
	key, version := keyOf(p.deltas[0].Object), version(p.deltas[0].Object)
	at := m.find(key)
	if at < 0 {
		return fmt.Errorf("%s@%d was popped and is not queued", key, version)
	}
	w := m.queued[at]
	if w.version != version {
		return fmt.Errorf("%s@%d was popped, the newest is %d", key, version, w.version)
	}
	if m.inProcess(key) && ours(m.queueSetup) {
		return fmt.Errorf("%s is in process twice", key)
	}
	for _, before := range m.queued[:at] {
		if fifo(m.queueSetup) && !w.loose && !m.inProcess(before.key) && (w.list == 0 || w.list != before.list) {
			return fmt.Errorf("%s was popped before %s, which was queued before", key, before.key)
		}
	}
	if !m.concurrent && !m.uncertain && p.initial == m.synced {
		return fmt.Errorf("isInInitialList is %t, HasSynced %t", p.initial, m.synced)
	}
	m.queued = slices.Delete(m.queued, at, at+1)
	m.process[consumer] = w
	return nil
}

func (m *objectModel) inProcess(key string) bool {
	for _, w := range m.process {
		if w.key == key {
			return true
		}
	}
	return false
}

func (m *objectModel) done(consumer int, _ bool) {
	m.leave(m.process[consumer].epoch)
	delete(m.process, consumer)
}

func (m *objectModel) afterDone(consumer int) []queueModel {
	after := m.clone()
	after.done(consumer, true)
	return []queueModel{after}
}

func (m *objectModel) ended() error {
	if !m.closed || m.len() > 0 {
		return fmt.Errorf("pop returned ErrFIFOClosed with closed=%t and %d keys queued", m.closed, m.len())
	}
	return nil
}
