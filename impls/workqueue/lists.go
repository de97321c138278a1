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

// levels has the ready items: by priority, then in the order of their adding.
//
// push, pop and remove take O(log L) with L priorities that have items, and O(L) for the first and the
// last item of a priority. L is small: 1 or 2 in controller-runtime.
type levels[T comparable] struct {
	n      int
	sorted []*level[T]    // the highest priority last
	turns  list[level[T]] // the same, the level that was passed over most often first
	popped uint64         // counts items
	free   list[level[T]]
}

// level is a priority with ready items.
type level[T comparable] struct {
	priority int
	turn     node[level[T]]
	since    uint64         // levels.popped when the level last gave an item, or got its first one
	items    list[entry[T]] // oldest first
}

func (ls *levels[T]) find(priority int) (int, bool) {
	return slices.BinarySearchFunc(ls.sorted, priority, func(l *level[T], p int) int { return cmp.Compare(l.priority, p) })
}

// push adds an item behind those of its priority.
func (ls *levels[T]) push(e *entry[T]) {
	at, ok := ls.find(e.priority)
	if !ok {
		l := ls.free.pop()
		if l == nil {
			l = new(level[T])
			l.turn.value = l
		}
		l.priority, l.since = e.priority, ls.popped
		ls.turns.push(&l.turn)
		ls.sorted = slices.Insert(ls.sorted, at, l)
	}
	e.level = ls.sorted[at]
	e.level.items.push(&e.node)
	ls.n++
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
	e := l.items.front()
	ls.remove(e)
	return e
}

// remove takes out an item, and with the last one its level.
func (ls *levels[T]) remove(e *entry[T]) {
	l := e.level
	e.level = nil
	e.node.remove()
	ls.n--
	if !l.items.empty() {
		return
	}
	l.turn.remove()
	at, _ := ls.find(l.priority)
	ls.sorted = slices.Delete(ls.sorted, at, at+1)
	ls.free.push(&l.turn)
}
