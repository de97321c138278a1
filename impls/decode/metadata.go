package decode

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"watchlab/impls"
)

func init() {
	g := guarantees(impls.Owned, true)
	g[0].Strips = "managedFields and all but metadata"
	g[0].Trusts = "the API server to send valid values outside metadata"
	Register(Variant{
		Name: "metadata", Guarantees: g,
		Summary: "decodes the metadata of objects alone, to metav1.PartialObjectMetadata; JSON and protobuf as shared",
		New: func(o Options) (Decoder, error) {
			if o.Unstructured {
				return nil, fmt.Errorf("%w: metadata is of Go types", impls.ErrOptions)
			}
			o.Encoding = o.encoding()
			o.Table = cmp.Or(o.Table, NewTable(0))
			d, err := newCodec(o, o.Encoding, func(e Encoding, types *runtime.Scheme, clientgo runtime.Decoder) runtime.Decoder {
				return metadata{types, e, newPartial(o.Table, e, types, false), newPartial(o.Table, e, types, true), transformed{clientgo}}
			})
			if err != nil {
				return nil, err
			}
			d.cutFrames(o.Table)
			return d, nil
		},
	})
}

// metadata decodes objects of all kinds to [metav1.PartialObjectMetadata].
type metadata struct {
	types          *runtime.Scheme
	encoding       Encoding
	objects, lists runtime.Decoder
	whole          runtime.Decoder // client-go's
}

// Decode decodes an object, or a list into a *[List]; into an object of the kind's type, the whole. The
// error is that of decoding the whole, unless its kind is unknown.
func (m metadata) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	d := m.objects
	l, list := into.(*List)
	if list {
		d = m.lists
	}
	obj, gvk, err := d.Decode(data, defaults, into)
	switch {
	case err != nil:
		if wholeObj, wholeKind, wholeErr := m.whole.Decode(data, defaults, into); wholeErr != nil && !runtime.IsNotRegisteredError(wholeErr) {
			return wholeObj, wholeKind, wholeErr
		}
	case list && obj == into && l.Items == nil && !m.types.Recognizes(*gvk) && !hasItems(m.encoding, data):
		return nil, gvk, noList(gvk)
	}
	return obj, gvk, err
}

// newPartial returns the decoder of partial objects.
func newPartial(t *Table, e Encoding, scheme *runtime.Scheme, lists bool) runtime.Decoder {
	types, d := partials{scheme, lists}, transformed{clientgoPartial(e, scheme, lists)}
	switch e {
	case JSON:
		return newSharedJSON(t, types, d, false, false)
	case Protobuf:
		return newShared(t, types, d, false)
	}
	return d
}

// clientgoPartial returns client-go's decoder with metav1.PartialObjectMetadata in the place of the type of
// each object. It skips what that type lacks.
func clientgoPartial(e Encoding, scheme *runtime.Scheme, lists bool) runtime.Decoder {
	var s runtime.Decoder
	switch types := (partials{scheme, lists}); e {
	case Protobuf:
		s = protobuf.NewSerializer(types, types)
	case CBOR:
		s = cbor.NewSerializer(types, types)
	default:
		s = json.NewSerializerWithOptions(json.DefaultMetaFactory, types, types, json.SerializerOptions{Yaml: e != JSON})
	}
	return listing{Decoder: runtime.WithoutVersionDecoder{Decoder: s}, encoding: e}
}

// partials makes the objects of a decoder.
type partials struct {
	*runtime.Scheme
	lists bool // an unknown kind is a list
}

func (p partials) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	object, list := !p.lists, p.lists
	obj, err := p.Scheme.New(gvk)
	switch {
	case err == nil:
		object = hasMetadata(reflect.TypeOf(obj))
		items, err := meta.GetItemsPtr(obj)
		list = err == nil && hasMetadata(reflect.PointerTo(reflect.TypeOf(items).Elem().Elem()))
	case gvk.Version == "" || !runtime.IsNotRegisteredError(err), // client-go refuses an object without version
		gvk.Group == metav1.GroupName && !strings.HasPrefix(gvk.Kind, "PartialObjectMetadata"): // Table
		return nil, err
	}
	switch {
	case object:
		return &metav1.PartialObjectMetadata{}, nil
	case list:
		return &metav1.PartialObjectMetadataList{}, nil
	}
	return obj, nil
}

func hasMetadata(t reflect.Type) bool {
	return t.Implements(reflect.TypeFor[metav1.ObjectMetaAccessor]())
}
