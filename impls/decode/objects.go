package decode

import (
	"reflect"
	"sync"
	"unsafe"
	"weak"

	"github.com/zeebo/xxh3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objects finds decoded objects that are still in use: of each UID the newest that was decoded. It
// holds them by weak pointers.
//
// A hit needs an equal 128-bit hash of all bytes but those of the managed fields, and an equal UID,
// resource version, name and namespace. The API server gives a resource version to one state of an
// object, so two equal states with different bytes are not expected at all; by chance, one of n
// objects is mistaken with a probability below n²/2^129.
type objects struct {
	hash   func([]byte) xxh3.Uint128
	shards [64]objectShard
}

type objectShard struct {
	mu     sync.Mutex
	states map[uint64]state // by the hash of the UID; guarded by mu
	room   int              // length at which the dead are removed; guarded by mu
}

// state is an object as it was decoded.
type state struct {
	key xxh3.Uint128
	obj weak.Pointer[byte]
}

// identity tells an object and its state from others. It points into the bytes of the object.
type identity struct {
	uid, version, name, namespace []byte
	managed                       []byte // the run of the managed fields
	slot                          uint64 // hash of the UID
	key                           xxh3.Uint128
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

// identify reads the identity of an object. It reports false for an object without UID or resource
// version, and for metadata that no API server writes.
func (o *objects) identify(p *plan, b []byte) (id identity, ok bool) {
	before, after := b, b[len(b):] // the managed fields
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
				from, before, after = at, b[:at], b[next:]
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
	head, tail := o.hash(before), o.hash(after)
	id.key = xxh3.Uint128{Hi: head.Hi + 3*tail.Hi, Lo: head.Lo + 3*tail.Lo ^ p.salt}
	id.slot = o.hash(id.uid).Hi
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

// find returns the object of the type in the state, or nil.
func (o *objects) find(typ reflect.Type, id *identity) unsafe.Pointer {
	s := o.shard(id)
	s.mu.Lock()
	have, ok := s.states[id.slot]
	s.mu.Unlock()
	if !ok || have.key != id.key {
		return nil
	}
	ptr := unsafe.Pointer(have.obj.Value())
	if ptr == nil || !id.of(reflect.NewAt(typ, ptr).Interface().(metav1.Object)) {
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
	obj := weak.Make((*byte)(ptr))
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
	s.states[id.slot] = state{id.key, obj}
}
