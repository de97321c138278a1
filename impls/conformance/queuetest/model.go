package queuetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/queue"
)

// Model is the contract as a sequential machine. Each method takes a call with
// what it returned, and says whether the contract allows that. Where it leaves a
// choice, what was returned tells which was made.
type Model struct {
	bed

	concurrent bool

	canceled bool

	waiting []waiting

	hands map[int]waiting

	gone map[string]bool

	lists int

	begun, synced bool
	epoch, left   int

	uncertain bool
	closed    bool
}

// waiting is a key that waits.
type waiting struct {
	key     string
	version int

	epoch, list int

	placed bool

	loose bool
}

// NewModel returns the model of an empty queue.
func NewModel(v queue.Variant, a Arrangement) *Model {
	return &Model{bed: bed{a, v}, hands: map[int]waiting{}, gone: map[string]bool{}}
}

func (m *Model) clone() *Model {
	c := *m
	c.waiting = slices.Clone(m.waiting)
	c.hands = maps.Clone(m.hands)
	c.gone = maps.Clone(m.gone)
	return &c
}

// String tells a state from others.
func (m *Model) String() string {
	var b strings.Builder
	for _, w := range m.waiting {
		fmt.Fprintf(&b, "%s@%d e%d l%d %t %t, ", w.key, w.version, w.epoch, w.list, w.placed, w.loose)
	}
	fmt.Fprintf(&b, "hands %v, gone %v, begun %t, synced %t, left %d of list %d, closed %t, canceled %t",
		m.hands, slices.Sorted(maps.Keys(m.gone)), m.begun, m.synced, m.left, m.epoch, m.closed, m.canceled)
	return b.String()
}

// Len returns how many keys wait.
func (m *Model) Len() int { return len(m.waiting) }

// HasSynced reports whether the initial list has been processed, and whether the
// contract says so.
func (m *Model) HasSynced() (synced, certain bool) { return m.synced, !m.uncertain }

func (m *Model) find(key string) int {
	return slices.IndexFunc(m.waiting, func(w waiting) bool { return w.key == key })
}

// full reports whether a new key has to wait for room.
func (m *Model) full() bool {
	placed := 0
	for _, w := range m.waiting {
		if w.placed {
			placed++
		}
	}
	return m.Capacity > 0 && placed >= m.Capacity
}

// refused looks at the error of a call that was told to come or not to. needs
// says that it needs room. It reports whether the call had no effect.
func (m *Model) refused(err error, needs bool) (bool, error) {
	switch {
	case err == nil && m.closed && !m.upstream():
		return false, errors.New("it was accepted after Close")
	case err == nil && needs && m.full():
		return false, fmt.Errorf("it was accepted, though %d keys wait", m.Len())
	case err == nil:
		return false, nil
	}
	// Whether one that is refused counts as the first is left open.
	m.uncertain = m.uncertain || !m.begun
	switch {
	case errors.Is(err, cache.ErrFIFOClosed) && m.closed && !m.upstream():
		return true, nil
	case errors.Is(err, context.Canceled) && m.canceled && m.Capacity > 0 && (m.concurrent || needs && m.full()):
		return true, nil
	}
	return true, fmt.Errorf("it returned %w, with %d keys waiting", err, m.Len())
}

// Put is Add and Update.
func (m *Model) Put(key string, version int, err error) error {
	at := m.find(key)
	refused, unexpected := m.refused(err, at < 0)
	if refused || unexpected != nil {
		return unexpected
	}
	m.touch()
	if at >= 0 {
		m.waiting[at].version = version
	} else {
		m.waiting = append(m.waiting, waiting{key: key, version: version, placed: true, loose: m.gone[key]})
	}
	return nil
}

// Delete is Delete.
func (m *Model) Delete(key string, err error) error {
	refused, unexpected := m.refused(err, false)
	if refused || unexpected != nil {
		return unexpected
	}
	m.touch()
	if at := m.find(key); at >= 0 {
		epoch := m.waiting[at].epoch
		m.waiting = slices.Delete(m.waiting, at, at+1)
		m.gone[key] = true
		// What was deleted shows in HasSynced when it has been folded in: at the
		// next Pop or Len, which may be a while.
		m.uncertain = m.uncertain || epoch != 0 && (m.upstream() || m.concurrent)
		m.leave(epoch)
	}
	return nil
}

// touch notes that something else than Replace came.
func (m *Model) touch() {
	if !m.begun {
		m.begun, m.synced = true, true
	}
}

// leave notes that a key is neither waiting nor in hand any more.
func (m *Model) leave(epoch int) {
	if epoch != 0 && epoch == m.epoch && !m.synced {
		m.left--
		m.synced = m.left == 0
	}
}

// Replace is Replace with objects of these keys, all of one version.
func (m *Model) Replace(keys []string, version int, err error) error {
	refused, unexpected := m.refused(err, false)
	if refused || unexpected != nil {
		return unexpected
	}
	epoch := 0
	if !m.begun || !m.synced {
		// A list that comes before the first one has been processed takes its
		// place, if nobody is about to have processed that. Not so upstream.
		m.uncertain = m.uncertain || m.begun && (m.upstream() || m.concurrent)
		m.epoch++
		epoch = m.epoch
	}
	m.begun = true
	m.waiting, m.gone = nil, map[string]bool{}
	m.lists++
	for _, key := range keys {
		if m.find(key) < 0 {
			m.waiting = append(m.waiting, waiting{key: key, version: version, epoch: epoch, list: m.lists})
		}
	}
	if epoch != 0 {
		m.left = m.Len()
		m.synced = m.left == 0
	}
	return nil
}

// Take is the moment at which a consumer is handed an object.
func (m *Model) Take(consumer int, key string, version int, initial bool) error {
	at := m.find(key)
	if at < 0 {
		return fmt.Errorf("%s@%d was handed over, which does not wait", key, version)
	}
	w := m.waiting[at]
	if w.version != version {
		return fmt.Errorf("%s@%d was handed over, the newest is %d", key, version, w.version)
	}
	if m.inHand(key) && !m.upstream() {
		return fmt.Errorf("%s is in another consumer's hands", key)
	}
	for _, before := range m.waiting[:at] {
		if m.fifo() && !w.loose && !m.inHand(before.key) && (w.list == 0 || w.list != before.list) {
			return fmt.Errorf("%s was handed over before %s, which has waited longer", key, before.key)
		}
	}
	if !m.concurrent && !m.uncertain && initial == m.synced {
		return fmt.Errorf("isInInitialList is %t, HasSynced %t", initial, m.synced)
	}
	m.waiting = slices.Delete(m.waiting, at, at+1)
	m.hands[consumer] = w
	return nil
}

func (m *Model) inHand(key string) bool {
	for _, h := range m.hands {
		if h.key == key {
			return true
		}
	}
	return false
}

// Done is the moment at which process has returned.
func (m *Model) Done(consumer int) {
	m.leave(m.hands[consumer].epoch)
	delete(m.hands, consumer)
}

// Close is Close.
func (m *Model) Close() { m.closed = true }

// Ended is a Pop that reports that the queue is closed and drained.
func (m *Model) Ended() error {
	if !m.closed || m.Len() > 0 {
		return fmt.Errorf("a Pop returned ErrFIFOClosed, closed=%t, with %d keys waiting", m.closed, m.Len())
	}
	return nil
}
