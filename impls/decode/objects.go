package decode

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"reflect"
	"sync"
	"unsafe"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objects finds decoded objects of shared-readonly that are still in use: of each UID the newest that was
// decoded. It holds them by weak pointers.
//
// A hit needs the same type, an equal UID, resource version, name and namespace, and equal codes of all
// bytes but those of the managed fields. The code is GMAC under a key of the table: a polynomial hash
// whose 128-bit point nobody knows. So two inputs of n blocks that are made without the key have equal
// codes with a probability of at most n/2^128.
type objects struct {
	mac    cipher.AEAD
	err    error // of making mac
	shards [64]objectShard
}

type objectShard struct {
	mu     sync.Mutex
	states map[uint64]state // by the hash of the UID; guarded by mu
	room   int              // length at which the dead are removed; guarded by mu
}

// state is an object as it was decoded.
type state struct {
	key stateKey
	obj weak.Pointer[byte]
}

type stateKey struct {
	typ           reflect.Type
	context       string
	before, after code
}

type code [16]byte

func newMAC() (cipher.AEAD, error) {
	var key code
	_, _ = rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// code returns that of b. Nobody sees codes, so one nonce serves for all.
func (o *objects) code(b []byte) (c code) {
	var nonce [12]byte
	o.mac.Seal(c[:0], nonce[:], nil, b)
	return c
}

// identity tells an object and its state from others. It points into the bytes of the object.
type identity struct {
	uid, version, name, namespace []byte
	managed                       []byte // the run of the managed fields
	before, after                 []byte // all other bytes
	slot                          uint64 // hash of the UID
	typ                           reflect.Type
	context                       string // what the object depends on beside its bytes
}

func (o *objects) key(id *identity) stateKey {
	return stateKey{typ: id.typ, context: id.context, before: o.code(id.before), after: o.code(id.after)}
}

// Field numbers of metav1.ObjectMeta and of the metadata of every object.
const (
	metadataField        = 1
	nameField            = 1
	namespaceField       = 3
	uidField             = 5
	resourceVersionField = 6
	managedField         = 17
)

// identify reads the identity of an object in protobuf. It reports false for an object without UID or resource
// version, and for metadata that no API server writes.
func identify(b []byte) (id identity, ok bool) {
	id.before = b
	metadata := false
	for i := 0; i < len(b); {
		tag, from, to, ok := span(b, i)
		if !ok || tag>>3 == metadataField && metadata {
			return identity{}, false
		}
		if i = to; tag != metadataField<<3|wireBytes {
			continue
		}
		metadata = true
		for at := from; at < to; {
			tag, from, next, ok := span(b[:to], at)
			if !ok {
				return identity{}, false
			}
			part := id.part(tag)
			if part == &id.managed {
				if next, _, ok = run(b[:to], next, tag); !ok {
					return identity{}, false
				}
				from, id.before, id.after = at, b[:at], b[next:]
			}
			if part != nil && *part != nil {
				return identity{}, false
			}
			if part != nil {
				*part = b[from:next:next]
			}
			at = next
		}
	}
	if len(id.uid) == 0 || len(id.version) == 0 {
		return identity{}, false
	}
	return id, true
}

// part returns where the value of a field of the metadata goes, or nil.
func (id *identity) part(tag uint64) *[]byte {
	switch tag {
	case nameField<<3 | wireBytes:
		return &id.name
	case namespaceField<<3 | wireBytes:
		return &id.namespace
	case uidField<<3 | wireBytes:
		return &id.uid
	case resourceVersionField<<3 | wireBytes:
		return &id.version
	case managedField<<3 | wireBytes:
		return &id.managed
	}
	return nil
}

func (o *objects) shard(id *identity) *objectShard { return &o.shards[id.slot%uint64(len(o.shards))] }

// find returns the object in the state, or nil.
func (o *objects) find(id *identity) unsafe.Pointer {
	s := o.shard(id)
	s.mu.Lock()
	have, ok := s.states[id.slot]
	s.mu.Unlock()
	if !ok || have.key.typ != id.typ {
		return nil
	}
	ptr := unsafe.Pointer(have.obj.Value())
	if ptr == nil || have.key != o.key(id) || !id.of(reflect.NewAt(id.typ, ptr).Interface().(metav1.Object)) {
		return nil
	}
	return ptr
}

func (id *identity) of(o metav1.Object) bool {
	return string(id.uid) == string(o.GetUID()) && string(id.version) == o.GetResourceVersion() &&
		string(id.name) == o.GetName() && string(id.namespace) == o.GetNamespace()
}

// add remembers the object at ptr, which must be the start of an allocation.
func (o *objects) add(id *identity, ptr unsafe.Pointer) {
	obj, key := weak.Make((*byte)(ptr)), o.key(id)
	s := o.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.states[id.slot]; !known && len(s.states) >= s.room {
		live := make(map[uint64]state, len(s.states)/2)
		for slot, have := range s.states {
			if have.obj.Value() != nil {
				live[slot] = have
			}
		}
		s.states, s.room = live, max(64, 2*len(live))
	}
	s.states[id.slot] = state{key, obj}
}
