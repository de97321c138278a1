package queue

import "watchlab/impls/internal/keys"

// fifo holds keys in the order in which they were queued, each with its newest
// object. It is not safe for concurrent use. The zero value is empty and ready.
//
// # How it works
//
// Entries are in a circular buffer in order, one cache line each. So the next
// entry needs no hash lookup, and the processor prefetches the entries behind it.
// Each entry has a position, counted from 0; see below for reuse.
//
// A hash table maps keys to positions. Its slots are integers, which the garbage
// collector does not scan. A slot is stale if its position is no longer queued,
// so that removing the first entry does not touch the table. The next key that
// probes past a stale slot reuses it. When too many slots are used, the table is
// rebuilt from the queued entries.
//
// An entry that is removed from the middle becomes a gap without an object. It
// stays until it reaches the front, or until gaps outnumber other entries.
//
// # Reuse of positions
//
// Positions have 32 bits and wrap, and the last position is reused when its entry
// is removed. A slot may then refer to the entry of another key. So a lookup
// compares the whole key, and a wrong slot is harmless. There are never as many
// entries as positions.
//
// # Rejected designs
//
// keys.FIFO, a table of linked entries, needs a hash lookup per removal. Its
// entries are scattered over the heap and cost half as much again in memory and
// cache misses.
type fifo struct {
	// entries has a power of two as its length, or is nil. Position p has index p
	// modulo the length.
	entries []entry
	// head is the position of the first entry, which is never a gap; tail is the
	// position after the last. gaps counts the gaps between them.
	head, tail uint32
	gaps       int
	// slots has a power of two as its length, or is nil. A slot holds the upper
	// half of a hash, made odd, and below it a position; 0 is a free slot.
	slots []uint64
	// used counts the slots that are not free: at most three quarters.
	used int
}

// entry is a queued key with its object.
type entry struct {
	key keys.Key
	obj any
	// hash is that of the key.
	hash uint64
	// epoch is the initial list that the key belongs to; 0 means none.
	epoch uint32
	// placeless: the key came with a list and does not count against Capacity.
	placeless bool
	// held: the key is in process, so that no other consumer may pop it.
	held bool
	// gap: the entry was removed.
	gap bool
}

const (
	minEntries = 16
	minSlots   = 128
	// keepEntries bounds the buffer that is kept after a burst, keepSlots the
	// table.
	keepEntries = 8192
	keepSlots   = 2 * keepEntries
)

// len returns how many keys wait.
func (f *fifo) len() int { return int(f.tail-f.head) - f.gaps }

// at returns the entry at a position.
func (f *fifo) at(p uint32) *entry { return &f.entries[p&uint32(len(f.entries)-1)] }

// front returns the entry that has waited longest, or nil.
func (f *fifo) front() *entry {
	if f.head == f.tail {
		return nil
	}
	return f.at(f.head)
}

// all yields the entries in their order. They must not be removed meanwhile.
func (f *fifo) all(yield func(*entry) bool) {
	for p := f.head; p != f.tail; p++ {
		if e := f.at(p); !e.gap && !yield(e) {
			return
		}
	}
}

func tagOf(hash uint64) uint32 { return uint32(hash>>32) | 1 }

// find returns the entry of a key, or nil. It is valid until the next call of
// upsert or remove.
func (f *fifo) find(hash uint64, key keys.Key) *entry {
	if f.head == f.tail {
		return nil
	}
	mask, tag := uint32(len(f.slots)-1), tagOf(hash)
	for i := uint32(hash) & mask; f.slots[i] != 0; i = (i + 1) & mask {
		if e := f.match(f.slots[i], tag, hash, key); e != nil {
			return e
		}
	}
	return nil
}

// match returns the entry at a slot's position if it has the key, or nil.
func (f *fifo) match(slot uint64, tag uint32, hash uint64, key keys.Key) *entry {
	if uint32(slot>>32) != tag || f.stale(slot) {
		return nil
	}
	if e := f.at(uint32(slot)); e.hash == hash && !e.gap && e.key == key {
		return e
	}
	return nil
}

// stale reports whether a slot's position is no longer queued.
func (f *fifo) stale(slot uint64) bool { return uint32(slot)-f.head >= f.tail-f.head }

// upsert returns the entry of a key. If the key is not queued, it adds a fresh
// entry whose other fields are zero. The entry is valid until the next upsert or
// remove.
func (f *fifo) upsert(hash uint64, key keys.Key) (e *entry, fresh bool) {
	if f.used >= len(f.slots)/4*3 {
		f.rebuild()
	}
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
	// push may move the entries. It changes neither their positions nor the
	// slots.
	e = f.push()
	f.slots[place] = uint64(tag)<<32 | uint64(f.tail-1)
	e.key, e.hash = key, hash
	return e, true
}

// push appends an entry.
func (f *fifo) push() *entry {
	if int(f.tail-f.head) == len(f.entries) {
		f.resize(max(minEntries, 2*len(f.entries)))
	}
	f.tail++
	return f.at(f.tail - 1)
}

// remove removes an entry. O(1), except that the buffer is copied when gaps
// outnumber entries and when it halves.
func (f *fifo) remove(e *entry) {
	switch e {
	case f.at(f.head):
		*e = entry{}
		for f.head++; f.head != f.tail && f.at(f.head).gap; f.head++ {
			*f.at(f.head) = entry{}
			f.gaps--
		}
	case f.at(f.tail - 1):
		*e = entry{}
		for f.tail--; f.at(f.tail - 1).gap; f.tail-- {
			*f.at(f.tail - 1) = entry{}
			f.gaps--
		}
	default:
		*e = entry{gap: true}
		if f.gaps++; f.gaps > minEntries && f.gaps > f.len() {
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

// takeReady removes and returns the oldest entry that is not held. There must be
// one. O(held entries before it), which move up.
func (f *fifo) takeReady() entry {
	p := f.head
	for f.at(p).held || f.at(p).gap {
		p++
	}
	e := f.at(p)
	out := *e
	if p == f.head {
		f.remove(e)
		return out
	}
	to := p
	for from := p - 1; from-f.head < p-f.head; from-- {
		if f.at(from).held {
			f.move(from, to)
			to--
		} else {
			f.gaps--
		}
	}
	for ; f.head != to+1; f.head++ {
		*f.at(f.head) = entry{}
	}
	return out
}

// move moves an entry to the free position to.
func (f *fifo) move(from, to uint32) {
	e := f.at(from)
	mask, tag := uint32(len(f.slots)-1), tagOf(e.hash)
	i := uint32(e.hash) & mask
	for f.slots[i] != uint64(tag)<<32|uint64(from) {
		i = (i + 1) & mask
	}
	f.slots[i] = uint64(tag)<<32 | uint64(to)
	*f.at(to) = *e
}

// clear removes all entries.
func (f *fifo) clear() {
	*f = fifo{}
}

// resize copies the entries, at their positions, to a buffer of n.
func (f *fifo) resize(n int) {
	old := *f
	f.entries = make([]entry, n)
	for p := f.head; p != f.tail; p++ {
		*f.at(p) = *old.at(p)
	}
}

// close removes the gaps between entries.
func (f *fifo) close() {
	to := f.head
	for p := f.head; p != f.tail; p++ {
		if e := f.at(p); !e.gap {
			if p != to {
				*f.at(to), *e = *e, entry{}
			}
			to++
		} else {
			*e = entry{}
		}
	}
	f.tail, f.gaps = to, 0
	f.rebuild()
}

// rebuild rebuilds the table from the queued entries, at most half full.
func (f *fifo) rebuild() {
	n := max(minSlots, len(f.slots))
	for n < 2*f.len() {
		n *= 2
	}
	for n > keepSlots && n/8 >= f.len() {
		n /= 2
	}
	if n == len(f.slots) {
		clear(f.slots)
	} else {
		f.slots = make([]uint64, n)
	}
	f.used = f.len()
	mask := uint32(n - 1)
	for p := f.head; p != f.tail; p++ {
		e := f.at(p)
		if e.gap {
			continue
		}
		i := uint32(e.hash) & mask
		for f.slots[i] != 0 {
			i = (i + 1) & mask
		}
		f.slots[i] = uint64(tagOf(e.hash))<<32 | uint64(p)
	}
}
