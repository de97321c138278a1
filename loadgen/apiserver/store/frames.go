package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// blockSize is the number of events in one piece of encoded memory, which a lagging watch
// writes at once.
const blockSize = 128

// block holds the frames of blockSize consecutive events in each requested form: as they are, and each as a gzip
// member.
type block struct{ plain, members [wire.Forms]slot }

func (b *block) slot(f wire.Form, members bool) *slot {
	if members {
		return &b.members[f]
	}
	return &b.plain[f]
}

// slot holds the frames of a block in one form. The first reader encodes them for all.
type slot struct {
	// frames is nil or holds the frames so far. It is replaced as a whole under mu and
	// never changed. Readers load it without a lock and keep their version.
	frames atomic.Pointer[frames]

	mu    sync.Mutex // serializes encoding and guards the fields below
	size  int64      // in bytes, as counted by the budget
	stays bool       // the budget must not drop the frames
}

// frames are the watch frames of the first events of a block, consecutive in data. A later
// version may share data and have more frames.
type frames struct {
	by    Encoder
	data  []byte
	parts []part
}

// part is the end of a frame in data and the start of its object, which a member does not show.
type part struct{ end, object uint32 }

// between returns the frames of the events [from, to), without spare capacity.
func (f *frames) between(from, to int) []byte {
	start := uint32(0)
	if from > 0 {
		start = f.parts[from-1].end
	}
	end := f.parts[to-1].end
	return f.data[start:end:end]
}

// object returns the object of an event.
func (f *frames) object(i int, m wire.Media) []byte {
	p := f.parts[i]
	end := p.end - uint32(wire.EventTail(m))
	return f.data[p.object:end:end]
}

// Encoder encodes the objects of a log, such as a [wire.Kind]. A log keeps the encodings of the one that was used
// last; another one, which a changed definition brings, encodes anew.
type Encoder interface {
	AppendObject(dst []byte, f wire.Form, o runtime.Object) ([]byte, error)
}

// have returns the frames of the first n events, or nil. O(1).
func (s *slot) have(by Encoder, n int) *frames {
	if f := s.frames.Load(); f != nil && f.by == by && len(f.parts) >= n {
		return f
	}
	return nil
}

// make returns the frames of at least the first n events of a block and encodes missing ones.
func (s *slot) make(by Encoder, budget *Budget, form wire.Form, members bool, n int, event func(i int) *storm.Event) (*frames, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frames.Load()
	next, first := frames{by: by}, f == nil
	if f != nil && f.by == by {
		if len(f.parts) >= n {
			return f, nil
		}
		next = *f
	}
	var object, frame []byte
	for i := len(next.parts); i < n; i++ {
		e := event(i)
		if e == nil {
			return nil, ErrGone
		}
		var err error
		if object, err = by.AppendObject(object[:0], form, e.Object); err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", e.Seq, e.Key, err)
		}
		if members {
			frame = wire.AppendEvent(frame[:0], form.Media(), e.Type, object)
			object = wire.AppendMember(object[:0], frame)
		}
		if i == 0 {
			// Objects of a kind have similar sizes.
			next.data = make([]byte, 0, (len(object)+64)*n*9/8)
			next.parts = make([]part, 0, n)
		}
		start := len(next.data)
		if members {
			next.data = append(next.data, object...)
		} else {
			next.data = wire.AppendEvent(next.data, form.Media(), e.Type, object)
			start = len(next.data) - wire.EventTail(form.Media()) - len(object)
		}
		next.parts = append(next.parts, part{end: uint32(len(next.data)), object: uint32(start)})
	}
	size := int64(cap(next.data)) + int64(cap(next.parts))*int64(unsafe.Sizeof(part{}))
	more := size - s.size
	s.size = size
	s.frames.Store(&next)
	budget.grow(s, more, first)
	return &next, nil
}

// clear drops the frames of a locked slot and returns their size.
func (s *slot) clear() (size int64) {
	size, s.size = s.size, 0
	s.frames.Store(nil)
	return size
}

// DefaultBudget is the default size of a [Budget] in bytes.
const DefaultBudget = 1 << 30

// Budget bounds the memory of encoded events of all logs that share it. It drops the
// oldest encodings first; readers encode them again. Encodings of [Recording.Encode] stay
// and fill three quarters at most: a storm larger than the budget, played repeatedly, would
// otherwise drop every encoding before its next use. A Budget is safe for concurrent use.
type Budget struct {
	limit int64 // in bytes

	// guards the fields below. A slot's mu is taken before it; grow only tries
	// further slots' mutexes, so it cannot deadlock.
	mu    sync.Mutex
	used  int64   // bytes of all slots
	queue []*slot // nonempty slots that may be dropped, the oldest first
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
		b.used -= oldest.clear()
		oldest.mu.Unlock()
	}
}

// drop frees the slots of a block.
func (b *Budget) drop(bl *block) {
	for i := range 2 * wire.Forms {
		s := bl.slot(wire.Form(i/2), i%2 == 1)
		s.mu.Lock()
		size := s.clear()
		s.mu.Unlock()
		if size == 0 {
			continue
		}
		b.mu.Lock()
		b.used -= size
		if j := slices.Index(b.queue, s); j >= 0 {
			b.queue = slices.Delete(b.queue, j, j+1)
		}
		b.mu.Unlock()
	}
}
