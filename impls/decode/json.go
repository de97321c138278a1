package decode

import (
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sharedJSON decodes JSON with the groups of a [Table].
type sharedJSON struct {
	table   *Table
	types   jsonTypes           // or those that an unstructured decoder knows
	exact   runtime.Decoder     // client-go's, for what the walk does not decode
	dynamic bool                // to unstructured objects
	targets targets[jsonTarget] // by API version and kind
	walks   sync.Pool           // *jsonWalk

	readOnly bool // objects share values
}

// jsonTypes is a [runtime.Scheme].
type jsonTypes interface {
	runtime.ObjectCreater
	runtime.ObjectTyper
}

// jsonTarget is a kind.
type jsonTarget struct {
	gvk   schema.GroupVersionKind
	plan  *jsonPlan // nil if unstructured
	known bool      // the walk decodes objects of the kind
}

func newSharedJSON(t *Table, types jsonTypes, exact runtime.Decoder, dynamic, readOnly bool) *sharedJSON {
	s := &sharedJSON{table: t, types: types, exact: exact, dynamic: dynamic, readOnly: readOnly}
	first := sync.OnceValue(func() jsonWalk {
		return jsonWalk{
			giver: giver{Table: t}, managed: t.jsonPlan(managedType, readOnly), places: newPlaces(),
			anyKind: t.jsonKind(reflect.TypeFor[any](), readOnly),
		}
	})
	s.walks.New = func() any {
		w := first()
		return &w
	}
	return s
}

// Decode decodes an object or a list, as [shared.Decode].
func (s *sharedJSON) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	t, obj := s.decode(data, into)
	if obj == nil {
		return s.exact.Decode(data, defaults, into)
	}
	return obj, &t.gvk, nil
}

// decode returns nil for what it does not decode, and leaves into as it was.
func (s *sharedJSON) decode(data []byte, into runtime.Object) (t jsonTarget, obj runtime.Object) {
	var filled reflect.Value
	defer func() {
		if obj == nil && filled.IsValid() {
			filled.SetZero()
		}
	}()
	defer s.table.rescue(&obj)
	w := s.walks.Get().(*jsonWalk)
	t, obj = s.walk(w, data, into, &filled)
	if w.b = nil; cap(w.containers) > maxIndex {
		w.containers = nil
	}
	s.walks.Put(w)
	return t, obj
}

// walk is decode. It sets filled to what it writes to, which was zero.
func (s *sharedJSON) walk(w *jsonWalk, data []byte, into runtime.Object, filled *reflect.Value) (t jsonTarget, obj runtime.Object) {
	w.kept = 0
	t = s.target(w, data)
	switch l, ok := into.(*List); {
	case !t.known:
		return t, nil
	case s.dynamic:
		return t, w.unstructured(t.gvk, data, into)
	case ok && t.plan.items != nil:
		if w.listInto(l, t.plan, data) {
			return t, l
		}
		return t, nil
	case into == nil:
		if t.plan.object {
			var ptr unsafe.Pointer
			if !w.only(data, func(i int, b []byte) (to int) {
				ptr, to = w.api(t.plan, i, false)
				return to
			}) {
				return t, nil
			}
			return t, reflect.NewAt(t.plan.typ, ptr).Interface().(runtime.Object)
		}
		into = reflect.New(t.plan.typ).Interface().(runtime.Object)
	case reflect.TypeOf(into) != reflect.PointerTo(t.plan.typ) || reflect.ValueOf(into).IsNil() || !reflect.ValueOf(into).Elem().IsZero():
		return t, nil
	default:
		kinds, _, err := s.types.ObjectKinds(into)
		if err != nil || !slices.Contains(kinds, t.gvk) {
			return t, nil
		}
	}
	dst := reflect.ValueOf(into).UnsafePointer()
	*filled = reflect.ValueOf(into).Elem()
	var ok bool
	if t.plan.items != nil {
		ok = w.typedList(t.plan, dst, data)
	} else {
		ok = w.only(data, func(i int, _ []byte) int { return w.object(t.plan, dst, i, 0) })
	}
	if !ok {
		return t, nil
	}
	into.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return t, into
}

// target reads the kind of an object. It reads no further than it must: the API server writes kind
// and apiVersion first, but in lists of custom resources last.
func (s *sharedJSON) target(w *jsonWalk, data []byte) (t jsonTarget) {
	var kind, apiVersion []byte
	members(data, space(data, 0), func(name []byte, i int) int {
		from := i
		if char(data, i) == '[' { // a list, whose index would be large
			i = jsonElements(data, i, func(i int) int { return w.skipNew(data, i) })
		} else {
			i = w.skipNew(data, i)
		}
		if i < 0 || string(name) != "kind" && string(name) != "apiVersion" {
			return i
		}
		if to, plain := quoted(data, from); char(data, from) != '"' || !plain || to != i-1 {
			kind, apiVersion = nil, nil
			return -1
		}
		if string(name) == "kind" {
			kind = data[from+1 : i-1]
		} else {
			apiVersion = data[from+1 : i-1]
		}
		if kind != nil && apiVersion != nil {
			return -1
		}
		return i
	})
	if len(kind) == 0 || len(apiVersion) == 0 {
		return jsonTarget{}
	}
	if len(apiVersion)+len(kind) >= maxTarget {
		return s.find(string(apiVersion), string(kind))
	}
	w.kindKey = append(append(append(w.kindKey[:0], apiVersion...), 0), kind...)
	t, ok := s.targets.get(w.kindKey)
	if !ok {
		t = s.find(string(apiVersion), string(kind))
		s.targets.add(w.kindKey, t)
	}
	return t
}

func (s *sharedJSON) find(apiVersion, kind string) (t jsonTarget) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.Version == "" {
		return t
	}
	t.gvk = gv.WithKind(kind)
	obj, err := s.types.New(t.gvk)
	if s.dynamic {
		t.known = err != nil
	} else if err == nil {
		t.plan = s.table.jsonPlan(reflect.TypeOf(obj).Elem(), s.readOnly)
		t.known = t.plan != nil
	}
	return t
}

// skipNew returns the index after the value at b[i:], which it checks.
func (x *jsonIndex) skipNew(b []byte, i int) int {
	if c := char(b, i); c == '{' || c == '[' {
		return x.index(b, i)
	}
	x.b = b
	return x.literal(i)
}

// only indexes the data and reports whether it is one object, which f decodes.
func (w *jsonWalk) only(data []byte, f func(i int, b []byte) int) bool {
	from := space(data, 0)
	if char(data, from) != '{' {
		return false
	}
	to := w.index(data, from)
	return to >= 0 && space(data, to) == len(data) && f(from, data[from:to:to]) == to
}

// api decodes the indexed API object at i. The items of a list keep their kind.
func (w *jsonWalk) api(p *jsonPlan, i int, item bool) (ptr unsafe.Pointer, to int) {
	ptr = p.new()
	if to = w.object(p, ptr, i, 0); to < 0 {
		return nil, -1
	}
	if !item {
		reflect.NewAt(p.typ, ptr).Interface().(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return ptr, to
}

// itemsOf decodes a list of objects. It calls item with the start and the bytes of each, indexed, and
// field for each other field, indexed too.
func (w *jsonWalk) itemsOf(p *jsonPlan, data []byte, item func(i int, b []byte) int, field func(f *jsonField, i int) int) bool {
	var seen uint64
	guess := 0
	to := members(data, space(data, 0), func(name []byte, i int) int {
		f := p.find(name, &guess)
		switch {
		case f == nil && !ignored(name):
			return -1
		case f == nil:
			return w.skipNew(data, i)
		case seen&f.bit != 0:
			return -1
		}
		seen |= f.bit
		if f == p.items && char(data, i) == '[' && char(data, space(data, i+1)) != ']' {
			return w.each(data, i, item)
		}
		to := w.skipNew(data, i)
		if w.next = 0; to < 0 || field(f, i) != to {
			return -1
		}
		return to
	})
	return to >= 0 && space(data, to) == len(data)
}

// each indexes the objects of the array at i, one after the other, and calls item.
func (w *jsonWalk) each(data []byte, i int, item func(i int, b []byte) int) int {
	return jsonElements(data, i, func(i int) int {
		if char(data, i) != '{' {
			return -1
		}
		to := w.index(data, i)
		if to < 0 || item(i, data[i:to:to]) != to {
			return -1
		}
		return to
	})
}

// listInto decodes a list of objects. A value of its own fields that is none of the field's type is
// client-go's to judge: an empty list tells an informer to delete all that it has.
func (w *jsonWalk) listInto(into *List, p *jsonPlan, data []byte) bool {
	var l List
	own := p.new()
	if !w.itemsOf(p, data, func(i int, b []byte) int {
		ptr, to := w.api(p.items.item.elem, i, true)
		if ptr != nil {
			l.Items = append(l.Items, reflect.NewAt(p.items.item.elem.typ, ptr).Interface().(runtime.Object))
		}
		return to
	}, func(f *jsonField, i int) int {
		if f == p.items && data[i] == '[' {
			l.Items = []runtime.Object{}
		}
		return w.value(f, unsafe.Add(own, f.at), i, -1)
	}) {
		return false
	}
	l.ListMeta = listMeta(reflect.NewAt(p.typ, own).Interface().(runtime.Object))
	*into = l
	return true
}

// typedList decodes a list whose items stand in one array.
func (w *jsonWalk) typedList(p *jsonPlan, dst unsafe.Pointer, data []byte) bool {
	items := reflect.NewAt(p.items.typ, unsafe.Add(dst, p.items.at)).Elem()
	return w.itemsOf(p, data, func(i int, b []byte) int {
		n := items.Len()
		items.Grow(1)
		items.SetLen(n + 1)
		at := items.Index(n).Addr().UnsafePointer()
		return w.object(p.items.item.elem, at, i, 0)
	}, func(f *jsonField, i int) int { return w.value(f, unsafe.Add(dst, f.at), i, -1) })
}
