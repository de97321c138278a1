package clientgo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// queueModel is the contract of families deltafifo and queue as a sequential machine. Each method takes a
// call with what it returned, and returns an error where the contract does not allow that. Where the contract
// leaves a choice, what was returned says which was made: how long a batch is within its bounds, the order of
// tombstones and of the keys of a list, and with many consumers the order between keys. The methods cost what
// the queue's cost.
type queueModel struct {
	queueSetup
	// concurrent: the order of calls is known only as far as a history does.
	concurrent bool
	closed     bool

	begun, synced bool
	// uncertain: the contract does not determine synced, which is HasSynced.
	uncertain bool
	initial   int // deltas or keys of the initial list to be processed

	// order holds the entries in queue order, including removed ones; live counts the others.
	order  []*entry
	live   int
	newest map[string]*entry // newest entry of each key
	// rank is that of the next entry. Entries of equal rank come in any order.
	rank int
	// deleted, of family queue, are the keys that were deleted since the last list.
	deleted map[string]bool
	// line holds accepted calls that have not taken effect. Only a concurrent model of deltas delays them.
	line    []item
	store   map[string]any
	process map[int][]delta // deltas in process by consumer

	// used is the capacity in use by queued deltas. slack may be in use besides: the capacity of dropped
	// deltas is freed when they are folded, as by Len.
	used, slack int
}

// begin is the first call, which is not a list.
func (m *queueModel) begin() {
	if !m.begun {
		m.begun, m.synced = true, true
	}
}

// item is an accepted call.
type item struct {
	delta   cache.Delta
	initial bool
}

// delta is a queued delta.
type delta struct {
	typ       cache.DeltaType
	obj       any
	placeless bool // uses no capacity: it is part of a list
	initial   bool // part of the initial list
}

func (d delta) String() string { return word(cache.Delta{Type: d.typ, Object: d.obj}) }

func newQueueModel(s queueSetup, concurrent bool) *queueModel {
	return &queueModel{
		queueSetup: s, concurrent: concurrent,
		newest: map[string]*entry{}, deleted: map[string]bool{}, store: map[string]any{}, process: map[int][]delta{},
	}
}

func (m *queueModel) clone() *queueModel {
	c := *m
	c.order, c.newest = nil, make(map[string]*entry, len(m.newest))
	for _, e := range m.order {
		if !e.gone {
			e := *e
			c.newest[e.key] = &e
			c.order = append(c.order, &e)
		}
	}
	c.line = slices.Clip(m.line)
	c.deleted, c.store, c.process = maps.Clone(m.deleted), maps.Clone(m.store), maps.Clone(m.process)
	return &c
}

// String returns the whole state of a history: equal states give equal strings.
func (m *queueModel) String() string {
	var b strings.Builder
	rank := 0
	for _, e := range m.order {
		if e.gone {
			continue
		}
		if e.rank == rank {
			b.WriteString("or ")
		}
		fmt.Fprintf(&b, "%s: %v loose=%t ", e.key, e.deltas, e.loose)
		rank = e.rank
	}
	for _, i := range m.line {
		fmt.Fprintf(&b, "<- %s ", word(i.delta))
	}
	fmt.Fprintf(&b, " used=%d closed=%t store=%v deleted=%v", m.used, m.closed, state(maps.Values(m.store)), m.deleted)
	for _, c := range slices.Sorted(maps.Keys(m.process)) {
		fmt.Fprintf(&b, " process %d=%v", c, m.process[c])
	}
	return b.String()
}

// full reports whether a call may have to wait for room.
func (m *queueModel) full() bool {
	return bounded(m.queueSetup) && !m.closed && m.used+m.slack >= m.Capacity
}

// call is a call of a producer, as in [queueSetup.push], and its error.
func (m *queueModel) call(d cache.Delta, err error) error {
	switch {
	case withoutKey(d):
		if !m.objects && d.Type != cache.ReplacedAll && (inOrder(m.queueSetup) || d.Type != cache.Deleted) {
			m.begin() // As upstream, it counts as the first call.
		}
		return wantKeyError(err)
	case d.Type == cache.SyncAll && !deletesSeen(m.queueSetup), d.Type == cache.Bookmark && !atomicLists(m.queueSetup):
		return err
	}
	// Whether a call of family queue after Close counts as the first is open.
	m.uncertain = m.uncertain || m.objects && m.closed && !m.begun
	if err != nil || m.closed && ours(m.queueSetup) {
		return err
	}
	i := item{delta: d}
	switch d.Type {
	case cache.ReplacedAll:
		// In family queue, a list that comes before the first one has been processed takes its place. Not so
		// upstream.
		i.initial = !m.begun || m.objects && !m.synced
		m.uncertain = m.uncertain || i.initial && m.begun && upstream(m.queueSetup)
		m.begun = true
	case cache.SyncAll, cache.Bookmark:
	default:
		m.begin()
	}
	return m.push(i)
}

// withoutKey reports whether a call has an object without a key.
func withoutKey(d cache.Delta) bool {
	if list, ok := d.Object.(cache.ReplacedAllInfo); ok {
		return slices.Contains(list.Objects, any(nameless{}))
	}
	return d.Object == nameless{}
}

func wantKeyError(err error) error {
	var keyError cache.KeyError
	if !errors.As(err, &keyError) {
		return fmt.Errorf("an object without a key gave %w, want a KeyError", err)
	}
	return nil
}

// push puts an item in line, and returns an error where there was no room.
func (m *queueModel) push(i item) error {
	m.line = append(m.line, i)
	after := m
	if m.concurrent && !m.objects {
		if m.Capacity == 0 {
			return nil
		}
		after = m.clone()
	}
	after.foldLine(len(after.line))
	if m.Capacity > 0 && after.used > m.Capacity {
		return fmt.Errorf("accepted with all %d in use", m.Capacity)
	}
	return nil
}

// foldLine lets the first n in line take effect.
func (m *queueModel) foldLine(n int) {
	for _, i := range m.line[:n] {
		list, isList := i.delta.Object.(cache.ReplacedAllInfo)
		switch {
		case isList && m.objects:
			m.list(list.Objects)
		case isList && !atomicLists(m.queueSetup):
			m.slack++
			m.replace(list.Objects)
		case i.delta.Type == cache.SyncAll && !atomicLists(m.queueSetup):
			m.slack++
			m.resync()
		default:
			m.event(delta{typ: i.delta.Type, obj: i.delta.Object})
		}
		if i.initial {
			m.initial = m.live
			for _, e := range m.order {
				e.initial = true
			}
			m.synced = m.initial == 0
		}
	}
	m.line = slices.Clone(m.line[n:])
}

// fold counts a delta that is dropped.
func (m *queueModel) fold(d delta) {
	if !d.placeless {
		m.used--
		m.slack++
	}
}

// popped is the call of process by a consumer.
func (m *queueModel) popped(c int, p popped) error {
	m.foldLine(len(m.line))
	switch {
	case len(m.process[c]) > 0:
		return fmt.Errorf("consumer %d pops while it processes", c)
	case oneAtATime(m.queueSetup) && len(m.process) > 0:
		return errors.New("two consumers process at once")
	}
	if err := p.check(m.queueSetup); err != nil {
		return err
	}
	for _, d := range p.deltas {
		if key := keyOf(d.Object); len(m.process) > 0 && m.inProcess(key) != nil {
			return fmt.Errorf("key %s is in process twice", key)
		}
	}
	if (fifo(m.queueSetup) || m.objects) && !m.concurrent && !m.uncertain && p.initial == m.synced {
		return fmt.Errorf("popped with isInInitialList=%t, though HasSynced is %t", p.initial, m.synced)
	}
	deltas, err := m.take(p)
	if err != nil {
		return err
	}
	// Between shards, later events may be popped before the last of the initial list.
	if !fifo(m.queueSetup) && !m.objects && !m.concurrent && p.initial != deltas[0].initial {
		return fmt.Errorf("%v was popped with isInInitialList=%t", words(p.deltas), p.initial)
	}
	for _, d := range deltas {
		if !d.placeless {
			m.used--
		}
	}
	m.process[c] = deltas
	if m.live == 0 {
		m.slack = 0
	}
	return nil
}

// leave counts what was queued and is neither queued nor in process any more.
func (m *queueModel) leave(initial bool) {
	if initial {
		m.initial--
		m.synced = m.synced || m.initial == 0
	}
}

// done is the return of process. applied says whether the store was updated.
func (m *queueModel) done(c int, applied bool) {
	for _, d := range m.process[c] {
		m.leave(d.initial)
		if !applied || !m.known {
			continue
		}
		if key := keyOf(d.obj); d.typ == cache.Deleted {
			delete(m.store, key)
		} else if o, ok := d.obj.(metav1.Object); ok {
			m.store[key] = o
		}
	}
	delete(m.process, c)
}

// afterDone returns the possible states after done, and does not change this one: a call that reads the store
// may have done so before it changed.
func (m *queueModel) afterDone(consumer int) []*queueModel {
	var next []*queueModel
	for n := range len(m.line) + 1 {
		if n == 0 || m.line[n-1].delta.Type == cache.SyncAll || m.line[n-1].delta.Type == cache.ReplacedAll {
			after := m.clone()
			after.foldLine(n)
			after.done(consumer, true)
			next = append(next, after)
		}
	}
	return next
}

// ended is a pop that returned [cache.ErrFIFOClosed].
func (m *queueModel) ended() error {
	if !m.closed {
		return errors.New("pop returned ErrFIFOClosed before Close")
	}
	m.foldLine(len(m.line))
	if n := m.live; n > 0 {
		return fmt.Errorf("pop returned ErrFIFOClosed with %d queued: %v", n, m)
	}
	return nil
}

// inProcess returns the newest delta of a key that is in process, or nil.
func (m *queueModel) inProcess(key string) *delta {
	if key == "" {
		return nil
	}
	for _, deltas := range m.process {
		for i := len(deltas) - 1; i >= 0; i-- {
			if keyOf(deltas[i].obj) == key {
				return &deltas[i]
			}
		}
	}
	return nil
}

// is reports whether this delta was popped: the same object, not an equal one.
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
