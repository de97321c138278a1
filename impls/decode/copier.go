package decode

import (
	"maps"
	"reflect"
	"sync"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// copier copies the values of a type, so that a write to a copy cannot show in the value or in
// another copy. The copies share what Go cannot change: the bytes of strings, and the location of a
// time. They have pointers, slices and maps of their own. A slice has no room, so that an append to
// it copies. It is built by reflection, once a type.
type copier struct {
	typ   reflect.Type
	parts []part // in the order of the type; all of a value is in parts
	plain bool   // no part holds a pointer
}

// holds is what a part of a value holds.
type holds uint8

const (
	scalars   holds = iota // a range without pointers
	words                  // a string
	constant               // a pointer to what does not change
	pointer                // to a value of elem
	slice                  // of elem
	stringMap              // map[string]string
	resources              // v1.ResourceList
	anyMap                 // any other map, with keys of key
	tree                   // any
	object                 // runtime.Object, nil in what is decoded
)

// part is a range of the memory of a value.
type part struct {
	at    uintptr
	holds holds
	width uintptr      // of scalars
	typ   reflect.Type // of a slice or map
	key   *copier      // of anyMap
	elem  *copier
}

var copiers = struct {
	mu sync.Mutex
	of map[reflect.Type]*copier // guarded by mu; nil for types that have none
}{of: map[reflect.Type]*copier{}}

// copierOf returns the copier of a type, or nil for a type with values that cannot be copied, such as
// channels.
func copierOf(typ reflect.Type) *copier {
	copiers.mu.Lock()
	defer copiers.mu.Unlock()
	if c, ok := copiers.of[typ]; ok {
		return c
	}
	built := map[reflect.Type]*copier{}
	c := build(built, typ)
	if c == nil { // a type that refers to itself may be in a copier that is no good
		copiers.of[typ] = nil
		return nil
	}
	maps.Copy(copiers.of, built)
	return c
}

// build returns the copier of a type, and adds it and those it needs to built.
func build(built map[reflect.Type]*copier, typ reflect.Type) *copier {
	if c, ok := copiers.of[typ]; ok {
		return c
	}
	if c, ok := built[typ]; ok {
		return c
	}
	c := &copier{typ: typ, plain: true}
	built[typ] = c
	if !c.add(built, typ, 0) {
		return nil
	}
	for _, p := range c.parts {
		c.plain = c.plain && p.holds == scalars
	}
	return c
}

var (
	locationType  = reflect.TypeFor[*time.Location]()
	resourcesType = reflect.TypeFor[v1.ResourceList]()
	anyType       = reflect.TypeFor[any]()
)

// add adds the parts of a value of the type at an offset.
func (c *copier) add(built map[reflect.Type]*copier, typ reflect.Type, at uintptr) bool {
	p := part{at: at, typ: typ}
	of := func(h holds, elem reflect.Type) bool {
		p.holds = h
		p.elem = build(built, elem)
		return p.elem != nil
	}
	ok := true
	switch typ.Kind() {
	case reflect.Struct:
		if pkg := typ.PkgPath(); pkg == "sync" || pkg == "sync/atomic" {
			return false
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !c.add(built, f.Type, at+f.Offset) {
				return false
			}
		}
		return true
	case reflect.Array:
		for i := range typ.Len() {
			if !c.add(built, typ.Elem(), at+uintptr(i)*typ.Elem().Size()) {
				return false
			}
		}
		return true
	case reflect.String:
		p.holds = words
	case reflect.Pointer:
		if typ == locationType {
			p.holds = constant
		} else {
			ok = of(pointer, typ.Elem())
		}
	case reflect.Slice:
		ok = of(slice, typ.Elem())
	case reflect.Map:
		switch typ {
		case dictType:
			p.holds = stringMap
		case resourcesType:
			p.holds = resources
		default:
			ok = of(anyMap, typ.Elem())
			p.key = build(built, typ.Key())
			ok = ok && p.key != nil
		}
	case reflect.Interface:
		switch typ {
		case anyType:
			p.holds = tree
		case objectType:
			p.holds = object
		default:
			return false
		}
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return false
	default:
		p.width = typ.Size()
		if n := len(c.parts); n > 0 && c.parts[n-1].holds == scalars { // the gap is padding
			c.parts[n-1].width = at + p.width - c.parts[n-1].at
			return true
		}
	}
	c.parts = append(c.parts, p)
	return ok
}

func (c *copier) new() unsafe.Pointer { return reflect.New(c.typ).UnsafePointer() }

// copied returns a copy of the value at src in memory of its own.
func (c *copier) copied(src unsafe.Pointer) unsafe.Pointer {
	dst := c.new()
	c.copy(dst, src)
	return dst
}

// size returns the bytes of memory that a copy of the value at src takes beside the value itself, those
// of strings included. It returns false for a value that cannot be copied.
func (c *copier) size(src unsafe.Pointer) (n int64, ok bool) {
	if c.plain {
		return 0, true
	}
	for i := range c.parts {
		p := &c.parts[i]
		m, ok := p.size(unsafe.Add(src, p.at))
		if !ok {
			return 0, false
		}
		n += m
	}
	return n, true
}

func (p *part) size(from unsafe.Pointer) (n int64, ok bool) {
	switch p.holds {
	case words:
		return int64(len(*(*string)(from))), true
	case pointer:
		if old := *(*unsafe.Pointer)(from); old != nil {
			n, ok = p.elem.size(old)
			return n + int64(p.elem.typ.Size()), ok
		}
	case slice:
		old, size := *(*[]byte)(from), p.elem.typ.Size()
		n = int64(len(old)) * int64(size)
		for i := range uintptr(len(old)) {
			m, ok := p.elem.size(unsafe.Add(unsafe.Pointer(unsafe.SliceData(old)), i*size))
			if n += m; !ok || p.elem.plain {
				return n, ok
			}
		}
	case stringMap:
		for key, value := range *(*map[string]string)(from) {
			n += int64(len(key)+len(value)) + mapEntry
		}
	case resources:
		for key, q := range *(*v1.ResourceList)(from) {
			n += int64(len(key)+len(q.Format)) + int64(unsafe.Sizeof(q)) + mapEntry
		}
	case anyMap:
		old := reflect.NewAt(p.typ, from).Elem()
		for it := old.MapRange(); it.Next(); {
			for _, side := range []struct {
				*copier
				reflect.Value
			}{{p.key, it.Key()}, {p.elem, it.Value()}} {
				ptr := reflect.New(side.typ)
				ptr.Elem().Set(side.Value)
				m, ok := side.copier.size(ptr.UnsafePointer())
				if n += m + int64(side.typ.Size()) + mapEntry/2; !ok {
					return 0, false
				}
			}
		}
	case tree:
		return treeSize(*(*any)(from))
	case object:
		return 0, *(*runtime.Object)(from) == nil
	}
	return n, true
}

const mapEntry = 64 // bytes that an entry of a map takes at most, and its share of the map

func treeSize(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		n = mapEntry
		for key, value := range v {
			m, ok := treeSize(value)
			if n += m + int64(len(key)) + mapEntry; !ok {
				return 0, false
			}
		}
	case []any:
		n = int64(len(v)+1) * int64(unsafe.Sizeof(v))
		for _, value := range v {
			m, ok := treeSize(value)
			if n += m; !ok {
				return 0, false
			}
		}
	case string:
		n = int64(len(v)) + int64(unsafe.Sizeof(v))
	case nil, bool, int64, float64:
		n = 8
	default:
		return 0, false
	}
	return n, true
}

// copy copies the value at src to the zero value at dst.
func (c *copier) copy(dst, src unsafe.Pointer) {
	for i := range c.parts {
		p := &c.parts[i]
		to, from := unsafe.Add(dst, p.at), unsafe.Add(src, p.at)
		switch p.holds {
		case scalars:
			move(to, from, p.width)
		case words:
			*(*string)(to) = *(*string)(from)
		case constant:
			*(*unsafe.Pointer)(to) = *(*unsafe.Pointer)(from)
		case pointer:
			if old := *(*unsafe.Pointer)(from); old != nil {
				*(*unsafe.Pointer)(to) = p.elem.copied(old)
			}
		case slice:
			p.slice(to, from)
		case stringMap:
			*(*map[string]string)(to) = maps.Clone(*(*map[string]string)(from))
		case resources:
			*(*v1.ResourceList)(to) = (*v1.ResourceList)(from).DeepCopy()
		case anyMap:
			p.anyMap(to, from)
		case tree:
			*(*any)(to) = copiedTree(*(*any)(from))
		case object: // nil
		}
	}
}

// move copies memory without pointers.
func move(dst, src unsafe.Pointer, size uintptr) {
	switch size {
	case 1:
		*(*byte)(dst) = *(*byte)(src)
	case 4:
		*(*uint32)(dst) = *(*uint32)(src)
	case 8:
		*(*uint64)(dst) = *(*uint64)(src)
	default:
		copy(unsafe.Slice((*byte)(dst), size), unsafe.Slice((*byte)(src), size))
	}
}

func (p *part) slice(to, from unsafe.Pointer) {
	old := *(*[]byte)(from) // of any type
	n, size := len(old), p.elem.typ.Size()
	if n == 0 {
		if old != nil {
			*(*[]byte)(to) = []byte{}
		}
		return
	}
	src := unsafe.Pointer(unsafe.SliceData(old))
	dst := grow(p.typ, to, n)
	if p.elem.plain {
		move(dst, src, uintptr(n)*size)
		return
	}
	for i := range uintptr(n) {
		p.elem.copy(unsafe.Add(dst, i*size), unsafe.Add(src, i*size))
	}
}

func (p *part) anyMap(to, from unsafe.Pointer) {
	old := reflect.NewAt(p.typ, from).Elem()
	if old.IsNil() {
		return
	}
	m := reflect.MakeMapWithSize(p.typ, old.Len())
	for it := old.MapRange(); it.Next(); {
		m.SetMapIndex(p.key.value(it.Key()), p.elem.value(it.Value()))
	}
	reflect.NewAt(p.typ, to).Elem().Set(m)
}

// value returns a copy of a value that has no address.
func (c *copier) value(old reflect.Value) reflect.Value {
	src := reflect.New(c.typ)
	src.Elem().Set(old)
	return reflect.NewAt(c.typ, c.copied(src.UnsafePointer())).Elem()
}

// copiedTree copies a value of unstructured JSON.
func copiedTree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		m := make(map[string]any, len(v))
		for key, value := range v {
			m[key] = copiedTree(value)
		}
		return m
	case []any:
		if v == nil {
			return v
		}
		s := make([]any, len(v))
		for i, value := range v {
			s[i] = copiedTree(value)
		}
		return s
	}
	return v
}
