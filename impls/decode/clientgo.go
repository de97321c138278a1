package decode

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
)

// codecs are the serializers of generated clients, with CBOR (see
// rest.CodecFactoryForGeneratedClient of client-go v0.37).
func codecs(s *runtime.Scheme) runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(s, serializer.WithSerializer(cbor.NewSerializerInfo)).WithoutConversion()
}

// transformed decodes and then removes the managed fields, as the usual transform of an informer.
type transformed struct{ runtime.Decoder }

func (d transformed) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err == nil {
		err = strip(obj)
	}
	return obj, gvk, err
}

func strip(obj runtime.Object) error {
	var o metav1.Object
	switch t := obj.(type) {
	case metav1.Object:
		o = t
	case metav1.ObjectMetaAccessor:
		o = t.GetObjectMeta()
	default:
		if meta.IsListType(obj) {
			return meta.EachListItem(obj, strip)
		}
		return nil
	}
	if o.GetManagedFields() != nil {
		o.SetManagedFields(nil)
	}
	return nil
}
