package deltafifo

import (
	"math"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
)

// rekeyed is a transformed object with another key than before, or without one. As in DeltaFIFO,
// delivery per key uses the key before.
type rekeyed struct {
	key keys.Key
	obj any
}

// keyed returns an object of per-key delivery with its key.
func keyed(f keys.Func, obj any) (_ any, key keys.Key, hash uint64, err error) {
	if r, ok := obj.(rekeyed); ok {
		return r.obj, r.key, r.key.Hash(), nil
	}
	key, hash, err = f.Hashed(obj)
	return obj, key, hash, err
}

// transform applies the transformer, which is not nil, as client-go does: to objects from the API
// server, not to tombstones. The caller gets the panic of a key function on what the transformer
// returned.
func (b *base) transform(obj any) (any, error) {
	if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone {
		return obj, nil
	}
	before, _ := b.keys.OfQueued(obj)
	out, err := b.transformer(obj)
	if err != nil {
		return nil, err
	}
	if has := b.hasKey(out, before); b.perKey && !has {
		return rekeyed{before, out}, nil
	}
	return out, nil
}

func (b *base) hasKey(obj any, key keys.Key) bool {
	of, err := b.keys.OfQueued(obj)
	return err == nil && of == key
}

// transformAll applies the transformer to a copy of a list. After an error the result is nil.
func (b *base) transformAll(list []any) ([]any, error) {
	if b.transformer == nil {
		return list, nil
	}
	out := make([]any, len(list))
	for i, obj := range list {
		var err error
		if out[i], err = b.transform(obj); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keySet is the set of keys in a batch. It holds only hashes: two keys with one
// hash end a batch early, which is allowed and rarer than one in 1e9 batches.
type keySet struct {
	// slots is an open-addressing table; its length is a power of two. A slot
	// holds the upper 48 bits of a hash and below them its generation. So a new
	// batch increments the generation instead of clearing the table.
	slots []uint64
	gen   uint64
	n     int
}

const genBits = 16

// reset removes all keys. O(1), except once in 65,535 calls.
func (s *keySet) reset() {
	s.n = 0
	s.gen++
	if s.slots == nil || s.gen == 1<<genBits {
		s.slots, s.gen = make([]uint64, max(64, len(s.slots))), 1
	}
}

// add returns false if the set has the hash already.
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
