package workqueue

import (
	"cmp"
	"slices"
)

// list is a doubly linked list through nodes inside its values: it allocates nothing, and a value leaves
// it from any place. The zero value is an empty list. It must not be copied.
type list[V any] struct{ root node[V] }

// node is the place of a value in at most one list.
type node[V any] struct {
	prev, next *node[V]
	value      *V // nil for the root of a list
}

func (l *list[V]) empty() bool { return l.root.next == nil || l.root.next == &l.root }

// front returns the first value; there must be one.
func (l *list[V]) front() *V { return l.root.next.value }

// pop removes the first value, or returns nil.
func (l *list[V]) pop() *V {
	if l.empty() {
		return nil
	}
	n := l.root.next
	n.remove()
	return n.value
}

func (l *list[V]) push(n *node[V]) {
	if l.root.next == nil {
		l.root.prev, l.root.next = &l.root, &l.root
	}
	n.prev, n.next = l.root.prev, &l.root
	n.prev.next, n.next.prev = n, n
}

func (n *node[V]) remove() {
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}

// StarvationLimit bounds how long lower priorities wait: a priority with ready items that was passed over
// by so many items in a row gives the next one. If L priorities had ready items meanwhile, at most
// StarvationLimit+L-1 items pass it over.
const StarvationLimit = 64

// levels has the ready items: by priority, then by namespace, then in the order of their adding.
//
// push, pop and remove take O(log L) with L priorities that have items, and O(L) for the first and the
// last item of a priority. L is small: 1 or 2 in controller-runtime.
type levels[T comparable] struct {
	n          int
	sorted     []*level[T]         // the highest priority last
	turns      list[level[T]]      // the same, the level that was passed over most often first
	popped     uint64              // counts items
	flows      map[flowID]*flow[T] // nil unless the queue is fair
	freeLevels list[level[T]]
	freeFlows  list[flow[T]]
}

// level is a priority with ready items.
type level[T comparable] struct {
	priority int
	turn     node[level[T]]
	since    uint64        // levels.popped when the level last gave an item, or got its first one
	flows    list[flow[T]] // with items, in the order of their turns
	only     flow[T]       // of a queue that is not fair
}

type flowID struct {
	priority  int
	namespace string
}

// flow is the ready items of a namespace with one priority, oldest first.
type flow[T comparable] struct {
	id    flowID
	level *level[T]
	turn  node[flow[T]]
	items list[entry[T]]
}

func (ls *levels[T]) find(priority int) (int, bool) {
	return slices.BinarySearchFunc(ls.sorted, priority, func(l *level[T], p int) int { return cmp.Compare(l.priority, p) })
}

// push adds an item behind those of its priority and namespace.
func (ls *levels[T]) push(e *entry[T]) {
	at, ok := ls.find(e.priority)
	if !ok {
		l := ls.freeLevels.pop()
		if l == nil {
			l = new(level[T])
			l.turn.value, l.only.turn.value, l.only.level = l, &l.only, l
		}
		l.priority, l.since = e.priority, ls.popped
		ls.turns.push(&l.turn)
		ls.sorted = slices.Insert(ls.sorted, at, l)
	}
	l := ls.sorted[at]
	e.flow = &l.only
	if ls.flows != nil {
		e.flow = ls.flow(flowID{e.priority, e.namespace}, l)
	}
	if e.flow.items.empty() {
		l.flows.push(&e.flow.turn)
	}
	e.flow.items.push(&e.node)
	ls.n++
}

// flow returns the flow of a namespace, which is new if it had no items.
func (ls *levels[T]) flow(id flowID, l *level[T]) *flow[T] {
	f := ls.flows[id]
	if f == nil {
		if f = ls.freeFlows.pop(); f == nil {
			f = new(flow[T])
			f.turn.value = f
		}
		f.id, f.level = id, l
		ls.flows[id] = f
	}
	return f
}

// pop removes the next item; there must be one.
func (ls *levels[T]) pop() *entry[T] {
	l := ls.turns.front()
	if ls.popped-l.since < StarvationLimit {
		l = ls.sorted[len(ls.sorted)-1]
	}
	ls.popped++
	l.since = ls.popped
	l.turn.remove()
	ls.turns.push(&l.turn)
	f := l.flows.front()
	f.turn.remove()
	l.flows.push(&f.turn)
	e := f.items.front()
	ls.remove(e)
	return e
}

// remove takes out an item, and with the last one its flow and its level.
func (ls *levels[T]) remove(e *entry[T]) {
	f, l := e.flow, e.flow.level
	e.flow = nil
	e.node.remove()
	ls.n--
	if !f.items.empty() {
		return
	}
	f.turn.remove()
	if f != &l.only {
		delete(ls.flows, f.id)
		f.id, f.level = flowID{}, nil
		ls.freeFlows.push(&f.turn)
	}
	if !l.flows.empty() {
		return
	}
	l.turn.remove()
	at, _ := ls.find(l.priority)
	ls.sorted = slices.Delete(ls.sorted, at, at+1)
	ls.freeLevels.push(&l.turn)
}
