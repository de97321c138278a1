package merge

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// This file compiles the equality of a type ahead of time. [equalOf] walks a type
// once with reflect. It returns a function with the result of reflect.DeepEqual that does not walk the
// type again. Fixed-size parts are compared as memory. Strings, slices, pointers, maps[string]string
// and v1.ResourceList are compared directly. The function compares cheap fields first and stops at the first difference. Floats, funcs,
// interfaces, maps of other types and recursive types, which pods have not, are refused.
//
// As with reflect.DeepEqual, nil and empty slices and maps differ, unexported
// fields count, and identical pointers and slices are equal.

// equalOf returns a function with the result of reflect.DeepEqual(*a, *b). a and b must not be nil
// or change during the call. The function is safe for concurrent use, and does not allocate. equalOf panics if T has a
// part that it cannot compare, as at program start with a release of k8s.io/api whose pods have one.
func equalOf[T any]() func(a, b *T) bool {
	p := compiler{}.plan(reflect.TypeFor[T]())
	return func(a, b *T) bool {
		return p.equal(unsafe.Pointer(a), unsafe.Pointer(b))
	}
}

// kind is the operation of a step.
type kind uint8

// The kinds, cheapest first.
const (
	word   kind = iota // eight bytes
	memory             // size bytes
	str
	pointer // to plan
	bytes   // a slice of plan, whose values are memory, size bytes each
	slice   // of plan, size bytes an element
	stringMap
	resources // whose quantities have plan
)

// step compares one part of a value, at offset off.
type step struct {
	kind kind
	off  uintptr
	size uintptr
	plan *plan
}

// plan compares values of one type.
type plan struct {
	steps []step
	// Types have dozens of strings, pointers and slices, most of them empty or identical. They are
	// compared first. They are separate from the other steps to use little memory.
	strings  []uintptr
	pointers []indirection
	slices   []indirection
}

// indirection is a pointer or slice at offset off.
type indirection struct {
	off  uintptr
	size uintptr // of an element of a slice
	plan *plan
}

// flat reports whether values of size bytes are compared as one memory block without gaps.
func (p *plan) flat(size uintptr) bool {
	if len(p.steps) != 1 || p.steps[0].off != 0 || len(p.strings)+len(p.pointers)+len(p.slices) > 0 {
		return false
	}
	s := p.steps[0]
	return s.kind == word && size == 8 || s.kind == memory && s.size == size
}

// compiler has the plans of types.
type compiler map[reflect.Type]*plan

// plan returns the plan of a type, and builds it on the first call.
func (c compiler) plan(t reflect.Type) *plan {
	p, ok := c[t]
	switch {
	case p != nil:
		return p
	case ok:
		panic(fmt.Sprintf("merge: %v contains itself", t))
	}
	c[t] = nil
	p = &plan{}
	p.setSteps(merge(c.steps(t, 0, nil)))
	c[t] = p
	return p
}

// steps appends the steps for a value of type t at offset off.
func (c compiler) steps(t reflect.Type, off uintptr, to []step) []step {
	switch t.Kind() {
	case reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Uintptr, reflect.UnsafePointer, reflect.Chan:
		return append(to, step{kind: memory, off: off, size: t.Size()})
	case reflect.String:
		return append(to, step{kind: str, off: off})
	case reflect.Pointer:
		return append(to, step{kind: pointer, off: off, plan: c.plan(t.Elem())})
	case reflect.Slice:
		elem, size := c.plan(t.Elem()), t.Elem().Size()
		if elem.flat(size) {
			return append(to, step{kind: bytes, off: off, size: size, plan: elem})
		}
		return append(to, step{kind: slice, off: off, size: size, plan: elem})
	case reflect.Array:
		if c.plan(t.Elem()).flat(t.Elem().Size()) {
			return append(to, step{kind: memory, off: off, size: t.Size()})
		}
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			to = c.steps(field.Type, off+field.Offset, to)
		}
		return to
	case reflect.Map:
		if quantity := reflect.TypeFor[resource.Quantity](); t.Elem() == quantity && t.Key() == reflect.TypeFor[v1.ResourceName]() {
			return append(to, step{kind: resources, off: off, plan: c.plan(quantity)})
		}
		if t.Key().Kind() == reflect.String && t.Elem().Kind() == reflect.String {
			return append(to, step{kind: stringMap, off: off})
		}
	}
	panic(fmt.Sprintf("merge: values of %v cannot be compared", t))
}

// merge joins adjacent memory blocks and sorts cheap steps first.
func merge(steps []step) []step {
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.off, b.off) })
	var merged []step
	for _, s := range steps {
		if s.kind == memory && s.size == 0 {
			continue
		}
		if n := len(merged); n > 0 && s.kind == memory && merged[n-1].kind == memory &&
			merged[n-1].off+merged[n-1].size == s.off {
			merged[n-1].size += s.size
			continue
		}
		merged = append(merged, s)
	}
	for i := range merged {
		if merged[i].kind == memory && merged[i].size == 8 {
			merged[i].kind = word
		}
	}
	slices.SortStableFunc(merged, func(a, b step) int { return cmp.Compare(a.kind, b.kind) })
	return merged
}

// setSteps sets the steps of the plan, which are sorted.
func (p *plan) setSteps(steps []step) {
	for _, s := range steps {
		switch s.kind {
		case str:
			p.strings = append(p.strings, s.off)
		case pointer:
			p.pointers = append(p.pointers, indirection{off: s.off, plan: s.plan})
		case slice:
			p.slices = append(p.slices, indirection{off: s.off, size: s.size, plan: s.plan})
		default:
			p.steps = append(p.steps, s)
		}
	}
}

// sliceHeader is the memory layout of a slice.
type sliceHeader struct {
	data unsafe.Pointer
	len  int
	cap  int
}

func (p *plan) equal(a, b unsafe.Pointer) bool {
	for _, off := range p.strings {
		if *(*string)(unsafe.Add(a, off)) != *(*string)(unsafe.Add(b, off)) {
			return false
		}
	}
	for i := range p.pointers {
		r := &p.pointers[i]
		pa, pb := *(*unsafe.Pointer)(unsafe.Add(a, r.off)), *(*unsafe.Pointer)(unsafe.Add(b, r.off))
		if pa != pb && (pa == nil || pb == nil || !r.plan.equal(pa, pb)) {
			return false
		}
	}
	for i := range p.slices {
		r := &p.slices[i]
		sa, sb := (*sliceHeader)(unsafe.Add(a, r.off)), (*sliceHeader)(unsafe.Add(b, r.off))
		if sa.len != sb.len || (sa.data == nil) != (sb.data == nil) {
			return false
		}
		if sa.data != sb.data && !r.plan.equalRun(sa.data, sb.data, r.size, sa.len) {
			return false
		}
	}
	for i := range p.steps {
		s := &p.steps[i]
		pa, pb := unsafe.Add(a, s.off), unsafe.Add(b, s.off)
		switch s.kind {
		case word:
			// Blocks of 8 bytes may be unaligned.
			if *(*[8]byte)(pa) != *(*[8]byte)(pb) {
				return false
			}
		case memory:
			if !sameMemory(pa, pb, s.size) {
				return false
			}
		case bytes:
			sa, sb := (*sliceHeader)(pa), (*sliceHeader)(pb)
			if sa.len != sb.len || (sa.data == nil) != (sb.data == nil) {
				return false
			}
			if sa.data != sb.data && !sameMemory(sa.data, sb.data, uintptr(sa.len)*s.size) {
				return false
			}
		case stringMap:
			if !sameStrings(*(*map[string]string)(pa), *(*map[string]string)(pb)) {
				return false
			}
		default:
			if !s.plan.sameResources(*(*v1.ResourceList)(pa), *(*v1.ResourceList)(pb)) {
				return false
			}
		}
	}
	return true
}

// equalRun compares count elements of size bytes each.
func (p *plan) equalRun(a, b unsafe.Pointer, size uintptr, count int) bool {
	for i := range uintptr(count) {
		if !p.equal(unsafe.Add(a, i*size), unsafe.Add(b, i*size)) {
			return false
		}
	}
	return true
}

func sameMemory(a, b unsafe.Pointer, size uintptr) bool {
	return unsafe.String((*byte)(a), size) == unsafe.String((*byte)(b), size)
}

// sameStrings also serves maps of named string types, which have the memory layout and hash of
// map[string]string.
func sameStrings(a, b map[string]string) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	if *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b)) {
		return true
	}
	for k, va := range a {
		if vb, ok := b[k]; !ok || va != vb {
			return false
		}
	}
	return true
}

// sameResources compares the values of maps with the plan of a quantity.
func (p *plan) sameResources(a, b v1.ResourceList) bool {
	if len(a) != len(b) || (a == nil) != (b == nil) {
		return false
	}
	if *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b)) {
		return true
	}
	for k, va := range a {
		vb, ok := b[k]
		if !ok {
			return false
		}
		if va == vb {
			continue
		}
		// Only values with different pointers are copied to the heap.
		pair := &[2]resource.Quantity{va, vb}
		if !p.equal(unsafe.Pointer(&pair[0]), unsafe.Pointer(&pair[1])) {
			return false
		}
	}
	return true
}
