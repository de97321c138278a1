package structural

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"unsafe"
)

// ErrUnpackable is wrapped by the error for a type that cannot be packed.
var ErrUnpackable = errors.New("type cannot be packed")

// MaxShapes is the maximum number of shapes of a [Packer]. A shape is a type
// created at run time, which Go never frees. Values of further shapes are not
// packed.
const MaxShapes = 256

// Packer makes packed copies of values of T. A deep copy of a packed value is
// cheap: one allocation for everything but maps, one move of memory, and an
// update of the internal pointers. An ordinary deep copy spends most of its time
// on the allocation of its many parts.
//
// All methods are safe for concurrent use.
type Packer[T any] struct {
	root *copyPlan
	// mu guards shapes.
	mu sync.RWMutex
	// shapes holds the known shapes by signature.
	shapes map[string]*shape
}

// Packed is a packed copy of a value. It must not be changed.
type Packed[T any] struct {
	shape *shape
	value reflect.Value
	// deep says for each typed map of the shape whether its values contain
	// pointers.
	deep []bool
}

// DeepCopier is a value with a DeepCopy method, like API types.
type DeepCopier[V any] interface{ DeepCopy() V }

// PackOption adds types that a [Packer] can pack.
type PackOption func(*packCompiler)

// PackMap allows maps from K to V. Without it only maps from string to string are
// allowed.
func PackMap[K comparable, V DeepCopier[V]]() PackOption {
	return func(c *packCompiler) {
		c.maps[reflect.TypeFor[map[K]V]()] = func(c *packCompiler) (*mapCopier, error) {
			elem, err := c.plan(reflect.TypeFor[V]())
			if err != nil {
				return nil, err
			}
			return &mapCopier{
				deep: func(at unsafe.Pointer) bool {
					for _, v := range *(*map[K]V)(at) {
						if elem.points(unsafe.Pointer(&v)) {
							return true
						}
					}
					return false
				},
				clone: func(at unsafe.Pointer, deep bool) {
					m := (*map[K]V)(at)
					if !deep {
						*m = maps.Clone(*m)
						return
					}
					copied := make(map[K]V, len(*m))
					for k, v := range *m {
						copied[k] = v.DeepCopy()
					}
					*m = copied
				},
			}, nil
		}
	}
}

// Share copies values of type V shallowly: the copies share what they point to.
func Share[V any]() PackOption {
	return func(c *packCompiler) { c.shared[reflect.TypeFor[V]()] = true }
}

// NewPacker returns a packer of T. The error wraps [ErrUnpackable] if T contains
// an interface, a func, a channel, a map without option, or itself.
func NewPacker[T any](options ...PackOption) (*Packer[T], error) {
	c := &packCompiler{
		maps:   make(map[reflect.Type]func(*packCompiler) (*mapCopier, error)),
		shared: make(map[reflect.Type]bool),
		plans:  make(map[reflect.Type]*copyPlan),
	}
	for _, option := range options {
		option(c)
	}
	root, err := c.plan(reflect.TypeFor[T]())
	if err != nil {
		return nil, err
	}
	return &Packer[T]{root: root, shapes: make(map[string]*shape)}, nil
}

// MustPacker is [NewPacker] for a package variable: it panics on an error.
func MustPacker[T any](options ...PackOption) *Packer[T] {
	p, err := NewPacker[T](options...)
	if err != nil {
		panic(err)
	}
	return p
}

// copyPlan lists the parts of a type that a deep copy must copy separately.
type copyPlan struct {
	typ   reflect.Type
	sites []site
}

// site is a field that refers to other memory.
type site struct {
	kind kind // pointer, slice, array, stringMap or typedMap
	off  uintptr
	// plan is that of the pointer's target, or of an element.
	plan *copyPlan
	// count is the number of elements of an array.
	count int
	maps  *mapCopier
}

// mapCopier copies a map through a pointer to it.
type mapCopier struct {
	// deep reports whether values of the map contain pointers.
	deep func(at unsafe.Pointer) bool
	// clone replaces the map by a copy.
	clone func(at unsafe.Pointer, deep bool)
}

var stringMaps = &mapCopier{
	deep: func(unsafe.Pointer) bool { return false },
	clone: func(at unsafe.Pointer, _ bool) {
		m := (*map[string]string)(at)
		*m = maps.Clone(*m)
	},
}

type packCompiler struct {
	maps   map[reflect.Type]func(*packCompiler) (*mapCopier, error)
	shared map[reflect.Type]bool
	plans  map[reflect.Type]*copyPlan
}

func (c *packCompiler) plan(t reflect.Type) (*copyPlan, error) {
	if p, ok := c.plans[t]; ok {
		return p, nil
	}
	if !c.shared[t] && recursive(t) {
		return nil, fmt.Errorf("%w: %v contains itself", ErrUnpackable, t)
	}
	p := &copyPlan{typ: t}
	sites, err := c.sites(t, 0, nil)
	if err != nil {
		return nil, err
	}
	p.sites = sites
	c.plans[t] = p
	return p, nil
}

// sites appends the sites of a value of type t at offset off.
func (c *packCompiler) sites(t reflect.Type, off uintptr, to []site) ([]site, error) {
	if c.shared[t] {
		return to, nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		p, err := c.plan(t.Elem())
		if err != nil {
			return nil, err
		}
		k := pointer
		if t.Kind() == reflect.Slice {
			k = slice
		}
		return append(to, site{kind: k, off: off, plan: p}), nil
	case reflect.Array:
		p, err := c.plan(t.Elem())
		if err != nil || len(p.sites) == 0 {
			return to, err
		}
		return append(to, site{kind: array, off: off, plan: p, count: t.Len()}), nil
	case reflect.Struct:
		for i := range t.NumField() {
			var err error
			if to, err = c.sites(t.Field(i).Type, off+t.Field(i).Offset, to); err != nil {
				return nil, err
			}
		}
		return to, nil
	case reflect.Map:
		if build, ok := c.maps[reflect.MapOf(t.Key(), t.Elem())]; ok {
			m, err := build(c)
			if err != nil {
				return nil, err
			}
			return append(to, site{kind: typedMap, off: off, maps: m}), nil
		}
		if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
			return append(to, site{kind: stringMap, off: off, maps: stringMaps}), nil
		}
		return nil, fmt.Errorf("%w: no option for %v", ErrUnpackable, t)
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return nil, fmt.Errorf("%w: %v in it", ErrUnpackable, t)
	default:
		return to, nil
	}
}

// points reports whether a value refers to other memory.
func (p *copyPlan) points(v unsafe.Pointer) bool {
	for i := range p.sites {
		s := &p.sites[i]
		at := unsafe.Add(v, s.off)
		if s.kind == array {
			for n := range s.count {
				if s.plan.points(unsafe.Add(at, uintptr(n)*s.plan.typ.Size())) {
					return true
				}
			}
			continue
		}
		if *(*unsafe.Pointer)(at) != nil {
			return true
		}
	}
	return false
}

// shape is the memory layout of a packed value: a struct with one field for the
// value and one for each part that it refers to, except maps.
type shape struct {
	typ reflect.Type
	// links has the pointers and slices of the value to parts of the struct.
	links []link
	// maps has the maps of the value.
	maps []mapSite
}

// link is a pointer at one offset to another offset.
type link struct{ at, to uintptr }

type mapSite struct {
	at   uintptr
	maps *mapCopier
}

// walk collects the parts of a value and lays them out like a struct.
type walk struct {
	// signature identifies the shape: the number of elements at each site.
	signature []byte
	parts     []part
	size      uintptr
	links     []link
	maps      []mapSite
	deep      []bool // by map
	// slices has the offsets of slices, whose capacity becomes their length; empty
	// those of slices that are empty but not nil.
	slices, empty []uintptr
}

// part is one field of the struct: count values of a plan's type.
type part struct {
	plan  *copyPlan
	count int
	from  unsafe.Pointer
	at    uintptr
}

func (p part) typ() reflect.Type {
	if p.count == 1 {
		return p.plan.typ
	}
	return reflect.ArrayOf(p.count, p.plan.typ)
}

// add adds count values and what they refer to, and returns their offset.
func (w *walk) add(p *copyPlan, count int, from unsafe.Pointer) uintptr {
	align := uintptr(p.typ.Align())
	at := (w.size + align - 1) &^ (align - 1)
	w.size = at + uintptr(count)*p.typ.Size()
	w.parts = append(w.parts, part{p, count, from, at})
	w.collect(p, from, at, count)
	return at
}

// collect adds what count values refer to. Their offset is at.
func (w *walk) collect(p *copyPlan, from unsafe.Pointer, at uintptr, count int) {
	if len(p.sites) == 0 {
		return
	}
	for n := range uintptr(count) {
		for i := range p.sites {
			s := &p.sites[i]
			off := n*p.typ.Size() + s.off
			here, place := unsafe.Add(from, off), at+off
			switch s.kind {
			case array:
				w.collect(s.plan, here, place, s.count)
			case slice:
				h := (*sliceHeader)(here)
				w.signature = appendCount(w.signature, h.len)
				if h.len > 0 {
					w.slices = append(w.slices, place)
					w.links = append(w.links, link{place, w.add(s.plan, h.len, h.data)})
				} else if w.refers(h.data) {
					w.empty = append(w.empty, place)
				}
			case pointer:
				if to := *(*unsafe.Pointer)(here); w.refers(to) {
					w.links = append(w.links, link{place, w.add(s.plan, 1, to)})
				}
			default:
				if w.refers(*(*unsafe.Pointer)(here)) {
					w.maps = append(w.maps, mapSite{place, s.maps})
					w.deep = append(w.deep, s.maps.deep(here))
				}
			}
		}
	}
}

// refers adds to the signature whether a reference is nil, and reports it.
func (w *walk) refers(to unsafe.Pointer) bool {
	if to == nil {
		w.signature = append(w.signature, 0)
		return false
	}
	w.signature = append(w.signature, 1)
	return true
}

func appendCount(signature []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		signature = append(signature, byte(n)|0x80)
	}
	return append(signature, byte(n))
}

// empty is the target of empty slices that are not nil.
var empty [0]byte

// Pack returns a packed copy of a value, or nil if there are [MaxShapes] other
// shapes. Maps without pointers are shared with the value, which must not change
// while the copy is in use.
func (p *Packer[T]) Pack(v *T) *Packed[T] {
	w := &walk{}
	w.add(p.root, 1, unsafe.Pointer(v))
	s := p.shape(w)
	if s == nil {
		return nil
	}
	q := &Packed[T]{shape: s, value: reflect.New(s.typ).Elem(), deep: w.deep}
	base := q.value.Addr().UnsafePointer()
	for i, part := range w.parts {
		q.value.Field(i).Set(reflect.NewAt(part.typ(), part.from).Elem())
	}
	s.link(base)
	for _, at := range w.slices {
		h := (*sliceHeader)(unsafe.Add(base, at))
		h.cap = h.len
	}
	for _, at := range w.empty {
		h := (*sliceHeader)(unsafe.Add(base, at))
		h.data, h.cap = unsafe.Pointer(&empty), 0
	}
	return q
}

// link makes the pointers of a struct at base point into it.
func (s *shape) link(base unsafe.Pointer) {
	for _, l := range s.links {
		*(*unsafe.Pointer)(unsafe.Add(base, l.at)) = unsafe.Add(base, l.to)
	}
}

// shape returns the shape of a walk, and creates it if needed; nil if there are
// too many.
func (p *Packer[T]) shape(w *walk) *shape {
	p.mu.RLock()
	s, ok := p.shapes[string(w.signature)]
	full := len(p.shapes) >= MaxShapes
	p.mu.RUnlock()
	if ok || full {
		return s
	}
	fields := make([]reflect.StructField, len(w.parts))
	for i, part := range w.parts {
		fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: part.typ()}
	}
	s = &shape{typ: reflect.StructOf(fields), links: w.links, maps: w.maps}
	for i, part := range w.parts {
		if at := s.typ.Field(i).Offset; at != part.at {
			panic(fmt.Sprintf("structural: field %d of %v is at %d, want %d", i, s.typ, at, part.at))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shapes[string(w.signature)] = s
	return s
}

// Copy returns a deep copy of the packed value. It shares only strings and types
// named by [Share]. All parts are one allocation: a reference to one part keeps
// all in memory.
func (q *Packed[T]) Copy() *T {
	value := reflect.New(q.shape.typ)
	value.Elem().Set(q.value)
	base := value.UnsafePointer()
	q.shape.link(base)
	for i, m := range q.shape.maps {
		m.maps.clone(unsafe.Add(base, m.at), q.deep[i])
	}
	return (*T)(base)
}
