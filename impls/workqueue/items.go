package workqueue

// items is the state of the items of a queue: queued, in process, or in process and
// added again. It is not safe for concurrent use. The zero value is empty and ready. The caller
// passes the hash of the item, so that it can be computed before a lock is taken.
//
// # How it works
//
// Queued items are in a circular buffer in their order. So the next item needs no look-up, and the
// processor prefetches those behind it. A hash table maps items to indices of the buffer. Its slots
// are integers, which the garbage collector does not scan. A slot is stale if its index is not
// queued, so that take does not touch the table. The next item that probes past a stale slot reuses
// it. When too many slots are used, the table is rebuilt from the queued items.
//
// A rebuild is O(queued items), so that one of many calls takes long: with a million queued items,
// milliseconds.
//
// A slot may refer to a later item at the same index. So a look-up compares the whole item, and a
// wrong slot is harmless.
//
// Items in process are in a second table, which is as small as the number of workers and stays in
// the processor's cache. So Done and the check of each Add seldom miss the cache.
//
// An item that does not equal itself, such as a NaN, is as in a map: each one is queued, and none
// is found again, so that it does not count as in process.
//
// Slots have 4 bytes: at 100,000 items most of the time of Add is the cache miss of its slot. What
// add needs is in the first 56 bytes, a cache line together with the lock before it.
type items[T comparable] struct {
	head, tail uint32 // positions of the first queued item and after the last; they wrap
	used       uint32 // counts the slots that are not free: at most three quarters
	workers    uint32 // counts the items in process

	// ring has a power of two as its length, or is nil. Position p has index p modulo the length.
	ring []queued[T]
	// slots is twice as long as ring. A slot holds an index and, in the bits above, those of a hash;
	// the highest bit is set. 0 is a free slot.
	slots []uint32

	// inProcess is a hash table with linear probing. Its length is a power of two, or it is nil. At
	// most half of it is taken.
	inProcess []running[T]
	// added has the times of the items in ring; nil without metrics. Times are those of [metrics.now].
	added []int64
	peak  uint32 // the greatest length since resize
	timed bool   // constant: keep times
}

// queued is an item that waits.
type queued[T comparable] struct {
	item T
	hash uint64
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
	minInProcess = 4
	slotTaken    = 1 << 31
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
	pushed = s.push(item, hash, now)
	return pushed, pushed
}

// slotOf returns the slot of an index, for a ring whose length is mask+1.
func slotOf(hash uint64, index, mask uint32) uint32 {
	return slotTaken | uint32(hash>>32)&^mask | index
}

// push queues an item unless it is queued.
func (s *items[T]) push(item T, hash uint64, added int64) bool {
	if 4*int(s.used) >= 3*len(s.slots) {
		s.resize()
	}
	mask := uint32(len(s.ring) - 1)
	n := s.tail - s.head
	sought := slotOf(hash, 0, mask)
	slots := s.slots
	free := -1 // the first stale slot
	at := int(hash & uint64(len(slots)-1))
	for slot := slots[at]; slot != 0; slot = slots[at] {
		if index := slot & mask; (index-s.head)&mask >= n {
			if free < 0 {
				free = at
			}
		} else if slot&^mask == sought {
			if q := &s.ring[index]; q.hash == hash && q.item == item {
				return false
			}
		}
		at = (at + 1) & (len(slots) - 1)
	}
	switch {
	case n > mask:
		s.resize()
		return s.push(item, hash, added)
	case free >= 0:
		at = free
	default:
		s.used++
	}
	index := s.tail & mask
	slots[at] = sought | index
	s.ring[index] = queued[T]{item, hash}
	if added != 0 {
		s.added[index] = added
	}
	s.tail++
	return true
}

// touch brings the slots of a batch into the processor's cache. Their loads overlap, those of
// consecutive calls of add do not. The result is of no use, but keeps the loads in the program.
func (s *items[T]) touch(batch []added[T]) (sum uint32) {
	if len(s.slots) > 0 {
		for i := range batch {
			sum += s.slots[batch[i].hash&uint64(len(s.slots)-1)]
		}
	}
	return sum
}

// resize makes a table without stale slots. It doubles a full ring, and halves one of which at most an
// eighth was used since the last time.
func (s *items[T]) resize() {
	n := uint32(s.len())
	length := len(s.ring)
	switch s.peak = max(s.peak, n); {
	case int(n) == length:
		length = max(minRing, 2*length)
	case int(s.peak) <= length/8 && length > minRing:
		length /= 2
	}
	s.peak = n
	if length == len(s.ring) {
		clear(s.slots)
	} else {
		old, oldAdded := s.ring, s.added
		s.ring, s.slots = make([]queued[T], length), make([]uint32, 2*length)
		if s.timed {
			s.added = make([]int64, length)
		}
		for p := s.head; p != s.tail; p++ {
			from, to := p&uint32(len(old)-1), p&uint32(length-1)
			s.ring[to] = old[from]
			if s.timed {
				s.added[to] = oldAdded[from]
			}
		}
	}
	mask := uint32(length - 1)
	for p := s.head; p != s.tail; p++ {
		hash := s.ring[p&mask].hash
		at := int(hash & uint64(len(s.slots)-1))
		for s.slots[at] != 0 {
			at = (at + 1) & (len(s.slots) - 1)
		}
		s.slots[at] = slotOf(hash, p&mask, mask)
	}
	s.used = n
}

// take removes the first item and puts it in process. The queue must not be empty. O(1).
func (s *items[T]) take(now int64) (item T, added int64) {
	s.peak = max(s.peak, s.tail-s.head)
	index := s.head & uint32(len(s.ring)-1)
	q := &s.ring[index]
	item, hash := q.item, q.hash
	*q = queued[T]{}
	if now != 0 {
		added = s.added[index]
	}
	s.head++
	if item != item { //nolint:gocritic // true for a NaN
		return item, added
	}
	if 2*int(s.workers) >= len(s.inProcess) {
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
