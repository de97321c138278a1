package decode

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// protobufPrefix begins every object in protobuf.
var protobufPrefix = []byte{'k', '8', 's', 0}

// shared decodes protobuf with the groups of a [Table].
type shared struct {
	table   *Table
	types   runtime.ObjectCreater
	exact   runtime.Decoder // client-go's, for what the walk does not decode
	targets targets[target] // by the bytes of the TypeMeta
	walks   sync.Pool       // *walk

	readOnly bool // objects share values
}

// target is the type of a kind.
type target struct {
	gvk  schema.GroupVersionKind
	plan *plan
}

// targets remembers what a decoder found for the kinds that the input names.
type targets[T any] struct {
	found atomic.Pointer[map[string]T] // copied on write; nil is empty
	mu    sync.Mutex                   // of writers
	bytes int                          // of the keys; guarded by mu
}

// The targets of a decoder are forgotten when their keys have maxTargets bytes. A key of more than
// maxTarget, which no API server accepts, is not remembered.
const (
	maxTargets = 64 << 10
	maxTarget  = 1 << 10

	targetEntry = 64 // bytes that an entry counts beside its key
)

func (t *targets[T]) get(key []byte) (found T, ok bool) {
	if m := t.found.Load(); m != nil {
		found, ok = (*m)[string(key)]
	}
	return found, ok
}

func (t *targets[T]) add(key []byte, found T) {
	if len(key) > maxTarget {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	grown := map[string]T{}
	if t.bytes += len(key) + targetEntry; t.bytes > maxTargets {
		t.bytes = len(key) + targetEntry
	} else if m := t.found.Load(); m != nil {
		maps.Copy(grown, *m)
	}
	grown[string(key)] = found
	t.found.Store(&grown)
}

func newShared(t *Table, types runtime.ObjectCreater, exact runtime.Decoder, readOnly bool) *shared {
	s := &shared{table: t, types: types, exact: exact, readOnly: readOnly}
	s.walks.New = func() any { return &walk{giver: giver{Table: t}} }
	return s
}

// Decode decodes an object or a list. The kind is cleared, as by the decoders of typed clients.
func (s *shared) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if t, raw, ok := s.target(data); ok {
		if obj := s.decode(t.plan, raw, into); obj != nil {
			gvk := t.gvk
			return obj, &gvk, nil
		}
	}
	return s.exact.Decode(data, defaults, into)
}

func (s *shared) decode(p *plan, raw []byte, into runtime.Object) (obj runtime.Object) {
	defer s.table.rescue(&obj)
	w := s.walks.Get().(*walk)
	obj = w.decode(p, raw, into)
	s.walks.Put(w)
	return obj
}

// target reads the envelope of an object, a runtime.Unknown. It reports false for one that it does
// not know; client-go's decoder then judges.
func (s *shared) target(data []byte) (t target, raw []byte, ok bool) {
	if !bytes.HasPrefix(data, protobufPrefix) {
		return target{}, nil, false
	}
	var unknown [5][]byte // TypeMeta, Raw, and content encoding and type, not used by client-go
	if !collect(data[len(protobufPrefix):], unknown[:]) {
		return target{}, nil, false
	}
	typeMeta, raw := unknown[1], unknown[2]
	if t, ok = s.targets.get(typeMeta); !ok {
		t = s.find(typeMeta)
		s.targets.add(typeMeta, t)
	}
	return t, raw, t.plan != nil
}

func (s *shared) find(typeMeta []byte) target {
	var t target
	var kind runtime.TypeMeta
	if kind.Unmarshal(typeMeta) == nil && kind.APIVersion != "" && kind.Kind != "" {
		t.gvk = schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		if obj, err := s.types.New(t.gvk); err == nil {
			t.plan = s.table.plan(reflect.TypeOf(obj).Elem(), s.readOnly)
		}
	}
	return t
}

// decode returns nil for what it does not decode.
func (w *walk) decode(p *plan, raw []byte, into runtime.Object) runtime.Object {
	w.sampled, w.kept = true, 0
	switch l, ok := into.(*List); {
	case ok && p.items == nil:
		return nil
	case ok:
		return w.into(l, p, raw)
	case into == nil && p.object:
		if ptr := w.object(p, raw); ptr != nil {
			return p.value(ptr).(runtime.Object)
		}
		return nil
	case into == nil:
		into = p.value(p.new()).(runtime.Object)
	case reflect.TypeOf(into) != reflect.PointerTo(p.typ) || reflect.ValueOf(into).IsNil():
		return nil
	default:
		into.(unmarshaler).Reset()
	}
	depth := 0
	if p.items != nil {
		depth = -1
	}
	if !w.message(p, reflect.ValueOf(into).UnsafePointer(), raw, depth) {
		return nil
	}
	return into
}

// object returns a decoded object.
func (w *walk) object(p *plan, raw []byte) unsafe.Pointer {
	ptr := p.new()
	if !w.item(p, ptr, raw) {
		return nil
	}
	return ptr
}

// item decodes an object to its place.
func (w *walk) item(p *plan, at unsafe.Pointer, raw []byte) bool {
	uid, after, ok := identify(raw)
	w.sampled = !ok || w.hash(uid)%sample == 0
	if w.own, w.text = nil, ""; !p.readOnly {
		w.own = after
	}
	ok = w.message(p, at, raw, 0)
	w.own, w.text = nil, ""
	return ok
}

// into decodes a list of objects.
func (w *walk) into(l *List, p *plan, raw []byte) runtime.Object {
	*l = List{}
	for i := 0; i < len(raw); {
		tag, from, to, ok := span(raw, i)
		if !ok {
			return nil
		}
		switch f := p.field(tag); {
		case f == nil:
		case tag&7 != wireBytes:
			return nil
		case f == p.items:
			if l.Items == nil {
				_, n, ok := run(raw, to, tag)
				if !ok {
					return nil
				}
				l.Items = make([]runtime.Object, 0, n)
			}
			ptr := w.object(f.elem, raw[from:to:to])
			if ptr == nil {
				return nil
			}
			l.Items = append(l.Items, f.elem.value(ptr).(runtime.Object))
		case f.name == "ListMeta":
			if l.ListMeta.Unmarshal(raw[from:to]) != nil {
				return nil
			}
		default:
			return nil
		}
		i = to
	}
	return l
}

// events decodes the frames of a watch. The object's bytes are those of the frame, not a copy: they
// are decoded before the next frame is read.
type events struct{ runtime.Serializer }

var eventNames = []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error}

func (e events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		var frame [3][]byte
		var extension [2][]byte
		ok = collect(data, frame[:]) && collect(frame[2], extension[:])
		if i := slices.Index(eventNames, watch.EventType(frame[1])); ok && i >= 0 && extension[1] != nil {
			*event = metav1.WatchEvent{Type: string(eventNames[i]), Object: runtime.RawExtension{Raw: extension[1]}}
			return event, watchEventKind(), nil
		}
	}
	return e.Serializer.Decode(data, defaults, into)
}

// watchEventKind returns a kind that the caller may change.
func watchEventKind() *schema.GroupVersionKind {
	return new(metav1.SchemeGroupVersion.WithKind("WatchEvent"))
}
