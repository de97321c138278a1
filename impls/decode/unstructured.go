package decode

import (
	"bytes"
	"strconv"
	"strings"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// dynamicCodecs are the serializers of client-go's dynamic client.
func dynamicCodecs() runtime.NegotiatedSerializer {
	return dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
}

// dynamicScheme has the kinds that those decode to Go types, such as Status (see dynamic/scheme.go of
// client-go v0.37).
func dynamicScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

// places are the positions of the groups of unstructured objects, by the keys on the way to them.
// Different ways may meet in one position, which then learns from both.
type places [1 << 10]position

func newPlaces() *places {
	p := &places{}
	for i := range p {
		p[i].score.Store(startScore)
	}
	return p
}

// place is the number of a position. The root is 0.
type place uint32

func (p place) of(key []byte) place {
	h := uint32(p)*0x9e3779b1 + uint32(len(key))
	if len(key) > 0 {
		h += uint32(key[0])<<8 + uint32(key[len(key)/2])<<16 + uint32(key[len(key)-1])<<24
	}
	return place(h * 0x85ebca6b >> 22)
}

// keys is the position of all keys, and elements leads to the elements of a list.
const keys = place(1<<10 - 1)

var element = []byte("[]")

func (w *jsonWalk) place(p place) *position { return &w.places[p] }

// unstructured decodes an object or a list as client-go's dynamic client does. It returns nil for
// what it does not decode.
func (w *jsonWalk) unstructured(gvk schema.GroupVersionKind, data []byte, into runtime.Object) runtime.Object {
	switch u := into.(type) {
	case nil:
		var obj *unstructured.Unstructured
		if w.only(data, func(i int, b []byte) (to int) {
			obj, to = w.dynamic(b, i, nil)
			return to
		}) && isKind(obj.Object, gvk) {
			return obj
		}
	case *unstructured.Unstructured:
		var m map[string]any
		if u != nil && w.only(data, func(i int, _ []byte) (to int) {
			m, to = w.mapping(i, 0, 0)
			return to
		}) && isKind(m, gvk) {
			u.Object = m
			return u
		}
	case *unstructured.UnstructuredList:
		l := unstructured.UnstructuredList{Items: []unstructured.Unstructured{}}
		if u != nil && len(u.Object) == 0 && w.dynamicList(&l.Object, gvk, data, func(i int, _ []byte) int {
			m, to := w.mapping(i, 0, 0)
			l.Items = append(l.Items, unstructured.Unstructured{Object: m})
			setKind(&l.Items[len(l.Items)-1], gvk)
			return to
		}) {
			*u = l
			return u
		}
	case *List:
		var m map[string]any
		l := List{Items: []runtime.Object{}}
		if w.dynamicList(&m, gvk, data, func(i int, b []byte) int {
			obj, to := w.dynamic(b, i, &gvk)
			l.Items = append(l.Items, obj)
			return to
		}) && len(l.Items) > 0 {
			l.ListMeta = listMeta(&unstructured.UnstructuredList{Object: m})
			*u = l
			return u
		}
	}
	return nil
}

// isKind reports whether an object says that it is of the kind.
func isKind(m map[string]any, gvk schema.GroupVersionKind) bool {
	return m["kind"] == gvk.Kind && m["apiVersion"] == gvk.GroupVersion().String()
}

// setKind completes an item of a list as UnstructuredJSONScheme does.
func setKind(u *unstructured.Unstructured, list schema.GroupVersionKind) {
	if u.GetKind() == "" && u.GetAPIVersion() == "" {
		u.SetKind(strings.TrimSuffix(list.Kind, "List"))
		u.SetAPIVersion(list.GroupVersion().String())
	}
}

// dynamic decodes the indexed object at i, of which b are the bytes. If it is an item of a list,
// its kind may be that of the list.
func (w *jsonWalk) dynamic(b []byte, i int, list *schema.GroupVersionKind) (*unstructured.Unstructured, int) {
	m, to := w.mapping(i, 0, 0)
	if to < 0 {
		return nil, -1
	}
	u := &unstructured.Unstructured{Object: m}
	if list != nil && !bytes.HasPrefix(b, versioned) {
		setKind(u, *list)
	}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil, -1
	}
	return u, to
}

// versioned begins a custom resource. An item of a list that begins otherwise may lack its kind.
var versioned = []byte(`{"apiVersion":"`)

// dynamicList decodes the fields of a list to m, but for the items, for which it calls item.
func (w *jsonWalk) dynamicList(m *map[string]any, gvk schema.GroupVersionKind, data []byte, item func(i int, b []byte) int) bool {
	*m = map[string]any{}
	seen := false
	to := members(data, space(data, 0), func(name []byte, i int) int {
		if string(name) == "items" {
			if seen {
				return -1
			}
			seen = true
			return w.each(data, i, item)
		}
		if strange(name, *m) || w.skipNew(data, i) < 0 {
			return -1
		}
		w.next = 0
		v, to := w.any(i, place(0).of(name))
		(*m)[w.intern(w.place(keys), name)] = v
		return to
	})
	return to >= 0 && space(data, to) == len(data) && isKind(*m, gvk)
}

// strange reports whether a key of an API object, of which m has the keys before it, is one that
// client-go would take for the kind too.
func strange(name []byte, m map[string]any) bool {
	if ignored(name) {
		return false
	}
	_, twice := m[string(name)]
	return twice || string(name) != "kind" && string(name) != "apiVersion"
}

// mapping decodes the object at i. The API object itself has depth 0, and its metadata 1.
func (w *jsonWalk) mapping(i int, at place, depth int) (map[string]any, int) {
	m := make(map[string]any, w.enter(i))
	i = members(w.b, i, func(name []byte, i int) (to int) {
		if depth == 0 && strange(name, m) {
			return -1
		}
		if depth == 1 && string(name) == "managedFields" {
			return w.checkManaged(i)
		}
		var v any
		if at := at.of(name); depth == 0 && string(name) == "metadata" && w.b[i] == '{' {
			v, to = w.mapping(i, at, 1)
		} else {
			v, to = w.any(i, at)
		}
		m[w.intern(w.place(keys), name)] = v
		return to
	})
	return m, i
}

// any decodes the value at i.
func (w *jsonWalk) any(i int, at place) (any, int) {
	switch c := w.b[i]; c {
	case '{', '[':
		return w.tree(i, at)
	case '"':
		return w.text(w.place(at), i)
	case 't', 'f':
		return c == 't', w.literal(i)
	case 'n':
		return nil, w.literal(i)
	}
	to := w.literal(i)
	literal := w.b[i:to]
	if v, ok := integer(literal); ok {
		return v, to
	}
	v, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		return nil, -1
	}
	return v, to
}

// tree decodes an object or array, or takes it from the table.
func (w *jsonWalk) tree(i int, at place) (v any, to int) {
	top := w.at(i)
	b := w.b[i:top.end:top.end]
	value, hash := w.known(w.place(at), w.anyKind, b)
	if value != nil {
		w.next = int(top.skip)
		v = *(*any)(value)
		if !w.shares(w.anyKind) {
			v = copiedTree(v)
		}
		return v, int(top.end)
	}
	if hash != 0 {
		w.kept++
	}
	if b[0] == '{' {
		v, to = w.mapping(i, at, 2)
	} else {
		list := make([]any, 0, w.enter(i))
		to = jsonElements(w.b, i, func(i int) int {
			v, to := w.any(i, at.of(element))
			list = append(list, v)
			return to
		})
		v = list
	}
	if to >= 0 && hash != 0 {
		w.kept--
		w.keep(hash, w.anyKind, b, unsafe.Pointer(new(v)), true)
		if !w.shares(w.anyKind) {
			v = copiedTree(v)
		}
	}
	return v, to
}
