package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// blockSize is how many events lie in one piece of memory once they are
// encoded: as many as a watch that is behind writes at once.
const blockSize = 128

// block holds the frames of blockSize events that follow each other, in each
// form that somebody has asked for.
type block struct{ slots [wire.Forms]slot }

// slot holds the frames of a block in one form. They are encoded when they are
// first asked for, by whoever asks, for everybody.
type slot struct {
	frames atomic.Pointer[frames]

	mu    sync.Mutex
	size  int64
	stays bool
}

// frames are the watch frames of the first events of a block. They lie one
// after the other in data, and so does more data behind what these frames know
// of.
type frames struct {
	data  []byte
	parts []part
}

// part says where in data a frame ends, and where its object begins.
type part struct{ end, object uint32 }

// between returns the frames of events from up to to, in one piece without room
// to append to.
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

// maker is what it takes to encode events.
type maker struct {
	kind   *wire.Kind
	budget *Budget
}

// have returns the frames of the first n events, if they are there. O(1).
func (s *slot) have(n int) *frames {
	if f := s.frames.Load(); f != nil && len(f.parts) >= n {
		return f
	}
	return nil
}

// make returns the frames of at least the first n events of a block, and
// encodes those that are missing.
func (s *slot) make(m maker, form wire.Form, n int, event func(i int) *storm.Event) (*frames, error) {
	if f := s.have(n); f != nil {
		return f, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next frames
	first := true
	if f := s.frames.Load(); f != nil {
		if len(f.parts) >= n {
			return f, nil
		}
		next, first = *f, false
	}
	var scratch []byte
	for i := len(next.parts); i < n; i++ {
		e := event(i)
		if e == nil {
			return nil, ErrGone
		}
		var err error
		if scratch, err = m.kind.AppendObject(scratch[:0], form, e.Object); err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", e.Seq, e.Key, err)
		}
		if i == 0 {
			// Objects of a kind are much alike, so that this is mostly enough.
			next.data = make([]byte, 0, (len(scratch)+64)*n*9/8)
			next.parts = make([]part, 0, n)
		}
		next.data = wire.AppendEvent(next.data, form.Media(), e.Type, scratch)
		end := len(next.data)
		next.parts = append(next.parts, part{
			end:    uint32(end),
			object: uint32(end - wire.EventTail(form.Media()) - len(scratch)),
		})
	}
	size := int64(cap(next.data)) + int64(cap(next.parts))*int64(unsafe.Sizeof(part{}))
	by := size - s.size
	s.size = size
	s.frames.Store(&next)
	m.budget.grow(s, by, first)
	return &next, nil
}
