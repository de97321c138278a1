package store

import "sync"

// DefaultBudget is how many bytes of encoded events are kept, by all logs that
// share a [Budget].
const DefaultBudget = 1 << 30

// Budget bounds the memory of encoded events. What was encoded first is given
// up first; who needs it again encodes it again. What [Recording.Encode] has
// encoded stays, and so do at least a quarter of the budget for the rest:
// otherwise a storm larger than the budget, played from its beginning to its end
// time and again, would never find anything still there. It is safe for
// concurrent use.
type Budget struct {
	limit int64

	mu    sync.Mutex
	used  int64
	queue []*slot
}

// NewBudget returns a budget of so many bytes; 0 or less means
// [DefaultBudget].
func NewBudget(limit int64) *Budget {
	if limit <= 0 {
		limit = DefaultBudget
	}
	return &Budget{limit: limit}
}

// Used returns how many bytes are held.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// full tells whether there is no room for more without giving something up.
func (b *Budget) full() bool { return b.Used() >= b.limit }

// keeps tells whether there is room for more that stays.
func (b *Budget) keeps() bool { return b.Used() < b.limit/4*3 }

// grow counts what a slot, whose lock is held, has grown by, and makes room.
func (b *Budget) grow(s *slot, by int64, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += by
	if first && !s.stays {
		b.queue = append(b.queue, s)
	}
	// Each is asked once: those that are being written to are passed over.
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

// drop gives up what the slots of a block hold.
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
