//go:build goexperiment.jsonv2

package decode

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestJSONv2 compares the variant with client-go for recorded objects.
func TestJSONv2(t *testing.T) {
	exact, d := decoder(t, "clientgo-json", Options{}), decoder(t, "jsonv2", Options{})
	protobuf := decoder(t, "clientgo-protobuf", Options{})
	for _, name := range []string{"recorded-nodeloss", "recorded-nodeloss-nodes", "recorded-nodeloss-leases"} {
		objs, _ := recordedObjects(t, Protobuf, name, 300)
		for i, data := range objs {
			obj, gvk, err := protobuf.Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			obj.GetObjectKind().SetGroupVersionKind(*gvk)
			data, err := runtime.Encode(exact.Info().Serializer, obj)
			if err != nil {
				t.Fatal(err)
			}
			want, _, err1 := exact.Decode(data, nil, nil)
			got, _, err2 := d.Decode(data, nil, nil)
			if err1 != nil || err2 != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s %d: %v, client-go %v:\n%+v\n%+v", name, i, err2, err1, got, want)
			}
		}
	}
}
