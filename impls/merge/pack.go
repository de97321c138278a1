package merge

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"
)

// maxShapes is the maximum number of shapes of a [packer]. A shape is a type created at run time,
// which Go never frees. Values of further shapes are not packed.
const maxShapes = 256

// packer makes packed copies of values of T. A deep copy of a packed value is cheap: one allocation
// for everything but maps, one move of memory, and an update of the internal pointers. An ordinary
// deep copy spends most of its time on the allocation of its many parts.
//
// All methods are safe for concurrent use.
type packer[T any] struct {
	root   *plan
	mu     sync.RWMutex      // guards shapes
	shapes map[string]*shape // the known shapes by signature
}

// packed is a packed copy of a value. It must not be changed.
type packed[T any] struct {
	shape *shape
	value reflect.Value
	deep  []bool // by map of the shape: whether its values refer to other memory
}

// newPacker returns a packer of T. It panics where [equalOf] does.
func newPacker[T any](options ...option) *packer[T] {
	return &packer[T]{root: compile[T](options), shapes: make(map[string]*shape)}
}

// shape is the memory layout of a packed value: a struct with one field for the
// value and one for each part that it refers to, except maps.
type shape struct {
	typ   reflect.Type
	links []link    // the pointers and slices of the value to parts of the struct
	maps  []mapSite // the maps of the value
}

// link is a pointer at one offset to another offset.
type link struct{ at, to uintptr }

type mapSite struct {
	at    uintptr
	clone func(at unsafe.Pointer, deep bool)
}

// walk collects the parts of a value and lays them out like a struct.
type walk struct {
	signature []byte // identifies the shape: the number of elements at each site
	parts     []part
	size      uintptr
	links     []link
	maps      []mapSite
	deep      []bool    // by map
	slices    []uintptr // offsets of slices, whose capacity becomes their length
}

// part is one field of the struct.
type part struct {
	typ  reflect.Type
	from unsafe.Pointer
}

// add adds count values and what they refer to, and returns their offset.
func (w *walk) add(p *plan, count int, from unsafe.Pointer) uintptr {
	typ, align := p.typ, uintptr(p.typ.Align())
	if count != 1 {
		typ = reflect.ArrayOf(count, typ)
	}
	at := (w.size + align - 1) &^ (align - 1)
	w.size = at + typ.Size()
	w.parts = append(w.parts, part{typ, from})
	size := p.typ.Size()
	if p.flat(size) {
		return at // as the kilobytes of managedFields
	}
	for n := range uintptr(count) {
		w.collect(p, unsafe.Add(from, n*size), at+n*size)
	}
	return at
}

var location = reflect.TypeFor[time.Location]()

// collect adds what a value refers to. Its offset is at.
func (w *walk) collect(p *plan, from unsafe.Pointer, at uintptr) {
	for _, r := range p.pointers {
		// As DeepCopy, a copied time shares its location.
		to := *(*unsafe.Pointer)(unsafe.Add(from, r.off))
		if r.plan.typ != location && w.refers(to) {
			w.links = append(w.links, link{at + r.off, w.add(r.plan, 1, to)})
		}
	}
	for _, r := range p.slices {
		w.slice(r.plan, (*sliceHeader)(unsafe.Add(from, r.off)), at+r.off)
	}
	for i := range p.steps {
		s := &p.steps[i]
		here := unsafe.Add(from, s.off)
		switch s.kind {
		case bytes:
			w.slice(s.plan, (*sliceHeader)(here), at+s.off)
		case stringMap, typedMap:
			if w.refers(*(*unsafe.Pointer)(here)) {
				w.maps = append(w.maps, mapSite{at + s.off, s.clone})
				w.deep = append(w.deep, s.deep(here))
			}
		}
	}
}

// refers reports whether a value refers to other memory. It is called for each value of a map, so
// it allocates nothing.
func (p *plan) refers(v unsafe.Pointer) bool {
	for _, references := range [][]indirection{p.pointers, p.slices} {
		for i := range references {
			if *(*unsafe.Pointer)(unsafe.Add(v, references[i].off)) != nil {
				return true
			}
		}
	}
	for i := range p.steps {
		switch s := &p.steps[i]; s.kind {
		case bytes, stringMap, typedMap:
			if *(*unsafe.Pointer)(unsafe.Add(v, s.off)) != nil {
				return true
			}
		}
	}
	return false
}

// refers adds to the signature whether a indirection is nil, and reports it.
func (w *walk) refers(to unsafe.Pointer) bool {
	if to == nil {
		w.signature = append(w.signature, 0)
		return false
	}
	w.signature = append(w.signature, 1)
	return true
}

func (w *walk) slice(elem *plan, h *sliceHeader, at uintptr) {
	if !w.refers(h.data) {
		return
	}
	w.signature = binary.AppendUvarint(w.signature, uint64(h.len))
	w.slices = append(w.slices, at)
	if h.len > 0 {
		w.links = append(w.links, link{at, w.add(elem, h.len, h.data)})
	}
}

var empty [0]byte // the target of empty slices that are not nil

// Pack returns a packed copy of a value, or nil if there are [maxShapes] other shapes. The maps are
// shared with the value, which must not change while the packed copy is in use.
func (p *packer[T]) Pack(v *T) *packed[T] {
	w := &walk{}
	w.add(p.root, 1, unsafe.Pointer(v))
	s := p.shape(w)
	if s == nil {
		return nil
	}
	q := &packed[T]{shape: s, value: reflect.New(s.typ).Elem(), deep: w.deep}
	for i, part := range w.parts {
		q.value.Field(i).Set(reflect.NewAt(part.typ, part.from).Elem())
	}
	base := q.value.Addr().UnsafePointer()
	for _, at := range w.slices {
		h := (*sliceHeader)(unsafe.Add(base, at))
		h.cap = h.len
		if h.len == 0 {
			h.data = unsafe.Pointer(&empty)
		}
	}
	s.link(base)
	return q
}

// link makes the pointers of a struct at base point into it.
func (s *shape) link(base unsafe.Pointer) {
	for _, l := range s.links {
		*(*unsafe.Pointer)(unsafe.Add(base, l.at)) = unsafe.Add(base, l.to)
	}
}

// shape returns the shape of a walk, and creates it if needed; nil if there are too many.
func (p *packer[T]) shape(w *walk) *shape {
	p.mu.RLock()
	s, ok := p.shapes[string(w.signature)]
	full := len(p.shapes) >= maxShapes
	p.mu.RUnlock()
	if ok || full {
		return s
	}
	fields := make([]reflect.StructField, len(w.parts))
	for i, part := range w.parts {
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: part.typ}
	}
	s = &shape{typ: reflect.StructOf(fields), links: w.links, maps: w.maps}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shapes[string(w.signature)] = s
	return s
}

// Copy returns a deep copy of the packed value. It shares only strings, channels and the locations
// of times. All parts are one allocation: a indirection to one part keeps all in memory.
func (q *packed[T]) Copy() *T {
	value := reflect.New(q.shape.typ)
	value.Elem().Set(q.value)
	base := value.UnsafePointer()
	q.shape.link(base)
	for i, m := range q.shape.maps {
		m.clone(unsafe.Add(base, m.at), q.deep[i])
	}
	return (*T)(base)
}
