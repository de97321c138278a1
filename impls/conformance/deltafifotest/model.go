package deltafifotest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/deltafifo"
)

// Model is the family's contract as a sequential machine. It is told of each
// call and of what came of it, in one order, and says whether that may be. It
// leaves open what the contract leaves open: how long a batch is within its
// bounds, the order of tombstones, and with many consumers the order between
// keys. Its methods cost what the queue's cost. The zero value is not usable;
// see [NewModel].
type Model struct {
	a Arrangement

	fifo bool

	exclusive bool

	refuses bool

	concurrent bool

	waiting contents
	line    []item

	store map[string]any

	hands map[int][]delta

	closed, canceled bool

	begun, synced bool
	initial       int

	used, slack int
}

// item is a call of a producer that takes effect when its turn comes.
type item struct {
	kind Kind

	delta delta

	list    []any
	initial bool
}

func (i item) String() string {
	if i.kind == Replace {
		return word(cache.Delta{Type: "Replace", Object: cache.ReplacedAllInfo{Objects: i.list}}) + versions(i.list)
	}
	return i.delta.String()
}

// contents is what waits, in the way of a delivery.
type contents interface {
	event(m *Model, d delta)
	replace(m *Model, list []any)
	resync(m *Model)

	handOver(m *Model, h handover) (handed []delta, err error)

	mark() int

	len() int
	clone() contents

	write(b *strings.Builder)
}

// delta is one that waits.
type delta struct {
	typ cache.DeltaType
	obj any

	placeless bool

	initial bool

	group int
}

func (d delta) String() string { return word(cache.Delta{Type: d.typ, Object: d.obj}) }

// NewModel returns the model of an empty queue of a variant.
func NewModel(v deltafifo.Variant, a Arrangement) *Model {
	g, _ := v.Mode(string(a.Delivery))
	b := bed{Arrangement: a, variant: v, guarantees: g}
	if a.BatchSize == 0 {
		a.BatchSize = deltafifo.DefaultBatchSize
	}
	m := &Model{
		a: a, fifo: b.fifo(), exclusive: oneAtATime(b), refuses: ours(b),
		store: map[string]any{}, hands: map[int][]delta{},
	}
	if perKey(b) {
		m.waiting = newKeysModel()
	} else {
		m.waiting = &lineModel{}
	}
	return m
}

func (m *Model) clone() *Model {
	c := *m
	c.waiting = m.waiting.clone()
	c.line = slices.Clip(m.line)
	c.store = maps.Clone(m.store)
	c.hands = maps.Clone(m.hands)
	return &c
}

// String writes the whole state, so that equal states give equal strings.
func (m *Model) String() string {
	var b strings.Builder
	m.waiting.write(&b)
	for _, i := range m.line {
		fmt.Fprintf(&b, "<- %v ", i)
	}
	fmt.Fprintf(&b, " used=%d closed=%t canceled=%t store=%v", m.used, m.closed, m.canceled, state(m.store))
	for _, c := range slices.Sorted(maps.Keys(m.hands)) {
		fmt.Fprintf(&b, " hand %d=%v", c, m.hands[c])
	}
	return b.String()
}

// Len returns how much waits.
func (m *Model) Len() int { return m.waiting.len() }

// HasSynced reports whether the initial list has been processed.
func (m *Model) HasSynced() bool { return m.synced }

// Close notes that the queue was closed.
func (m *Model) Close() { m.closed = true }

// Event notes a call of Add, Update or Delete that returned err.
func (m *Model) Event(typ cache.DeltaType, obj any, err error) error {
	if _, ok := obj.(nameless); ok {
		var keyError cache.KeyError
		if !errors.As(err, &keyError) {
			return fmt.Errorf("an object without a key gave %w, want a KeyError", err)
		}
		m.begin() // As upstream, it counts as the first that came.
		return nil
	}
	if accepted, err := m.accept(err); !accepted {
		return err
	}
	m.begin()
	return m.push(item{delta: delta{typ: typ, obj: obj}})
}

// begin notes that something else than a list came.
func (m *Model) begin() {
	if !m.begun {
		m.begun, m.synced = true, true
	}
}

// Replace notes a call of Replace that returned err.
func (m *Model) Replace(list []any, resourceVersion string, err error) error {
	if accepted, err := m.accept(err); !accepted {
		return err
	}
	i := item{kind: Replace, list: list, initial: !m.begun}
	m.begun = true
	if m.whole() {
		i.delta = delta{typ: cache.ReplacedAll, obj: cache.ReplacedAllInfo{ResourceVersion: resourceVersion, Objects: list}}
	}
	return m.push(i)
}

// Resync notes a call of Resync that returned err.
func (m *Model) Resync(err error) error {
	if !m.whole() && !m.a.Known {
		return err
	}
	if accepted, err := m.accept(err); !accepted {
		return err
	}
	return m.push(item{kind: Resync, delta: delta{typ: cache.SyncAll, obj: cache.SyncAllInfo{}}})
}

// Bookmark notes a call of Bookmark that returned err.
func (m *Model) Bookmark(resourceVersion string, err error) error {
	if !m.whole() {
		return err
	}
	if accepted, err := m.accept(err); !accepted {
		return err
	}
	return m.push(item{delta: delta{typ: cache.Bookmark, obj: cache.BookmarkInfo{ResourceVersion: resourceVersion}}})
}

// push puts an item in line, and says whether there was room.
func (m *Model) push(i item) error {
	m.line = append(m.line, i)
	after := m
	if m.concurrent {
		if m.a.Capacity == 0 {
			return nil
		}
		after = m.clone()
	}
	after.foldLine(len(after.line))
	if m.a.Capacity > 0 && after.used > m.a.Capacity {
		return fmt.Errorf("accepted though all %d places were taken", m.a.Capacity)
	}
	return nil
}

// foldLine lets the first n in line take effect.
func (m *Model) foldLine(n int) {
	for _, i := range m.line[:n] {
		switch {
		case i.kind == Replace && !m.whole():
			m.slack++
			m.waiting.replace(m, i.list)
		case i.kind == Resync && !m.whole():
			m.slack++
			m.waiting.resync(m)
		default:
			m.waiting.event(m, i.delta)
		}
		if i.initial {
			m.initial = m.waiting.mark()
			m.synced = m.initial == 0
		}
	}
	m.line = slices.Clone(m.line[n:])
}

// whole: Replace and Resync are one delta each.
func (m *Model) whole() bool { return m.a.Delivery == deltafifo.InOrder && !m.a.Known }

// accept judges what a producer's call returned. It is accepted where that is
// nil and may be nil.
func (m *Model) accept(err error) (accepted bool, unexpected error) {
	switch {
	case err == nil:
		if m.closed && m.refuses {
			return false, errors.New("accepted after Close")
		}
		return true, nil
	case errors.Is(err, cache.ErrFIFOClosed):
		if !m.closed {
			return false, fmt.Errorf("refused with %w, though nobody closed it", err)
		}
		return false, nil
	case errors.Is(err, context.Canceled) && m.a.Capacity > 0:
		if m.closed && !m.concurrent {
			return false, errors.New("waited for room in a closed queue")
		}
		if m.concurrent && !m.canceled {
			return false, errors.New("the wait ended before its context")
		}
		if most := m.used + m.slack; most < m.a.Capacity && !m.concurrent {
			return false, fmt.Errorf("waited for room though at most %d of %d places are taken", most, m.a.Capacity)
		}
		return false, nil
	default:
		return false, fmt.Errorf("refused with %w", err)
	}
}

// place counts the place of a delta that came.
func (m *Model) place(d delta) {
	if !d.placeless {
		m.used++
	}
}

// unplace counts the place of a delta that is handed over.
func (m *Model) unplace(d delta) {
	if !d.placeless {
		m.used--
	}
}

// fold counts the place of a delta that isn't handed over.
func (m *Model) fold(d delta) {
	if !d.placeless {
		m.used--
		m.slack++
	}
}

// handOver notes that consumer c is handed something: process has been called.
func (m *Model) handOver(c int, h handover) error {
	if len(m.hands[c]) > 0 {
		return fmt.Errorf("consumer %d is handed something while it processes", c)
	}
	if m.exclusive && len(m.hands) > 0 {
		return errors.New("two consumers process at once")
	}
	if err := m.shape(h); err != nil {
		return err
	}
	for _, d := range h.deltas {
		if key := keyOf(d.Object); len(m.hands) > 0 && m.inHand(key) != nil {
			return fmt.Errorf("key %s is handed to two consumers", key)
		}
	}
	if m.fifo && !m.concurrent && h.initial == m.synced {
		return fmt.Errorf("handed over with isInInitialList=%t, though HasSynced is %t", h.initial, m.synced)
	}
	handed, err := m.waiting.handOver(m, h)
	if err != nil {
		return err
	}
	// Between shards what came later may be handed over before the last of the
	// initial list.
	if !m.fifo && !m.concurrent && h.initial != handed[0].initial {
		return fmt.Errorf("%v was handed over with isInInitialList=%t", words(h.deltas), h.initial)
	}
	for _, d := range handed {
		m.unplace(d)
	}
	m.hands[c] = handed
	if m.waiting.len() == 0 {
		m.slack = 0
	}
	return nil
}

func (m *Model) shape(h handover) error {
	switch {
	case len(h.deltas) == 0:
		return errors.New("nothing was handed over")
	case h.batch && len(h.deltas) == 1:
		return errors.New("processBatch was handed one delta, which goes to process")
	case h.batch && len(h.deltas) > m.a.BatchSize:
		return fmt.Errorf("a batch of %d, more than %d", len(h.deltas), m.a.BatchSize)
	}
	return nil
}

// done notes that process has returned to consumer c; applied is false where
// it failed, so that the consumer holds what it held before.
func (m *Model) done(c int, applied bool) {
	for _, d := range m.hands[c] {
		if d.initial {
			m.initial--
			m.synced = m.synced || m.initial == 0
		}
		if applied && m.a.Known {
			m.apply(d)
		}
	}
	delete(m.hands, c)
}

func (m *Model) apply(d delta) {
	if key := keyOf(d.obj); d.typ == cache.Deleted {
		delete(m.store, key)
	} else if o, ok := d.obj.(metav1.Object); ok {
		m.store[key] = o
	}
}

// ended judges a take that returned ErrFIFOClosed.
func (m *Model) ended() error {
	if !m.closed {
		return errors.New("take says that the queue is closed, which nobody did")
	}
	m.foldLine(len(m.line))
	if n := m.waiting.len(); n > 0 {
		return fmt.Errorf("take says that the queue is drained, where %d wait: %v", n, m)
	}
	return nil
}

// inHand returns the newest delta of a key that is being processed, or nil.
func (m *Model) inHand(key string) *delta {
	if key == "" {
		return nil
	}
	for _, hand := range m.hands {
		for i := len(hand) - 1; i >= 0; i-- {
			if keyOf(hand[i].obj) == key {
				return &hand[i]
			}
		}
	}
	return nil
}

// match holds what was handed over to the front of what is wanted. What may come
// in any order is brought into that which it came in.
func match(got []cache.Delta, want []delta) error {
	for n, d := range got {
		for j := n + 1; n < len(want) && want[n].group > 0 && j < len(want) && want[j].group == want[n].group; j++ {
			if want[j].is(d) {
				want[n], want[j] = want[j], want[n]
			}
		}
		if n == len(want) || !want[n].is(d) {
			return fmt.Errorf("number %d of the hand-over %v is not what comes next in %v", n, words(got), want[:min(len(want), n+20)])
		}
	}
	return nil
}

// is reports whether this is the delta that was handed over: the same object,
// not one like it.
func (d delta) is(got cache.Delta) bool {
	if d.typ != got.Type {
		return false
	}
	switch want := d.obj.(type) {
	case cache.DeletedFinalStateUnknown:
		have, ok := got.Object.(cache.DeletedFinalStateUnknown)
		return ok && have.Key == want.Key && have.Obj == want.Obj
	case cache.ReplacedAllInfo:
		have, ok := got.Object.(cache.ReplacedAllInfo)
		return ok && have.ResourceVersion == want.ResourceVersion && slices.Equal(have.Objects, want.Objects)
	default:
		return got.Object == d.obj
	}
}
