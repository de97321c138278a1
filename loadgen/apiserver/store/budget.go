package store

import "sync"

// DefaultBudget is the default size of a [Budget] in bytes.
const DefaultBudget = 1 << 30

// Budget bounds the memory of encoded events of all logs that share it. It drops the
// oldest encodings first; readers encode them again. Encodings of [Recording.Encode] stay
// and fill three quarters at most: a storm larger than the budget, played repeatedly, would
// otherwise drop every encoding before its next use. A Budget is safe for concurrent use.
type Budget struct {
	// limit is in bytes.
	limit int64

	// mu guards the fields below. A slot's mu is taken before it; grow only tries
	// further slots' mutexes, so it cannot deadlock.
	mu sync.Mutex
	// used is the size of all slots in bytes.
	used int64
	// queue holds the nonempty slots that may be dropped, the oldest first.
	queue []*slot
}

// NewBudget returns a budget in bytes; 0 or less means [DefaultBudget].
func NewBudget(limit int64) *Budget {
	if limit <= 0 {
		limit = DefaultBudget
	}
	return &Budget{limit: limit}
}

// Used returns the number of bytes in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// full reports whether more encodings displace others.
func (b *Budget) full() bool { return b.Used() >= b.limit }

// keeps reports whether there is room for permanent encodings.
func (b *Budget) keeps() bool { return b.Used() < b.limit/4*3 }

// grow counts the growth of a locked slot and makes room.
func (b *Budget) grow(s *slot, by int64, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += by
	if first && !s.stays {
		b.queue = append(b.queue, s)
	}
	// Try each slot once and skip locked ones.
	for n := len(b.queue); n > 0 && b.used > b.limit; n-- {
		oldest := b.queue[0]
		b.queue = b.queue[1:]
		if oldest == s || !oldest.mu.TryLock() {
			b.queue = append(b.queue, oldest)
			continue
		}
		b.used -= oldest.size
		oldest.size = 0
		oldest.frames.Store(nil)
		oldest.mu.Unlock()
	}
}

// drop frees the slots of a block.
func (b *Budget) drop(bl *block) {
	for i := range bl.slots {
		s := &bl.slots[i]
		s.mu.Lock()
		size := s.size
		s.size = 0
		s.frames.Store(nil)
		s.mu.Unlock()
		if size == 0 {
			continue
		}
		b.mu.Lock()
		b.used -= size
		for j, q := range b.queue {
			if q == s {
				b.queue = append(b.queue[:j], b.queue[j+1:]...)
				break
			}
		}
		b.mu.Unlock()
	}
}
