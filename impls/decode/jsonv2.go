//go:build goexperiment.jsonv2

package decode

import (
	"encoding/json/jsontext"
	json "encoding/json/v2"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/impls"
)

// The variant jsonv2 exists in programs that are built with GOEXPERIMENT=jsonv2.
func init() {
	g := guarantees(impls.Owned, false)
	g[0].Trusts = "the API server to send valid objects: errors differ from client-go's"
	Register(Variant{
		Name: "jsonv2", Guarantees: g, Summary: "Go's encoding/json/v2, as client-go's serializer uses encoding/json",
		New: func(o Options) (Decoder, error) {
			if o.Unstructured {
				return nil, fmt.Errorf("%w: jsonv2 decodes typed objects only", impls.ErrOptions)
			}
			d, err := newCodec(o, JSON)
			if err == nil {
				d.Decoder = listing{Decoder: jsonv2{d.scheme, d.Decoder}}
			}
			return d, err
		},
	})
}

type jsonv2 struct {
	scheme *runtime.Scheme
	exact  runtime.Decoder // for what is not a kind of the scheme
}

func (d jsonv2) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var kind runtime.TypeMeta
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := json.Unmarshal(data, &kind, lenient); err != nil {
		return nil, nil, err
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	obj, err := runtime.UseOrCreateObject(d.scheme, d.scheme, gvk, into)
	if err != nil {
		return d.exact.Decode(data, defaults, into)
	}
	if err := json.Unmarshal(data, obj, lenient); err != nil {
		return nil, &gvk, err
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, &gvk, nil
}
