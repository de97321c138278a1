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

// model is a contract as a sequential machine. Each method takes a call with
// what it returned and returns an error where the contract does not allow that.
// Where the contract leaves a choice, what was returned says which was made.
type queueModel interface {
	// call is a call of a producer, as in [queueSetup.push], and its error.
	call(d cache.Delta, err error) error

	// popped is the call of process by a consumer; done is its return. applied
	// says whether the store was updated. afterDone returns the possible states
	// after done and does not change this one.
	popped(consumer int, p popped) error
	done(consumer int, applied bool)
	afterDone(consumer int) []queueModel
	// ended is a pop that returned [cache.ErrFIFOClosed].
	ended() error

	len() int
	// full reports whether a call may have to wait for room.
	full() bool
	base() *modelBase
	clone() queueModel
	// String returns the whole state: equal states give equal strings.
	String() string
}

// newQueueModel returns the model of an empty queue. A concurrent one knows the order
// of calls only as far as a history does.
func newQueueModel(s queueSetup, concurrent bool) queueModel {
	if s.objects {
		return newObjectModel(s, concurrent)
	}
	return newDeltaModel(s, concurrent)
}

// modelBase is the common part of the models.
type modelBase struct {
	queueSetup
	concurrent bool
	closed     bool

	begun, synced bool
	// uncertain: the contract does not determine synced, which is HasSynced.
	uncertain bool
	// slack is capacity that may be in use besides that of queued deltas: that of dropped ones is freed
	// when they are folded, as by Len.
	slack int
}

func (m *modelBase) base() *modelBase { return m }

// begin is the first call, which is not a list.
func (m *modelBase) begin() {
	if !m.begun {
		m.begun, m.synced = true, true
	}
}

// refused reports whether a call had no effect: after Close, or with an error, which the contract does not allow.
func (m *modelBase) refused(err error) bool { return err != nil || m.closed && ours(m.queueSetup) }

// deltaModel is the contract of family deltafifo. It leaves open what the contract leaves open: how
// long a batch is within its bounds, the order of tombstones, and with many consumers the order
// between keys. Its methods cost what the queue's cost.
type deltaModel struct {
	modelBase

	// order holds the entries in queue order, including removed ones; live counts the others.
	order  []*entry
	live   int
	newest map[string]*entry // newest entry of each key
	// rank is that of the next entry. Entries of equal rank come in any order.
	rank int
	// line holds accepted calls that have not taken effect. Only a concurrent model delays them.
	line    []item
	store   map[string]any
	process map[int][]delta // deltas in process by consumer

	initial int // deltas or keys of the initial list to be processed

	used int // the capacity in use by queued deltas
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

func newDeltaModel(s queueSetup, concurrent bool) *deltaModel {
	return &deltaModel{
		modelBase: modelBase{queueSetup: s, concurrent: concurrent},
		newest:    map[string]*entry{}, store: map[string]any{}, process: map[int][]delta{},
	}
}

func (m *deltaModel) clone() queueModel { return m.copy() }

func (m *deltaModel) copy() *deltaModel {
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
	c.store = maps.Clone(m.store)
	c.process = maps.Clone(m.process)
	return &c
}

func (m *deltaModel) String() string {
	var b strings.Builder
	rank := 0
	for _, e := range m.order {
		if e.gone {
			continue
		}
		if e.rank == rank {
			b.WriteString("or ")
		}
		fmt.Fprintf(&b, "%s: %v ", e.key, e.deltas)
		rank = e.rank
	}
	for _, i := range m.line {
		fmt.Fprintf(&b, "<- %s ", word(i.delta))
	}
	fmt.Fprintf(&b, " used=%d closed=%t store=%v", m.used, m.closed, state(maps.Values(m.store)))
	for _, c := range slices.Sorted(maps.Keys(m.process)) {
		fmt.Fprintf(&b, " process %d=%v", c, m.process[c])
	}
	return b.String()
}

func (m *deltaModel) len() int { return m.live }

func (m *deltaModel) full() bool {
	return bounded(m.queueSetup) && !m.closed && m.used+m.slack >= m.Capacity
}

func (m *deltaModel) call(d cache.Delta, err error) error {
	switch {
	case withoutKey(d):
		if d.Type != cache.ReplacedAll && (inOrder(m.queueSetup) || d.Type != cache.Deleted) {
			m.begin() // As upstream, it counts as the first call.
		}
		return wantKeyError(err)
	case d.Type == cache.SyncAll && !deletesSeen(m.queueSetup), d.Type == cache.Bookmark && !atomicLists(m.queueSetup):
		return err
	}
	if m.refused(err) {
		return err
	}
	i := item{delta: d}
	switch d.Type {
	case cache.ReplacedAll:
		i.initial = !m.begun
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
func (m *deltaModel) push(i item) error {
	m.line = append(m.line, i)
	after := m
	if m.concurrent {
		if m.Capacity == 0 {
			return nil
		}
		after = m.copy()
	}
	after.foldLine(len(after.line))
	if m.Capacity > 0 && after.used > m.Capacity {
		return fmt.Errorf("accepted with all %d in use", m.Capacity)
	}
	return nil
}

// foldLine lets the first n in line take effect.
func (m *deltaModel) foldLine(n int) {
	for _, i := range m.line[:n] {
		list, isList := i.delta.Object.(cache.ReplacedAllInfo)
		switch {
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
func (m *deltaModel) fold(d delta) {
	if !d.placeless {
		m.used--
		m.slack++
	}
}

func (m *deltaModel) popped(c int, p popped) error {
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
	if fifo(m.queueSetup) && !m.concurrent && p.initial == m.synced {
		return fmt.Errorf("popped with isInInitialList=%t, though HasSynced is %t", p.initial, m.synced)
	}
	deltas, err := m.take(p)
	if err != nil {
		return err
	}
	// Between shards, later events may be popped before the last of the initial list.
	if !fifo(m.queueSetup) && !m.concurrent && p.initial != deltas[0].initial {
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

func (m *deltaModel) done(c int, applied bool) {
	for _, d := range m.process[c] {
		if d.initial {
			m.initial--
			m.synced = m.synced || m.initial == 0
		}
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

// afterDone: a call that reads the store may have done so before it changed.
func (m *deltaModel) afterDone(consumer int) []queueModel {
	var next []queueModel
	for n := range len(m.line) + 1 {
		if n == 0 || m.line[n-1].delta.Type == cache.SyncAll || m.line[n-1].delta.Type == cache.ReplacedAll {
			after := m.copy()
			after.foldLine(n)
			after.done(consumer, true)
			next = append(next, after)
		}
	}
	return next
}

func (m *deltaModel) ended() error {
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
func (m *deltaModel) inProcess(key string) *delta {
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
