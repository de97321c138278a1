package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind encodes the objects of one kind. It is immutable.
type Kind struct {
	gvk                       schema.GroupVersionKind
	list                      schema.GroupVersionKind // of lists
	columns                   *Columns
	objects, metadata, tables encoder
}

// NewKind returns the encoder of a kind. list is the kind of its lists; nil columns
// are name and age; untyped objects have no Go type in client-go.
func NewKind(gvk schema.GroupVersionKind, list string, untyped bool, columns *Columns) *Kind {
	if columns == nil {
		columns = nameAndAge
	}
	return &Kind{
		gvk:      gvk,
		list:     gvk.GroupVersion().WithKind(list),
		columns:  columns,
		objects:  newEncoder(gvk, untyped),
		metadata: newEncoder(metadataKind, true),
		tables:   newEncoder(tableKind, true),
	}
}

// AppendObject appends an object without the end of the line. The error wraps [ErrEncoding].
func (k *Kind) AppendObject(dst []byte, f Form, o runtime.Object) ([]byte, error) {
	switch f.Shape() {
	case Object:
		return k.objects.append(dst, f.Media(), o)
	case Metadata:
		m, err := meta.Accessor(o)
		if err != nil {
			return dst, cannot(o, err)
		}
		return k.metadata.append(dst, f.Media(), meta.AsPartialObjectMetadata(m))
	default:
		var m metav1.ListMeta
		if acc, err := meta.Accessor(o); err == nil {
			m.ResourceVersion = acc.GetResourceVersion()
		}
		return k.AppendTable(dst, f, m, []runtime.Object{o})
	}
}

// AppendAny appends an object of any kind, which must be set.
func AppendAny(dst []byte, m Media, o runtime.Object) ([]byte, error) {
	_, untyped := o.(runtime.Unstructured)
	e := newEncoder(o.GetObjectKind().GroupVersionKind(), untyped)
	return e.append(dst, m, o)
}

// encoder encodes the objects of one kind.
type encoder struct {
	keeps      bool   // the items of a list have apiVersion and kind, as those of custom resources
	json, cbor []byte // the first bytes of an object
	proto      []byte // the first part of an object's envelope
}

func newEncoder(gvk schema.GroupVersionKind, keeps bool) encoder {
	tm := metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}
	head, _ := json.Marshal(tm) // two strings are always encodable
	proto, _ := appendMessage([]byte(protoPrefix), tagTypeMeta, &runtime.TypeMeta{APIVersion: tm.APIVersion, Kind: tm.Kind})
	return encoder{
		keeps: keeps,
		json:  bytes.TrimSuffix(head, []byte("}")),
		cbor:  cborText(nil, "kind", tm.Kind, "apiVersion", tm.APIVersion),
		proto: proto,
	}
}

var errNotAnObject = errors.New("it is not encoded as an object")

func (e *encoder) append(dst []byte, m Media, o runtime.Object) ([]byte, error) {
	switch m {
	case Protobuf:
		return e.appendProto(dst, o)
	case CBOR:
		return e.appendCBOR(dst, o)
	default:
		return e.appendJSON(dst, o)
	}
}

// item returns an encoded object as an item of a list: its first byte, if it is another
// one, and the rest.
func (e *encoder) item(m Media, object []byte) (first byte, rest []byte) {
	switch {
	case m == Protobuf:
		rest = object[len(e.proto)+1:]
		size, n := binary.Uvarint(rest)
		return 0, rest[n : n+int(size)]
	case m == CBOR:
		object = object[len(cborSelf):]
		if !e.keeps {
			return object[0] - 2, object[1+len(e.cbor):]
		}
	case !e.keeps:
		return '{', bytes.TrimPrefix(object[len(e.json):], []byte(","))
	}
	return 0, object
}

// bare returns the object without its kind: the content of an untyped object.
func bare(o runtime.Object) any {
	if u, ok := o.(runtime.Unstructured); ok {
		content := maps.Clone(u.UnstructuredContent())
		delete(content, "kind")
		delete(content, "apiVersion")
		return content
	}
	if o.GetObjectKind().GroupVersionKind().Empty() {
		return o
	}
	// Rare: decoders clear the kind of typed objects.
	o = shallow(o)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o
}

// shallow returns a copy of an object's struct.
func shallow(o runtime.Object) runtime.Object {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return o.DeepCopyObject()
	}
	n := reflect.New(v.Elem().Type())
	n.Elem().Set(v.Elem())
	return n.Interface().(runtime.Object)
}

// AtVersion returns an object with another version. A typed object shares its pointers.
func AtVersion(o runtime.Object, version string) runtime.Object {
	if _, ok := o.(runtime.Unstructured); ok {
		// A copy of the struct would share the map of metadata.
		o = o.DeepCopyObject()
	} else {
		o = shallow(o)
	}
	if m, ok := o.(metav1.Object); ok {
		m.SetResourceVersion(version)
	}
	return o
}
