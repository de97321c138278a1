// Package objkey makes object keys without joining strings.
//
// client-go's keys are strings, "namespace/name" or "name", and making one
// allocates. A [Key] holds the two parts as they stand in the object. It is
// canonical: two keys are equal if and only if the strings that client-go
// would make are equal.
package objkey

import (
	"hash/maphash"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Key is a key taken apart at its first slash. Namespace is empty where the
// string has no slash after its first byte; otherwise it holds no slash.
type Key struct{ Namespace, Name string }

// Split takes a client-go key apart. It does not allocate.
func Split(s string) Key {
	if i := strings.IndexByte(s, '/'); i > 0 {
		return Key{s[:i], s[i+1:]}
	}
	return Key{"", s}
}

// String returns the key as client-go writes it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

var seed = maphash.MakeSeed()

// Hash returns a 64-bit hash of the key, equal for equal keys within one
// process.
func (k Key) Hash() uint64 {
	h := maphash.String(seed, k.Name)
	if k.Namespace != "" {
		// Multiplying by an odd constant keeps ("a","b") apart from ("b","a").
		h ^= maphash.String(seed, k.Namespace) * 0x9e3779b97f4a7c15
	}
	return h
}

// Func makes keys as a [cache.KeyFunc] does. The zero value stands for
// [cache.MetaNamespaceKeyFunc].
type Func struct {
	// custom is nil where the key is namespace and name.
	custom cache.KeyFunc
}

// New returns the Func of a key function; nil means
// [cache.MetaNamespaceKeyFunc]. That function, and its twin that also knows
// tombstones, are recognised and not called.
func New(f cache.KeyFunc) Func {
	if f == nil || same(f, cache.MetaNamespaceKeyFunc) || same(f, cache.DeletionHandlingMetaNamespaceKeyFunc) {
		return Func{}
	}
	return Func{custom: f}
}

func same(a, b cache.KeyFunc) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// Of returns the key of an object. The error is a [cache.KeyError].
func (f Func) Of(obj any) (Key, error) {
	if f.custom == nil {
		if o, ok := obj.(metav1.Object); ok {
			ns, name := o.GetNamespace(), o.GetName()
			if ns == "" {
				return Split(name), nil
			}
			if strings.IndexByte(ns, '/') < 0 {
				return Key{ns, name}, nil
			}
		}
		s, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return Key{}, cache.KeyError{Obj: obj, Err: err}
		}
		return Split(s), nil
	}
	s, err := f.custom(obj)
	if err != nil {
		return Key{}, cache.KeyError{Obj: obj, Err: err}
	}
	return Split(s), nil
}

// OfQueued is Of for what may stand in a delta queue: it also knows tombstones
// and client-go's Deltas.
func (f Func) OfQueued(obj any) (Key, error) {
	switch o := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		return Split(o.Key), nil
	case cache.Deltas:
		if len(o) == 0 {
			return Key{}, cache.KeyError{Obj: obj, Err: cache.ErrZeroLengthDeltasObject}
		}
		return f.OfQueued(o.Newest().Object)
	}
	return f.Of(obj)
}

// Check tells whether OfQueued would find a key. For the usual object it costs a
// type assertion and does not look at the object's memory.
func (f Func) Check(obj any) error {
	if f.custom == nil {
		if _, ok := obj.(metav1.Object); ok {
			return nil
		}
	}
	_, err := f.OfQueued(obj)
	return err
}
