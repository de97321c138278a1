package deltafifo

import (
	"math"

	"k8s.io/client-go/tools/cache"
)

// transform applies a transformer as client-go does: to what comes from the
// API server, not to tombstones.
func transform(f cache.TransformFunc, obj any) (any, error) {
	if f == nil {
		return obj, nil
	}
	if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone {
		return obj, nil
	}
	return f(obj)
}

// transformAll applies a transformer to a list, all or nothing. The list is not
// changed.
func transformAll(f cache.TransformFunc, list []any) ([]any, error) {
	if f == nil {
		return list, nil
	}
	out := make([]any, len(list))
	for i, obj := range list {
		var err error
		if out[i], err = transform(f, obj); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keySet tells whether a key has been seen in a batch. It holds hashes only: two
// keys with one hash end a batch early, which is allowed, and is rarer than one
// in a billion batches.
type keySet struct {
	// slots is an open-addressing table of a power of two. A slot holds the
	// upper 48 bits of a hash and, below them, the generation that it belongs
	// to, so that a batch starts by counting up rather than by clearing.
	slots []uint64
	gen   uint64
	n     int
}

const genBits = 16

// reset forgets all keys. O(1), save once in 65,535 times.
func (s *keySet) reset() {
	s.n = 0
	s.gen++
	if s.slots == nil || s.gen == 1<<genBits {
		s.slots, s.gen = make([]uint64, max(64, len(s.slots))), 1
	}
}

// add reports false if the hash was there already.
func (s *keySet) add(hash uint64) bool {
	if s.n >= len(s.slots)/2 {
		s.grow()
	}
	tag := hash&^(1<<genBits-1) | s.gen
	mask := uint64(len(s.slots) - 1)
	for i := hash >> genBits & mask; ; i = (i + 1) & mask {
		switch {
		case s.slots[i] == tag:
			return false
		case s.slots[i]&math.MaxUint16 != s.gen:
			s.slots[i] = tag
			s.n++
			return true
		}
	}
}

func (s *keySet) grow() {
	old, gen := s.slots, s.gen
	*s = keySet{slots: make([]uint64, 2*len(old)), gen: 1}
	for _, tag := range old {
		if tag&math.MaxUint16 == gen {
			s.add(tag)
		}
	}
}
