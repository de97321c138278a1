package workqueue

// items is the state of the items of a queue or of a shard: queued, in process, or in process and
// added again. It is not safe for concurrent use. The zero value is empty and ready. The caller
// passes the hash of the item, so that it can be computed before a lock is taken.
//
// # How it works
//
// Queued items are in a circular buffer in their order. So the next item needs no look-up, and the
// processor prefetches those behind it. Each item has a position, counted from 0. A hash table maps
// items to positions. Its slots are integers, which the garbage collector does not scan. A slot is
// stale if its position is no longer queued, so that take does not touch the table. The next item
// that probes past a stale slot reuses it. When too many slots are used, the table is rebuilt from
// the queued items.
//
// Positions have 32 bits and wrap. A slot may then refer to another item. So a look-up compares the
// whole item, and a wrong slot is harmless. There are never as many items as positions.
//
// Items in process are in a second table, which is as small as the number of workers and stays in
// the processor's cache. So Done and the check of each Add cost no cache miss.
//
// An item that does not equal itself, such as a NaN, is as in a map: each one is queued, and none
// is found again, so that it does not count as in process.
type items[T comparable] struct {
	// ring has a power of two as its length, or is nil. Position p has index p modulo the length.
	ring []queued[T]
	// head is the position of the first queued item, tail the position after the last.
	head, tail uint32
	peak       uint32 // the greatest length since the ring began anew
	used       int    // counts the slots that are not free: at most three quarters
	// slots has a power of two as its length, or is nil. A slot holds the upper half of a hash, made
	// odd, and below it a position; 0 is a free slot.
	slots []uint64

	// inProcess is a hash table with linear probing. Its length is a power of two, or it is nil. At
	// most half of it is taken.
	inProcess []running[T]
	workers   int // counts the items in process
}

// queued is an item that waits. Time stamps are those of [metrics.now].
type queued[T comparable] struct {
	item  T
	hash  uint64
	added int64
}

// running is an item in process. A free slot has no hash.
type running[T comparable] struct {
	item    T
	hash    uint64 // odd
	started int64
	added   int64 // when the item was added again
	again   bool  // the item was added while it was in process
}

const (
	minRing      = 16
	minSlots     = 64
	minInProcess = 4
)

// len returns the number of queued items.
func (s *items[T]) len() int { return int(s.tail - s.head) }

// add notes that an item needs processing. It returns whether the item was queued, and whether
// anything changed. O(1), amortised.
func (s *items[T]) add(item T, hash uint64, now int64) (pushed, changed bool) {
	if s.workers > 0 {
		if r := s.running(item, hash); r != nil {
			if r.again {
				return false, false
			}
			r.again, r.added = true, now
			return false, true
		}
	}
	if s.push(item, hash, now) {
		return true, true
	}
	return false, false
}

// push queues an item unless it is queued.
func (s *items[T]) push(item T, hash uint64, added int64) bool {
	if 4*s.used >= 3*len(s.slots) {
		s.rebuild()
	}
	mask := uint64(len(s.slots) - 1)
	tag := hash>>32 | 1
	n := s.tail - s.head
	i := hash & mask
	free := -1 // the first stale slot
	for slot := s.slots[i]; slot != 0; slot = s.slots[i] {
		p := uint32(slot)
		if p-s.head >= n {
			if free < 0 {
				free = int(i)
			}
		} else if slot>>32 == tag {
			if q := &s.ring[p&uint32(len(s.ring)-1)]; q.hash == hash && q.item == item {
				return false
			}
		}
		i = (i + 1) & mask
	}
	if free >= 0 {
		i = uint64(free)
	} else {
		s.used++
	}
	if at := s.tail & uint32(len(s.ring)-1); int(n) == len(s.ring) || at == 0 {
		s.resize(n)
	}
	s.slots[i] = tag<<32 | uint64(s.tail)
	s.ring[s.tail&uint32(len(s.ring)-1)] = queued[T]{item, hash, added}
	s.tail++
	s.peak = max(s.peak, n+1)
	return true
}

// resize doubles a full ring, and halves a ring of which at most an eighth was used since its first
// index had its turn.
func (s *items[T]) resize(n uint32) {
	length := len(s.ring)
	switch {
	case int(n) == length:
		length = max(minRing, 2*length)
	case int(s.peak) <= length/8 && length > minRing:
		length /= 2
	}
	s.peak = n
	if length == len(s.ring) {
		return
	}
	ring := make([]queued[T], length)
	for p := s.head; p != s.tail; p++ {
		ring[p&uint32(length-1)] = s.ring[p&uint32(len(s.ring)-1)]
	}
	s.ring = ring
}

// rebuild makes a table without stale slots, of which at most a half is used.
func (s *items[T]) rebuild() {
	length := minSlots
	for length < 2*(s.len()+1) {
		length *= 2
	}
	if length == len(s.slots) {
		clear(s.slots)
	} else {
		s.slots = make([]uint64, length)
	}
	mask := uint64(length - 1)
	for p := s.head; p != s.tail; p++ {
		hash := s.ring[p&uint32(len(s.ring)-1)].hash
		i := hash & mask
		for s.slots[i] != 0 {
			i = (i + 1) & mask
		}
		s.slots[i] = (hash>>32|1)<<32 | uint64(p)
	}
	s.used = s.len()
}

// take removes the first item and puts it in process. The queue must not be empty. O(1).
func (s *items[T]) take(now int64) (item T, added int64) {
	q := &s.ring[s.head&uint32(len(s.ring)-1)]
	item, added = q.item, q.added
	hash := q.hash
	*q = queued[T]{}
	s.head++
	if item != item {
		return item, added
	}
	if 2*s.workers >= len(s.inProcess) {
		s.growInProcess()
	}
	s.workers++
	*s.free(hash) = running[T]{item: item, hash: hash | 1, started: now}
	return item, added
}

// free returns the free slot for an item in process.
func (s *items[T]) free(hash uint64) *running[T] {
	mask := uint64(len(s.inProcess) - 1)
	i := hash >> 32 & mask
	for s.inProcess[i].hash != 0 {
		i = (i + 1) & mask
	}
	return &s.inProcess[i]
}

func (s *items[T]) growInProcess() {
	old := s.inProcess
	s.inProcess = make([]running[T], max(minInProcess, 2*len(old)))
	for i := range old {
		if old[i].hash != 0 {
			*s.free(old[i].hash) = old[i]
		}
	}
}

// running returns an item in process, or nil.
func (s *items[T]) running(item T, hash uint64) *running[T] {
	if s.workers == 0 {
		return nil
	}
	mask := uint64(len(s.inProcess) - 1)
	hash |= 1
	for i := hash >> 32 & mask; ; i = (i + 1) & mask {
		r := &s.inProcess[i]
		if r.hash == 0 {
			return nil
		}
		if r.hash == hash && r.item == item {
			return r
		}
	}
}

// done ends the process of an item and queues it if it was added meanwhile. It returns false for
// found if the item is not in process. O(1), amortised.
func (s *items[T]) done(item T, hash uint64) (started int64, pushed, found bool) {
	r := s.running(item, hash)
	if r == nil {
		return 0, false, false
	}
	ended := *r
	s.workers--
	// Close the gap: each item of the cluster that may stand at the gap moves there.
	mask := uint64(len(s.inProcess) - 1)
	gap := ended.hash >> 32 & mask
	for &s.inProcess[gap] != r {
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; s.inProcess[i].hash != 0; i = (i + 1) & mask {
		if home := s.inProcess[i].hash >> 32 & mask; (i-home)&mask >= (i-gap)&mask {
			s.inProcess[gap] = s.inProcess[i]
			gap = i
		}
	}
	s.inProcess[gap] = running[T]{}
	if ended.again {
		s.push(ended.item, hash, ended.added)
	}
	return ended.started, ended.again, true
}

// eachInProcess calls f with the start of each item in process.
func (s *items[T]) eachInProcess(f func(started int64)) {
	for i := range s.inProcess {
		if s.inProcess[i].hash != 0 {
			f(s.inProcess[i].started)
		}
	}
}
