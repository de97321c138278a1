package decode

import (
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"
)

// jsonWalk decodes indexed JSON by its plans. Its methods return the index after what they decode,
// or -1 for input that the walk does not decode: a field that occurs twice, a value of another type,
// a key with escapes. The caller then decodes the whole object with client-go's decoder, which gives
// the object or the error. The rules on pointers are those of [walk].
type jsonWalk struct {
	giver
	jsonIndex
	managed *jsonPlan // of metav1.ManagedFieldsEntry
	kindKey []byte

	places  *places // of unstructured objects
	anyKind *kind   // of what unstructured objects hold
}

// object decodes the object at i into the zero struct at dst. An API object has depth 0.
func (w *jsonWalk) object(p *jsonPlan, dst unsafe.Pointer, i, depth int) int {
	b := w.b
	var seen uint64
	guess := 0
	w.enter(i)
	for i = space(b, i+1); b[i] != '}'; {
		to, plain := quoted(b, i)
		if !plain {
			return -1
		}
		name := b[i+1 : to]
		i = space(b, space(b, to+1)+1)
		switch f := p.find(name, &guess); {
		case f == nil:
			if depth == 0 && !ignored(name) {
				return -1
			}
			i = w.skip(i)
		case seen&f.bit != 0:
			return -1
		default:
			seen |= f.bit
			if depth == 1 && p.typ == objectMetaType && f.name == "managedFields" {
				i = w.checkManaged(i)
			} else {
				i = w.value(f, unsafe.Add(dst, f.at), i, depth)
			}
			if i < 0 {
				return -1
			}
		}
		if i = space(b, i); b[i] == ',' {
			i = space(b, i+1)
		}
	}
	return i + 1
}

// ignored reports whether client-go ignores a key of an API object that is unknown. It finds the
// kind without regard to case.
func ignored(name []byte) bool {
	return !strings.EqualFold(string(name), "kind") && !strings.EqualFold(string(name), "apiVersion")
}

// value decodes a field.
func (w *jsonWalk) value(f *jsonField, at unsafe.Pointer, i, depth int) int {
	c := w.b[i]
	if c == 'n' && (f.shape != custom || f.pointer) {
		return i + len("null") // leaves the zero value
	}
	switch f.shape {
	case text:
		s, to := w.text(&f.pos, i)
		if to >= 0 && f.pointer {
			*(**string)(at) = &s
		} else if to >= 0 {
			*(*string)(at) = s
		}
		return to
	case number:
		return w.number(f, at, i)
	case custom:
		to := w.skip(i)
		if !f.unmarshal(at, w.b[i:to]) {
			return -1
		}
		return to
	case message:
		if c != '{' {
			return -1
		}
		if depth == 0 && f.elem.typ == objectMetaType { // its resource version never repeats
			return w.object(f.elem, at, i, 1)
		}
	case dict:
		if c != '{' {
			return -1
		}
	case list:
		if c != '[' {
			return -1
		}
	default:
		if c != '{' && c != '[' {
			to := w.skip(i)
			if kjson.Unmarshal(w.b[i:to], reflect.NewAt(f.typ, at).Interface()) != nil {
				return -1
			}
			return to
		}
	}
	return w.group(f, at, i, depth)
}

// text returns the string at i.
func (w *jsonWalk) text(pos *position, i int) (string, int) {
	if w.b[i] != '"' {
		return "", -1
	}
	to, plain := quoted(w.b, i)
	if plain {
		return w.intern(pos, w.b[i+1:to]), to + 1
	}
	s, ok := unquote(w.b[i : to+1])
	if !ok {
		return "", -1
	}
	return s, to + 1
}

// number decodes a bool or an integer. The value may be of any kind.
func (w *jsonWalk) number(f *jsonField, at unsafe.Pointer, i int) int {
	typ := f.typ
	if f.pointer {
		typ = typ.Elem()
	}
	to := w.skip(i)
	v, ok := int64(0), false
	if typ.Kind() == reflect.Bool {
		switch string(w.b[i:to]) {
		case "true":
			v, ok = 1, true
		case "false":
			ok = true
		}
	} else {
		v, ok = integer(w.b[i:to])
		ok = ok && (typ.Kind() == reflect.Int64 || v == int64(int32(v)))
	}
	if !ok {
		return -1
	}
	setNumber(f.typ, at, uint64(v))
	return to
}

// integer returns the value of indexed JSON if it is an integer.
func integer(b []byte) (v int64, ok bool) {
	if len(b) > 18 || b[0] == '-' {
		v, err := strconv.ParseInt(string(b), 10, 64)
		return v, err == nil
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}

// unmarshal decodes a field of a type that decodes itself.
func (f *jsonField) unmarshal(at unsafe.Pointer, b []byte) bool {
	typ := f.typ
	if f.pointer {
		typ = typ.Elem()
		ptr := reflect.New(typ).UnsafePointer()
		*(*unsafe.Pointer)(at) = ptr
		at = ptr
	}
	if layout := layouts[typ]; layout != "" {
		if t, ok := parseTime(layout, b); ok {
			*(*time.Time)(at) = t
			return true
		}
	}
	return reflect.NewAt(typ, at).Interface().(interface{ UnmarshalJSON([]byte) error }).UnmarshalJSON(b) == nil
}

var layouts = map[reflect.Type]string{
	timeType: time.RFC3339, reflect.TypeFor[metav1.MicroTime](): metav1.RFC3339Micro,
}

// parseTime parses a quoted time as metav1.Time does, if it has no escapes.
func parseTime(layout string, b []byte) (time.Time, bool) {
	if to, plain := quoted(b, 0); !plain || b[0] != '"' || to != len(b)-1 {
		return time.Time{}, false
	}
	t, err := time.Parse(layout, string(b[1:len(b)-1]))
	return t.Local(), err == nil
}

// group decodes an object or array, or takes it from the table.
func (w *jsonWalk) group(f *jsonField, at unsafe.Pointer, i, depth int) int {
	top := w.at(i)
	b, to := w.b[i:top.end:top.end], int(top.end)
	pointer := f.pointer && f.shape == message
	value, hash := w.known(&f.pos, f.kind, b)
	if value != nil {
		w.next = int(top.skip)
		if pointer {
			*(*unsafe.Pointer)(at) = w.given(f.kind, value)
		} else {
			w.give(f.kind, at, value)
		}
		return to
	}
	dst, apart := at, w.apart(f.kind, hash)
	if pointer || apart {
		dst = f.new()
	}
	if hash != 0 {
		w.kept++
	}
	var ok bool
	switch f.shape {
	case message:
		ok = w.object(f.elem, dst, i, depth+1) >= 0
	case list:
		ok = w.list(f, dst, i, depth)
	case dict:
		ok = w.dict(f, dst, i)
	default:
		w.next = int(top.skip)
		ok = kjson.Unmarshal(b, reflect.NewAt(f.typ, dst).Interface()) == nil
	}
	if !ok {
		return -1
	}
	if hash != 0 {
		w.kept--
		w.keep(hash, f.kind, b, dst, pointer || apart)
	}
	switch {
	case pointer && apart:
		dst = f.copier.copied(dst)
		fallthrough
	case pointer:
		*(*unsafe.Pointer)(at) = dst
	case apart:
		f.copier.copy(at, dst)
	}
	return to
}

// grown makes the nil slice at a slice of as many zero elements as the array has, without room, and
// enters the array.
func (w *jsonWalk) grown(f *jsonField, at unsafe.Pointer, i int) unsafe.Pointer {
	if n := w.enter(i); n > 0 {
		return grow(f.typ, at, n)
	}
	reflect.NewAt(f.typ, at).Elem().Set(reflect.MakeSlice(f.typ, 0, 0))
	return nil
}

func (w *jsonWalk) list(f *jsonField, at unsafe.Pointer, i, depth int) bool {
	data, size := w.grown(f, at, i), f.item.typ.Size()
	n := uintptr(0)
	return jsonElements(w.b, i, func(i int) int {
		at := unsafe.Add(data, n*size)
		n++
		return w.value(f.item, at, i, depth)
	}) >= 0
}

func (w *jsonWalk) dict(f *jsonField, at unsafe.Pointer, i int) bool {
	m := make(map[string]string, w.enter(i))
	*(*map[string]string)(at) = m
	return members(w.b, i, func(key []byte, i int) int {
		k := w.intern(&f.item.pos, key)
		if w.b[i] == 'n' {
			m[k] = ""
			return i + len("null")
		}
		v, to := w.text(&f.item.pos, i)
		m[k] = v
		return to
	}) >= 0
}

// checkManaged skips the managed fields if client-go's decoder and transform accept them too.
func (w *jsonWalk) checkManaged(i int) int {
	if w.b[i] != '[' {
		return -1
	}
	from := i
	top := w.at(i)
	w.enter(i)
	i = jsonElements(w.b, i, func(i int) int {
		if w.b[i] != '{' {
			return -1
		}
		w.enter(i)
		guess := 0
		return members(w.b, i, func(name []byte, i int) int {
			f := w.managed.find(name, &guess)
			to := w.skip(i)
			switch {
			case f == nil || f.typ == fieldsType && w.b[i] == '{':
			case f.shape == text && w.b[i] == '"':
			case f.typ == timePointerType:
				if _, ok := parseTime(time.RFC3339, w.b[i:to]); !ok {
					return -1
				}
			default:
				return -1
			}
			return to
		})
	})
	if w.firstExponent < int(top.end) && w.lastExponent >= from {
		return -1
	}
	return i
}
