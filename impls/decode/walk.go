package decode

import (
	"reflect"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxDepth is the depth of messages below which the generated code decodes.
const maxDepth = 32

// walk decodes messages by their plans. Each method reports false for input that the walk does not
// decode: malformed bytes, a message or a run of fields that occurs twice, wrong wire types. The
// caller then decodes the whole object with the generated code, which gives the object or the error
// of client-go.
//
// Pointers: dst points at a value of the plan's own type that reflect or Go has allocated, and a
// field is at dst plus its offset by reflect. It is written with its own type, as a string, a
// pointer (unsafe.Pointer, so with a write barrier) or by reflect.
type walk struct {
	giver
	sampled bool // the object is of the sample, all of which is hashed
	saved   int  // bytes of groups found

	own  []byte // bytes of the object of which text is a copy
	text string // "" if not made yet
}

// substring returns b as a string that shares the memory of the object's other strings, if b is in own.
func (w *walk) substring(b []byte) (s string, ok bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(w.own)))
	if len(b) == 0 || at >= uintptr(len(w.own)) {
		return "", len(b) == 0
	}
	if w.text == "" {
		w.text = string(w.own)
	}
	return w.text[at:][:len(b)], true
}

// known is that of the table for large groups, and for others where hashing pays or in an object of
// the sample.
func (w *walk) known(pos *position, k *kind, b []byte) (value unsafe.Pointer, hash uint64) {
	if len(b) < largeGroup && !w.sampled && !pos.worth() {
		return nil, 0
	}
	if value, hash = w.Table.known(pos, k, b); value != nil {
		w.saved += len(b)
	}
	if w.kept > 0 && !pos.worth() {
		hash = 0 // what repeats is the group around it
	}
	return value, hash
}

func (w *walk) intern(pos *position, b []byte) string {
	if s, ok := w.substring(b); ok {
		return s
	}
	if !w.sampled && !pos.worth() {
		return string(b)
	}
	return w.Table.intern(pos, b)
}

// parts decodes a group by walk, or by merge if it is large and no groups repeat within it. A group
// that the table will keep is walked: the generated code leaves room in slices.
func (w *walk) parts(f *field, b []byte, hash uint64, walk, merge func() bool) bool {
	if hash == 0 && w.kept == 0 && !w.sampled && len(b) >= largeGroup && f.parts.Load() < 0 {
		return merge()
	}
	before := w.saved
	if hash != 0 {
		w.kept++
		defer func() { w.kept-- }()
	}
	ok := walk()
	learn(&f.parts, (w.saved-before)*partsShare >= len(b), partsGain, 1)
	return ok
}

// message decodes b into the zero message at dst. The object has depth 0, and a list of objects -1.
func (w *walk) message(p *plan, dst unsafe.Pointer, b []byte, depth int) bool {
	if depth > maxDepth {
		return p.merge(dst, b)
	}
	var seen uint64
	for i := 0; i < len(b); {
		tag, from, to, ok := span(b, i)
		if !ok {
			return false
		}
		f := p.field(tag)
		if f == nil {
			i = to // unknown to the type, skipped as by the generated code
			continue
		}
		at := unsafe.Add(dst, f.at)
		if f.shape == opaque {
			if !p.merge(dst, b[i:to]) {
				return false
			}
			i = to
			continue
		}
		if tag&7 != f.wire || f.shape >= message && seen&f.bit != 0 {
			return false
		}
		seen |= f.bit
		switch f.shape {
		case text:
			if s := w.intern(&f.whole, b[from:to]); f.pointer {
				*(**string)(at) = new(s)
			} else {
				*(*string)(at) = s
			}
		case number:
			v, _ := uvarint(b, from)
			setNumber(f.typ, at, v)
		case custom:
			ok = f.unmarshal(at, b[from:to])
		case message:
			ok = w.sub(f, at, b[from:to], depth+1)
		default:
			start := i
			var n int
			if to, n, ok = run(b, to, tag); ok {
				ok = w.group(p, f, dst, b[start:to:to], n, depth)
			}
		}
		if !ok {
			return false
		}
		i = to
	}
	return true
}

// setNumber sets a field of the type, a number or a pointer to one.
func setNumber(typ reflect.Type, at unsafe.Pointer, v uint64) {
	is, pointer := typ.Kind(), false
	if is == reflect.Pointer {
		is, pointer = typ.Elem().Kind(), true
	}
	switch {
	case is == reflect.Bool && pointer:
		*(**bool)(at) = new(v != 0)
	case is == reflect.Bool:
		*(*bool)(at) = v != 0
	case is == reflect.Int32 && pointer:
		*(**int32)(at) = new(int32(v))
	case is == reflect.Int32:
		*(*int32)(at) = int32(v)
	case pointer:
		*(**int64)(at) = new(int64(v))
	default:
		*(*int64)(at) = int64(v)
	}
}

// unmarshal decodes a field of a type with hand-written code. As in the generated code, a pointer
// that is set keeps its value.
func (f *field) unmarshal(at unsafe.Pointer, b []byte) bool {
	typ := f.typ
	if f.pointer {
		typ = typ.Elem()
		if *(*unsafe.Pointer)(at) == nil {
			*(*unsafe.Pointer)(at) = reflect.New(typ).UnsafePointer()
		}
		at = *(*unsafe.Pointer)(at)
	}
	if typ == timeType {
		return (*metav1.Time)(at).Unmarshal(b) == nil
	}
	return reflect.NewAt(typ, at).Interface().(unmarshaler).Unmarshal(b) == nil
}

// sub decodes a field that is a message. The metadata of the object holds its resource version and
// never repeats.
func (w *walk) sub(f *field, at unsafe.Pointer, b []byte, depth int) bool {
	p := f.elem
	if depth <= 1 && p.typ == objectMetaType {
		return w.message(p, at, b, depth)
	}
	var hash uint64
	if p.readOnly {
		var value unsafe.Pointer
		if value, hash = w.known(&f.whole, &p.kind, b); value != nil {
			if f.pointer {
				*(*unsafe.Pointer)(at) = value
			} else {
				p.copy(at, value)
			}
			return true
		}
	}
	if f.pointer {
		ptr := p.new()
		*(*unsafe.Pointer)(at) = ptr
		at = ptr
	}
	if !p.readOnly {
		return w.message(p, at, b, depth)
	}
	if !w.parts(f, b, hash, func() bool { return w.message(p, at, b, depth) }, func() bool { return p.merge(at, b) }) {
		return false
	}
	if hash != 0 {
		w.keep(hash, &p.kind, b, at, f.pointer)
	}
	return true
}

// group decodes a run of n fields with one tag, of a list or map.
func (w *walk) group(p *plan, f *field, dst unsafe.Pointer, b []byte, n, depth int) bool {
	at := unsafe.Add(dst, f.at)
	if depth == 1 && p.typ == objectMetaType && f.name == "ManagedFields" {
		return w.check(f, b)
	}
	if depth < 0 {
		return w.list(f, at, b, n, depth)
	}
	var hash uint64
	if f.readOnly {
		var value unsafe.Pointer
		if value, hash = w.known(&f.whole, &f.kind, b); value != nil {
			f.copy(at, value)
			return true
		}
	}
	var ok bool
	switch {
	case f.shape == list && !f.readOnly:
		ok = w.list(f, at, b, n, depth)
	case f.shape == list:
		ok = w.parts(f, b, hash, func() bool { return w.list(f, at, b, n, depth) }, func() bool { return p.merge(dst, b) })
	case f.shape == texts:
		ok = w.texts(f, at, b, n)
	case f.shape == dict:
		ok = w.dict(f, at, b, n) || p.merge(dst, b)
	case f.typ == resourcesType:
		ok = w.resources(f, at, b, n) || p.merge(dst, b)
	default:
		ok = p.merge(dst, b)
	}
	if ok && hash != 0 {
		w.keep(hash, &f.kind, b, at, false)
	}
	return ok
}

// elements calls f with each of the n values of a run.
func elements(b []byte, n int, f func(i int, value []byte) bool) bool {
	for i, at := 0, 0; i < n; i++ {
		_, from, to, ok := span(b, at)
		if !ok || !f(i, b[from:to:to]) {
			return false
		}
		at = to
	}
	return true
}

// list decodes a run of messages. The slice has no room, so that an append to it copies.
func (w *walk) list(f *field, at unsafe.Pointer, b []byte, n, depth int) bool {
	var data unsafe.Pointer
	if f.elem.make != nil {
		data = f.elem.make(n)
		*(*[]byte)(at) = unsafe.Slice((*byte)(data), n) // of any type
	} else {
		data = grow(f.typ, at, n)
	}
	size := f.elem.typ.Size()
	return elements(b, n, func(i int, value []byte) bool {
		at := unsafe.Add(data, uintptr(i)*size)
		switch {
		case depth < 0:
			return w.item(f.elem, at, value)
		case !f.readOnly:
			return w.message(f.elem, at, value, depth+1)
		}
		known, hash := w.known(&f.each, &f.elem.kind, value)
		if known != nil {
			f.elem.copy(at, known)
			return true
		}
		ok := w.message(f.elem, at, value, depth+1)
		if ok && hash != 0 {
			w.keep(hash, &f.elem.kind, value, at, false)
		}
		return ok
	})
}

// grow makes the nil slice at a slice of n zero elements, without room, and returns the first.
func grow(typ reflect.Type, at unsafe.Pointer, n int) unsafe.Pointer {
	s := reflect.NewAt(typ, at).Elem()
	s.Grow(n)
	s.SetLen(n)
	s.SetCap(n)
	return s.UnsafePointer()
}

func (w *walk) texts(f *field, at unsafe.Pointer, b []byte, n int) bool {
	s := make([]string, n)
	*(*[]string)(at) = s
	return elements(b, n, func(i int, value []byte) bool {
		s[i] = w.intern(&f.each, value)
		return true
	})
}

// dict decodes a run of map entries. It reports false for an entry that is not a key and a value.
func (w *walk) dict(f *field, at unsafe.Pointer, b []byte, n int) bool {
	m := make(map[string]string, n)
	ok := entries(b, n, func(key, value []byte) bool {
		m[w.intern(&f.each, key)] = w.intern(&f.each, value)
		return true
	})
	if ok {
		*(*map[string]string)(at) = m
	}
	return ok
}

func (w *walk) resources(f *field, at unsafe.Pointer, b []byte, n int) bool {
	m := make(v1.ResourceList, n)
	ok := entries(b, n, func(key, value []byte) bool {
		var q resource.Quantity
		if q.Unmarshal(value) != nil {
			return false
		}
		m[v1.ResourceName(w.intern(&f.each, key))] = q
		return true
	})
	if ok {
		*(*v1.ResourceList)(at) = m
	}
	return ok
}

func entries(b []byte, n int, f func(key, value []byte) bool) bool {
	return elements(b, n, func(_ int, entry []byte) bool {
		tag, from, to, ok := span(entry, 0)
		if !ok || tag != 1<<3|wireBytes {
			return false
		}
		tag, vfrom, vto, ok := span(entry, to)
		return ok && tag == 2<<3|wireBytes && vto == len(entry) && f(entry[from:to], entry[vfrom:vto])
	})
}

// check reports whether the generated code accepts the run of a list that is not decoded.
func (w *walk) check(f *field, b []byte) bool {
	n := 0
	for i := 0; i < len(b); n++ {
		_, from, to, ok := span(b, i)
		if !ok || !w.accepts(f.elem, b[from:to]) {
			return false
		}
		i = to
	}
	return true
}

func (w *walk) accepts(p *plan, b []byte) bool {
	for i := 0; i < len(b); {
		tag, from, to, ok := span(b, i)
		if !ok {
			return false
		}
		if f := p.field(tag); f != nil {
			value := b[from:to]
			switch {
			case tag&7 != f.wire:
				return false
			case f.shape == text || f.shape == number || f.shape == opaque && f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() == reflect.Uint8:
			case f.shape == message && w.accepts(f.elem, value):
			case f.shape == custom && f.typ.Elem() == timeType && new(metav1.Time).Unmarshal(value) == nil:
			default:
				return false
			}
		}
		i = to
	}
	return true
}
