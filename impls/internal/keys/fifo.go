package keys

// Entry is a queued key with its value.
type Entry[V any] struct {
	// Key is constant while the entry is queued.
	Key Key
	// Value may be changed by the caller.
	Value V
	// hash is the hash of Key. prev and next are the neighbours in push order.
	hash       uint64
	prev, next *Entry[V]
}

// Next returns the entry that was queued after e, or nil.
func (e *Entry[V]) Next() *Entry[V] { return e.next }

// FIFO queues keys, each at most once, with a value. Queues use it to merge the
// events of a queued key. It is a hash table whose entries are linked in push
// order. Get, Push and Remove are O(1), except that doubling or halving rebuilds
// the table. It is not safe for concurrent use. The zero value is empty and
// ready.
//
// Entries are reused, so that the steady state does not allocate; at most
// [maxFree] are kept. The caller passes the hash of the key, so that it can be
// computed before a lock is taken.
type FIFO[V any] struct {
	// slots is an open-addressing table with linear probing; its length is a
	// power of two. A slot with a nil entry is free. Deletion shifts the rest of
	// the run back. So there are no tombstones, and probes do not become longer
	// as keys come and go.
	slots []slot[V]
	// n is the number of entries.
	n int
	// head is the oldest entry, tail the newest.
	head, tail *Entry[V]
	// free is a list, linked by next, of nfree entries for reuse.
	free  *Entry[V]
	nfree int
}

type slot[V any] struct {
	hash  uint64
	entry *Entry[V]
}

const (
	minSlots = 16
	// keepSlots and maxFree bound the memory that is kept after a burst. A table
	// that shrinks on each drain would be rebuilt on each burst.
	keepSlots = 16384
	maxFree   = 8192
	// slab is the number of entries per allocation.
	slab = 64
)

// Len returns the number of queued keys.
func (f *FIFO[V]) Len() int { return f.n }

// Front returns the oldest entry, or nil.
func (f *FIFO[V]) Front() *Entry[V] { return f.head }

// Get returns the entry of a key, or nil.
func (f *FIFO[V]) Get(hash uint64, key Key) *Entry[V] {
	if f.n == 0 {
		return nil
	}
	mask := uint64(len(f.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &f.slots[i]
		if s.entry == nil {
			return nil
		}
		if s.hash == hash && s.entry.Key == key {
			return s.entry
		}
	}
}

// Push appends a key that is not queued and returns its entry, whose value
// is zero.
func (f *FIFO[V]) Push(hash uint64, key Key) *Entry[V] {
	// The table is at most three quarters full: probes stay short and one slot is
	// free.
	if f.n >= len(f.slots)-len(f.slots)/4 {
		f.resize(max(minSlots, 2*len(f.slots)))
	}
	e := f.newEntry()
	e.Key, e.hash = key, hash
	f.place(hash, e)
	f.n++

	e.prev = f.tail
	if f.tail == nil {
		f.head = e
	} else {
		f.tail.next = e
	}
	f.tail = e
	return e
}

// Remove removes an entry. The entry must not be used afterwards.
func (f *FIFO[V]) Remove(e *Entry[V]) {
	f.vacate(e)
	f.n--

	if e.prev == nil {
		f.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		f.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	f.recycle(e)

	// Halving at one eighth, doubling at three quarters: a queue that swings
	// between two lengths does not rebuild its table at each swing.
	if len(f.slots) > keepSlots && f.n < len(f.slots)/8 {
		f.resize(len(f.slots) / 2)
	}
}

// Clear removes all entries.
func (f *FIFO[V]) Clear() { *f = FIFO[V]{free: f.free, nfree: f.nfree} }

func (f *FIFO[V]) place(hash uint64, e *Entry[V]) {
	mask := uint64(len(f.slots) - 1)
	i := hash & mask
	for f.slots[i].entry != nil {
		i = (i + 1) & mask
	}
	f.slots[i] = slot[V]{hash, e}
}

// vacate frees the slot of an entry and closes the gap: a later slot of the run
// moves back if its own probe would reach the gap.
func (f *FIFO[V]) vacate(e *Entry[V]) {
	mask := uint64(len(f.slots) - 1)
	gap := e.hash & mask
	for f.slots[gap].entry != e {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; f.slots[i].entry != nil; i = (i + 1) & mask {
		home := f.slots[i].hash & mask
		// The slot may move if its home is not strictly between gap and i.
		if (i-home)&mask >= (i-gap)&mask {
			f.slots[gap] = f.slots[i]
			gap = i
		}
	}
	f.slots[gap] = slot[V]{}
}

func (f *FIFO[V]) resize(n int) {
	f.slots = make([]slot[V], n)
	for e := f.head; e != nil; e = e.next {
		f.place(e.hash, e)
	}
}

func (f *FIFO[V]) newEntry() *Entry[V] {
	if f.free == nil {
		block := make([]Entry[V], slab)
		for i := range block {
			f.recycle(&block[i])
		}
	}
	e := f.free
	f.free, f.nfree = e.next, f.nfree-1
	e.next = nil
	return e
}

// recycle clears an entry and keeps it for reuse.
func (f *FIFO[V]) recycle(e *Entry[V]) {
	*e = Entry[V]{}
	if f.nfree < maxFree {
		e.next = f.free
		f.free, f.nfree = e, f.nfree+1
	}
}
