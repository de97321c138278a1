package keys

// FIFO queues keys, each at most once until [FIFO.Retire], with a value. Queues use it to merge the events of a queued
// key. It is not safe for concurrent use. The zero value is empty and ready. The caller passes the
// hash of the key, so that it can be computed before a lock is taken.
//
// # How it works
//
// Entries are in a circular buffer in order. So the next entry needs no hash lookup, and the
// processor prefetches the entries behind it. Each entry has a position, counted from 0.
//
// A hash table maps keys to positions. Its slots are integers, which the garbage collector does not
// scan. A slot is stale if its position is no longer queued, so that removing the first entry does
// not touch the table. The next key that probes past a stale slot reuses it. When too many slots
// are used, the table is rebuilt from the queued entries.
//
// An entry that is removed from the middle becomes a gap. It stays until it
// reaches the front, or until gaps outnumber other entries.
//
// Positions have 32 bits and wrap, and the last position is reused when its entry is removed. A
// slot may then refer to the entry of another key. So a lookup compares the whole key, and a wrong
// slot is harmless. There are never as many entries as positions.
//
// # Rejected designs
//
// A table of linked entries needs a hash lookup per removal. Its entries are
// scattered over the heap and cost half as much again in memory and cache misses.
type FIFO[V any] struct {
	// entries has a power of two as its length, or is nil. Position p has index p
	// modulo the length.
	entries []Entry[V]
	// head is the position of the first entry, which is never a gap; tail is the
	// position after the last. gaps counts the gaps between them.
	head, tail uint32
	gaps       int
	// slots has a power of two as its length, or is nil. A slot holds the upper
	// half of a hash, made odd, and below it a position; 0 is a free slot.
	slots []uint64
	used  int // counts the slots that are not free: at most three quarters
}

// Entry is a queued key with its value. It is valid until the next call of
// [FIFO.Upsert], [FIFO.Remove] or [FIFO.Take].
type Entry[V any] struct {
	Key   Key    // constant while the entry is queued
	Value V      // the caller may change it
	Hash  uint64 // finds Key in the queue; 0 in a gap: see queuedBit and [FIFO.Retire]
}

const (
	queuedBit = 1 << 63 // set in the Hash of every queued entry, except a retired one
	retired   = 1       // the Hash of a retired entry
)

func (e *Entry[V]) gap() bool { return e.Hash == 0 }

const (
	minEntries  = 16
	minSlots    = 128
	keepEntries = 8192            // bounds the buffer that is kept after a burst
	keepSlots   = 2 * keepEntries // bounds the table
)

// Len returns the number of queued keys.
func (f *FIFO[V]) Len() int { return int(f.tail-f.head) - f.gaps }

func (f *FIFO[V]) at(p uint32) *Entry[V] { return &f.entries[p&uint32(len(f.entries)-1)] }

// Front returns the oldest entry, or nil.
func (f *FIFO[V]) Front() *Entry[V] {
	if f.head == f.tail {
		return nil
	}
	return f.at(f.head)
}

// All yields the entries in order. The loop must not add or remove entries.
func (f *FIFO[V]) All(yield func(*Entry[V]) bool) {
	for p := f.head; p != f.tail; p++ {
		if e := f.at(p); !e.gap() && !yield(e) {
			return
		}
	}
}

func tagOf(hash uint64) uint32 { return uint32(hash>>32) | 1 }

// Get returns the entry of a key, or nil. O(1).
func (f *FIFO[V]) Get(hash uint64, key Key) *Entry[V] {
	if f.head == f.tail {
		return nil
	}
	hash |= queuedBit
	mask, tag := uint32(len(f.slots)-1), tagOf(hash)
	for i := uint32(hash) & mask; f.slots[i] != 0; i = (i + 1) & mask {
		if e := f.match(f.slots[i], tag, hash, key); e != nil {
			return e
		}
	}
	return nil
}

// match returns the entry at a slot's position if it has the key, or nil.
func (f *FIFO[V]) match(slot uint64, tag uint32, hash uint64, key Key) *Entry[V] {
	if uint32(slot>>32) != tag || f.stale(slot) {
		return nil
	}
	if e := f.at(uint32(slot)); e.Hash == hash && e.Key == key {
		return e
	}
	return nil
}

// stale reports whether a slot's position is no longer queued.
func (f *FIFO[V]) stale(slot uint64) bool { return uint32(slot)-f.head >= f.tail-f.head }

// Upsert returns the entry of a key. If the key is not queued, it appends a fresh
// entry whose value is zero. O(1), except that a full buffer or table is copied.
func (f *FIFO[V]) Upsert(hash uint64, key Key) (e *Entry[V], fresh bool) {
	if f.used >= len(f.slots)/4*3 {
		f.rebuild()
	}
	hash |= queuedBit
	mask, tag := uint32(len(f.slots)-1), tagOf(hash)
	// The first stale slot of the probe is reused.
	place, free := uint32(0), true
	i := uint32(hash) & mask
	for ; f.slots[i] != 0; i = (i + 1) & mask {
		if f.stale(f.slots[i]) {
			if free {
				place, free = i, false
			}
		} else if e := f.match(f.slots[i], tag, hash, key); e != nil {
			return e, false
		}
	}
	if free {
		place = i
		f.used++
	}
	// push may move the entries. It changes neither their positions nor the slots.
	e = f.push()
	f.slots[place] = uint64(tag)<<32 | uint64(f.tail-1)
	e.Key, e.Hash = key, hash
	return e, true
}

// push appends an entry.
func (f *FIFO[V]) push() *Entry[V] {
	if int(f.tail-f.head) == len(f.entries) {
		f.resize(max(minEntries, 2*len(f.entries)))
	}
	f.tail++
	return f.at(f.tail - 1)
}

// Remove removes an entry. O(1), except that the buffer is copied when gaps
// outnumber entries and when it halves.
func (f *FIFO[V]) Remove(e *Entry[V]) {
	first, last := f.at(f.head), f.at(f.tail-1)
	*e = Entry[V]{}
	switch e {
	case first:
		for f.head++; f.head != f.tail && f.at(f.head).gap(); f.head++ {
			f.gaps--
		}
	case last:
		for f.tail--; f.at(f.tail - 1).gap(); f.tail-- {
			f.gaps--
		}
	default:
		if f.gaps++; f.gaps > minEntries && f.gaps > f.Len() {
			f.close()
		}
	}
	// Halving at one eighth, doubling when full: a queue that swings between two
	// lengths does not copy its buffer at each swing.
	if n := len(f.entries); n > keepEntries && int(f.tail-f.head) < n/8 {
		f.resize(n / 2)
		f.rebuild()
	}
}

// Retire leaves an entry at its place but no longer finds it: the next [FIFO.Upsert] of its key appends
// another entry.
func (f *FIFO[V]) Retire(e *Entry[V]) { e.Hash = retired }

// Take removes and returns the oldest entry that is not skipped. There must be
// one. O(skipped entries before it), which move up.
func (f *FIFO[V]) Take(skip func(*V) bool) Entry[V] {
	p := f.head
	for f.at(p).gap() || skip(&f.at(p).Value) {
		p++
	}
	e := f.at(p)
	out := *e
	if p == f.head {
		f.Remove(e)
		return out
	}
	to := p
	for from := p - 1; from-f.head < p-f.head; from-- {
		if f.at(from).gap() {
			f.gaps--
		} else {
			f.move(from, to)
			to--
		}
	}
	for ; f.head != to+1; f.head++ {
		*f.at(f.head) = Entry[V]{}
	}
	return out
}

// move moves an entry to the free position to.
func (f *FIFO[V]) move(from, to uint32) {
	e := f.at(from)
	if e.Hash != retired {
		mask, tag := uint32(len(f.slots)-1), tagOf(e.Hash)
		i := uint32(e.Hash) & mask
		for f.slots[i] != uint64(tag)<<32|uint64(from) {
			i = (i + 1) & mask
		}
		f.slots[i] = uint64(tag)<<32 | uint64(to)
	}
	*f.at(to) = *e
}

// Clear removes all entries.
func (f *FIFO[V]) Clear() { *f = FIFO[V]{} }

// resize copies the entries, at their positions, to a buffer of n.
func (f *FIFO[V]) resize(n int) {
	old := *f
	f.entries = make([]Entry[V], n)
	for p := f.head; p != f.tail; p++ {
		*f.at(p) = *old.at(p)
	}
}

// close removes the gaps between entries.
func (f *FIFO[V]) close() {
	to := f.head
	for p := f.head; p != f.tail; p++ {
		e := f.at(p)
		if e.gap() {
			continue
		}
		if p != to {
			*f.at(to), *e = *e, Entry[V]{}
		}
		to++
	}
	f.tail, f.gaps = to, 0
	f.rebuild()
}

// rebuild rebuilds the table from the queued entries, at most half full.
func (f *FIFO[V]) rebuild() {
	n := max(minSlots, len(f.slots))
	for n < 2*f.Len() {
		n *= 2
	}
	for n > keepSlots && n/8 >= f.Len() {
		n /= 2
	}
	if n == len(f.slots) {
		clear(f.slots)
	} else {
		f.slots = make([]uint64, n)
	}
	f.used = 0 // a retired entry has no slot
	mask := uint32(n - 1)
	for p := f.head; p != f.tail; p++ {
		e := f.at(p)
		if e.gap() || e.Hash == retired {
			continue
		}
		i := uint32(e.Hash) & mask
		for f.slots[i] != 0 {
			i = (i + 1) & mask
		}
		f.slots[i] = uint64(tagOf(e.Hash))<<32 | uint64(p)
		f.used++
	}
}
