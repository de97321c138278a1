package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind encodes the objects of one kind. It is immutable and safe for concurrent
// use.
type Kind struct {
	gvk schema.GroupVersionKind
	// list is the kind of lists.
	list    schema.GroupVersionKind
	columns *Columns
	// custom: lists look like a real server's lists of custom resources.
	custom                    bool
	objects, metadata, tables encoder
}

// NewKind returns the encoder of a kind. list is the kind of its lists; nil columns
// are name and age; untyped objects have no Go type in client-go.
func NewKind(gvk schema.GroupVersionKind, list string, untyped bool, columns *Columns) *Kind {
	if columns == nil {
		columns = &Columns{}
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

// Custom makes lists look like those of custom resources, which differ in a real
// server. Call it before the first use.
func (k *Kind) Custom() *Kind {
	k.custom = true
	return k
}

// AppendObject appends an object in a form, without the end of the line. The
// error wraps [ErrEncoding].
func (k *Kind) AppendObject(dst []byte, f Form, o runtime.Object) ([]byte, error) {
	switch f.Shape() {
	case Object:
		return k.objects.append(dst, f.Media(), o)
	case Metadata:
		m, err := partial(o)
		if err != nil {
			return dst, err
		}
		return k.metadata.append(dst, f.Media(), m)
	default:
		var m metav1.ListMeta
		if acc, err := meta.Accessor(o); err == nil {
			m.ResourceVersion = acc.GetResourceVersion()
		}
		return k.AppendTable(dst, f, m, []runtime.Object{o})
	}
}

// AppendItem appends an object that [Kind.AppendObject] has encoded in that form as an
// item of a list. Items have a kind where a real server's have one. Tables have no
// items.
func (k *Kind) AppendItem(dst []byte, f Form, object []byte) []byte {
	if f.Shape() == Metadata {
		return k.metadata.item(dst, f.Media(), object)
	}
	return k.objects.item(dst, f.Media(), object)
}

// ItemSize returns the number of bytes that AppendItem appends.
func (k *Kind) ItemSize(f Form, object []byte) int {
	e := &k.objects
	if f.Shape() == Metadata {
		e = &k.metadata
	}
	return e.itemSize(f.Media(), object)
}

// AppendStatus appends an error in that encoding.
func AppendStatus(dst []byte, m Media, s *metav1.Status) ([]byte, error) {
	return statuses.append(dst, m, s)
}

// AppendAny appends an object of any kind, which must be set.
func AppendAny(dst []byte, m Media, o runtime.Object) ([]byte, error) {
	_, untyped := o.(runtime.Unstructured)
	e := newEncoder(o.GetObjectKind().GroupVersionKind(), untyped)
	return e.append(dst, m, o)
}

var statuses = newEncoder(statusKind, false)

// partial returns the metadata of an object.
func partial(o runtime.Object) (*metav1.PartialObjectMetadata, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, cannot(o, err)
	}
	return meta.AsPartialObjectMetadata(m), nil
}

// encoder encodes the objects of one kind.
type encoder struct {
	gvk schema.GroupVersionKind
	// keeps: the items of a list have apiVersion and kind.
	keeps bool
	// json and cbor are the first bytes of an object.
	json, cbor []byte
	// proto is the first part of an object's protobuf envelope.
	proto []byte
}

func newEncoder(gvk schema.GroupVersionKind, keeps bool) encoder {
	tm := metav1.TypeMeta{Kind: gvk.Kind, APIVersion: gvk.GroupVersion().String()}
	head, err := json.Marshal(tm)
	if err != nil {
		// Two strings are always encodable.
		panic(err)
	}
	return encoder{
		gvk:   gvk,
		keeps: keeps,
		json:  bytes.TrimSuffix(head, []byte("}")),
		cbor:  cborTypeMeta(tm),
		proto: protoTypeMeta(tm),
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

func (e *encoder) item(dst []byte, m Media, object []byte) []byte {
	switch m {
	case Protobuf:
		return append(dst, e.protoBare(object)...)
	case CBOR:
		return e.cborItem(dst, object)
	default:
		if e.keeps {
			return append(dst, object...)
		}
		return append(append(dst, '{'), e.jsonBare(object)...)
	}
}

func (e *encoder) itemSize(m Media, object []byte) int {
	switch m {
	case Protobuf:
		return len(e.protoBare(object))
	default:
		return len(object)
	}
}

// bare returns the object without its kind: the content of an untyped object.
func bare(o runtime.Object) any {
	if u, ok := o.(runtime.Unstructured); ok {
		content := make(map[string]any, len(u.UnstructuredContent()))
		for k, v := range u.UnstructuredContent() {
			if k != "kind" && k != "apiVersion" {
				content[k] = v
			}
		}
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

// AtVersion returns an object with another version. A typed object shares all fields
// that are pointers.
func AtVersion(o runtime.Object, version string) (runtime.Object, error) {
	if _, ok := o.(runtime.Unstructured); ok {
		// A copy of the struct would share the map of metadata.
		o = o.DeepCopyObject()
	} else {
		o = shallow(o)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, fmt.Errorf("wire: %w", err)
	}
	m.SetResourceVersion(version)
	return o, nil
}
