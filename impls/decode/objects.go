package decode

import (
	"reflect"
	"sync"
	"unsafe"
	"weak"

	"github.com/zeebo/xxh3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objects finds decoded objects that are still in use by the bytes of the whole object. It holds them
// by weak pointers.
//
// A hit needs an equal 128-bit hash and the UID, resource version, name and namespace of the bytes.
// The API server gives a resource version to one state of an object, so two equal states with
// different bytes are not expected at all; by chance, one of n objects is mistaken with a
// probability below n²/2^129.
type objects struct {
	hash   func([]byte) xxh3.Uint128
	shards [64]objectShard
}

type objectShard struct {
	mu   sync.Mutex
	objs map[xxh3.Uint128]weak.Pointer[byte] // guarded by mu
	room int                                 // length at which the dead are removed; guarded by mu
}

func (o *objects) key(p *plan, b []byte) xxh3.Uint128 {
	h := o.hash(b)
	h.Lo ^= p.salt
	return h
}

func (o *objects) find(key xxh3.Uint128, p *plan, b []byte) unsafe.Pointer {
	s := &o.shards[key.Hi%uint64(len(o.shards))]
	s.mu.Lock()
	weakly, ok := s.objs[key]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	ptr := unsafe.Pointer(weakly.Value())
	if ptr == nil || !identifies(b, reflect.NewAt(p.typ, ptr).Interface().(metav1.Object)) {
		return nil
	}
	return ptr
}

// add remembers the object at ptr, which must be the start of an allocation of the plan's type.
func (o *objects) add(key xxh3.Uint128, ptr unsafe.Pointer) {
	weakly := weak.Make((*byte)(ptr))
	s := &o.shards[key.Hi%uint64(len(o.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.objs) >= s.room {
		live := make(map[xxh3.Uint128]weak.Pointer[byte], len(s.objs)/2)
		for k, p := range s.objs {
			if p.Value() != nil {
				live[k] = p
			}
		}
		s.objs, s.room = live, max(64, 2*len(live))
	}
	s.objs[key] = weakly
}

// Field numbers of metav1.ObjectMeta and of the metadata of every object.
const (
	metadataField        = 1
	nameField            = 1
	namespaceField       = 3
	uidField             = 5
	resourceVersionField = 6
)

// identifies reports whether the object's bytes have the identity of have, which must have one.
func identifies(b []byte, have metav1.Object) bool {
	m, ok := only(b, metadataField)
	if !ok || have.GetUID() == "" || have.GetResourceVersion() == "" {
		return false
	}
	equal := func(number uint64, s string) bool {
		v, ok := only(m, number)
		return ok && string(v) == s
	}
	return equal(uidField, string(have.GetUID())) && equal(resourceVersionField, have.GetResourceVersion()) &&
		equal(nameField, have.GetName()) && equal(namespaceField, have.GetNamespace())
}
