// Package keys has the shared parts of queues with keys:
//
//   - [Key] is a client-go key without a joined string.
//   - [FIFO] queues each key at most once.
//   - [InitialList] implements HasSynced.
//   - [CheckShards] checks a number of shards.
//   - [UpstreamLen] returns the length of a baseline.
//
// client-go's keys are strings, "namespace/name" or "name", whose construction
// allocates. A Key has both parts as in the object. It is canonical: two keys are
// equal if and only if client-go's strings are equal.
package keys

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls"
)

// Key is a key split at its first slash. Namespace is empty if the string has no
// slash after its first byte. It never contains a slash.
type Key struct{ Namespace, Name string }

// Split splits a client-go key. It does not allocate.
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

var (
	seed          = maphash.MakeSeed()
	namespaceSeed = maphash.String(seed, "namespace") // differs from run to run
)

// Hash returns a 64-bit hash of the key, equal for equal keys within one process.
func (k Key) Hash() uint64 {
	h := maphash.String(seed, k.Name)
	if k.Namespace != "" {
		n, _ := namespaceHash(k.Namespace)
		h ^= n
	}
	return h
}

// Hashed returns the canonical key of a namespace and a name (see
// [Key.Canonical]) and its hash. It scans the namespace once.
func (k Key) Hashed() (Key, uint64) {
	if k.Namespace != "" {
		if n, slash := namespaceHash(k.Namespace); !slash {
			return k, maphash.String(seed, k.Name) ^ n
		}
	}
	k = k.Canonical()
	return k, k.Hash()
}

const (
	golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	ones   = 0x0101010101010101
	highs  = 0x80 * ones
)

// namespaceHash hashes a namespace 8 bytes at a time, and reports whether it
// contains a slash. Namespaces are short and few.
func namespaceHash(s string) (hash uint64, slash bool) {
	b := []byte(s) // Not copied, as it is only read.
	h := namespaceSeed ^ uint64(len(b))
	var found uint64
	if len(b) < 8 {
		var w uint64
		for _, c := range b {
			w = w<<8 | uint64(c)
		}
		return fold(h ^ w), slashes(w) != 0
	}
	for i := 0; i+8 < len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		found |= slashes(w)
		h = fold(h ^ w)
	}
	// The last 8 bytes may overlap the previous block.
	w := binary.LittleEndian.Uint64(b[len(b)-8:])
	return fold(h ^ w), found|slashes(w) != 0
}

// fold multiplies and combines the halves of the product, so that every bit of x
// affects the result.
func fold(x uint64) uint64 {
	high, low := bits.Mul64(x, golden)
	return high ^ low
}

// slashes returns a non-zero value if a byte of w is a slash: that byte of
// w^pattern is 0. Only the lowest such byte is reliable.
func slashes(w uint64) uint64 {
	x := w ^ '/'*ones
	return (x - ones) &^ x & highs
}

// Func computes keys like a [cache.KeyFunc]. The zero value is [cache.MetaNamespaceKeyFunc].
type Func struct {
	custom     cache.KeyFunc // nil if the key is namespace and name
	tombstones bool          // a tombstone has its own key
	deltas     bool          // client-go's Deltas have the key of the newest object
	// plain is the last type whose GetName and GetNamespace return its metadata's fields. A queue has
	// objects of one type, so nearly every key is read without a call of these methods.
	plain *atomic.Pointer[reflect.Type]
}

// NewFunc returns the Func of a key function for a queue of deltas: like DeltaFIFO, it accepts
// tombstones and Deltas whatever the function. nil means [cache.MetaNamespaceKeyFunc].
func NewFunc(f cache.KeyFunc) Func {
	of := NewObjectFunc(f)
	of.tombstones, of.deltas = true, true
	return of
}

// NewObjectFunc returns the Func that accepts what a key function accepts; nil means
// [cache.MetaNamespaceKeyFunc]. That function and [cache.DeletionHandlingMetaNamespaceKeyFunc] are
// recognized and not called.
func NewObjectFunc(f cache.KeyFunc) Func {
	tombstones := same(f, cache.DeletionHandlingMetaNamespaceKeyFunc)
	if f == nil || tombstones || same(f, cache.MetaNamespaceKeyFunc) {
		return Func{tombstones: tombstones, plain: new(atomic.Pointer[reflect.Type])}
	}
	return Func{custom: f}
}

func same(a, b cache.KeyFunc) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// Raw returns namespace and name of an object as input of Canonical, or false if OfQueued is needed.
// It reads the object's metadata but not the bytes of its strings. So if a caller takes the Raws of
// several objects first and computes their keys afterwards, the cache misses overlap. It panics, as
// client-go does, if the object is a nil pointer.
func (f Func) Raw(obj any) (Key, bool) {
	if f.custom != nil {
		return Key{}, false
	}
	if f.isPlain(obj) {
		if m, ok := obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta); ok {
			return Key{m.Namespace, m.Name}, true
		}
	}
	if o, ok := obj.(metav1.Object); ok {
		return Key{o.GetNamespace(), o.GetName()}, true
	}
	return Key{}, false
}

// isPlain reports whether obj is of a type of Kubernetes' own API, none of which overrides the
// methods of its metadata. Other types may.
func (f Func) isPlain(obj any) bool {
	if f.plain == nil {
		return false
	}
	last := f.plain.Load()
	return last != nil && *last == reflect.TypeOf(obj) || f.learn(obj)
}

// learn is isPlain for a type that was not the last one.
func (f Func) learn(obj any) bool {
	t := reflect.TypeOf(obj)
	if t == nil || t.Kind() != reflect.Pointer || !strings.HasPrefix(t.Elem().PkgPath(), "k8s.io/api") {
		return false
	}
	if _, ok := obj.(metav1.ObjectMetaAccessor); !ok {
		return false
	}
	plain := t // t itself would be allocated for all types
	f.plain.Store(&plain)
	return true
}

// Hashed returns the key of an object in a queue, as OfQueued, and its hash.
func (f Func) Hashed(obj any) (Key, uint64, error) {
	if raw, ok := f.Raw(obj); ok {
		key, hash := raw.Hashed()
		return key, hash, nil
	}
	key, err := f.OfQueued(obj)
	if err != nil {
		return Key{}, 0, err
	}
	return key, key.Hash(), nil
}

// Canonical returns the key of a namespace and a name.
func (k Key) Canonical() Key {
	switch {
	case k.Namespace == "":
		return Split(k.Name)
	case strings.IndexByte(k.Namespace, '/') >= 0:
		return Split(k.Namespace + "/" + k.Name)
	}
	return k
}

// OfQueued returns the key of an object in a queue. The error is a [cache.KeyError].
func (f Func) OfQueued(obj any) (Key, error) {
	if raw, ok := f.Raw(obj); ok {
		return raw.Canonical(), nil
	}
	switch o := obj.(type) {
	case cache.DeletedFinalStateUnknown:
		if f.tombstones {
			return Split(o.Key), nil
		}
	case cache.Deltas:
		if f.deltas && len(o) > 0 {
			return f.OfQueued(o.Newest().Object)
		} else if f.deltas {
			return Key{}, cache.KeyError{Obj: obj, Err: cache.ErrZeroLengthDeltasObject}
		}
	}
	function := f.custom
	if function == nil {
		function = cache.MetaNamespaceKeyFunc
	}
	s, err := function(obj)
	if err != nil {
		return Key{}, cache.KeyError{Obj: obj, Err: err}
	}
	return Split(s), nil
}

// Check returns the error of OfQueued, and panics where that does: the caller gets the panic, and not
// the goroutine that computes the key later. It does not read an object behind a pointer, which need
// not be in the processor's cache.
func (f Func) Check(obj any) error {
	if _, ok := obj.(metav1.Object); ok && f.custom == nil {
		if v := reflect.ValueOf(obj); v.Kind() != reflect.Pointer || v.IsNil() {
			f.Raw(obj)
		}
		return nil
	}
	_, err := f.OfQueued(obj)
	return err
}

// UpstreamLen returns a function for the length of a client-go queue (*cache.DeltaFIFO,
// *cache.RealFIFO, *cache.FIFO of v0.37), which has no such method. The function reads the queue's
// field "items" under the queue's own lock. So the result is exact and other operations do not slow
// down; a counting wrapper would slow the baseline. It returns an error if the queue lacks these
// fields, which may happen with a later client-go.
func UpstreamLen(queue any) (func() int, error) {
	v := reflect.ValueOf(queue)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T is not a pointer to a struct", queue)
	}
	lock, items := v.Elem().FieldByName("lock"), v.Elem().FieldByName("items")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.RWMutex]() {
		return nil, fmt.Errorf("%T has no field lock of type sync.RWMutex", queue)
	}
	if !items.IsValid() || (items.Kind() != reflect.Map && items.Kind() != reflect.Slice) {
		return nil, fmt.Errorf("%T has no map or slice in a field items", queue)
	}
	// The pointer stays inside the queue, which the reference to items keeps alive.
	mu := (*sync.RWMutex)(lock.Addr().UnsafePointer())
	return func() int {
		mu.RLock()
		defer mu.RUnlock()
		return items.Len()
	}, nil
}

// CheckShards checks the number of shards of a queue, of which 0 means the variant's default. The error
// wraps [impls.ErrOptions].
func CheckShards(shards, maxShards int) error {
	var says string
	switch {
	case shards < 0:
		says = fmt.Sprintf("Shards %d is negative (0 leaves it to the variant)", shards)
	case shards > maxShards && maxShards == 1:
		says = fmt.Sprintf("Shards %d: this variant has one part (allowed: 0, 1)", shards)
	case shards > maxShards:
		says = fmt.Sprintf("Shards %d is too large (allowed: 0 to %d)", shards, maxShards)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", impls.ErrOptions, says)
}
