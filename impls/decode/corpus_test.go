package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"slices"
	"sync"
	"testing"

	apifuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"watchlab/loadgen/trace"
)

// recordedObjects returns the first objects of a recording in protobuf, in order, with their event
// types.
func recordedObjects(tb testing.TB, name string, most int) (objs [][]byte, types []string) {
	tb.Helper()
	in, err := trace.Open(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	universal := scheme.Codecs.UniversalDeserializer()
	for r := trace.NewReader(in, name); ; {
		f, err := r.Next()
		if errors.Is(err, io.EOF) || len(objs) == most {
			return objs, types
		}
		if err != nil {
			tb.Fatal(err)
		}
		if f.Break != nil {
			continue
		}
		obj, _, err := universal.Decode(f.Object, nil, nil)
		if err != nil {
			tb.Fatal(err)
		}
		objs, types = append(objs, encode(tb, obj)), append(types, string(f.Type))
	}
}

func encode(tb testing.TB, obj runtime.Object) []byte {
	tb.Helper()
	b, err := runtime.Encode(protobufInfo().Serializer, obj)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

var protobufInfo = sync.OnceValue(func() runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(codecs(scheme.Scheme).SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info
})

// frames returns the body of a watch of the objects.
func frames(tb testing.TB, objs [][]byte, types []string) []byte {
	tb.Helper()
	var body bytes.Buffer
	for i, raw := range objs {
		e := metav1.WatchEvent{Type: types[i], Object: runtime.RawExtension{Raw: raw}}
		b, err := e.Marshal()
		if err != nil {
			tb.Fatal(err)
		}
		body.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		body.Write(b)
	}
	return body.Bytes()
}

func decoder(tb testing.TB, name string, o Options) Decoder {
	tb.Helper()
	d, err := New(name, o)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// kinds are those of client-go's scheme that have a protobuf form and a TypeMeta, in order.
var kinds = sync.OnceValue(func() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal && reflect.PointerTo(typ).Implements(unmarshalerType) &&
			reflect.New(typ).Interface().(runtime.Object).GetObjectKind() != schema.EmptyObjectKind {
			all = append(all, gvk)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) })
	return all
})

// filled returns a random object of the kind.
func filled(tb testing.TB, gvk schema.GroupVersionKind, seed int64) runtime.Object {
	tb.Helper()
	f := apifuzzer.FuzzerFor(apifuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, exactFuncs), rand.NewSource(seed), scheme.Codecs)
	obj, err := scheme.Scheme.New(gvk)
	if err != nil {
		tb.Fatal(err)
	}
	f.Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// same fails unless got, of shared, is what client-go decodes from data.
func same(tb testing.TB, d, exact Decoder, data []byte, what any) {
	tb.Helper()
	want, wantKind, wantErr := exact.Decode(data, nil, nil)
	got, gotKind, gotErr := d.Decode(data, nil, nil)
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) || !reflect.DeepEqual(wantKind, gotKind) {
		tb.Fatalf("%v: %v, %v, client-go has %v, %v\n%x", what, gotKind, gotErr, wantKind, wantErr, data)
	}
	if wantErr == nil && !reflect.DeepEqual(want, got) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		tb.Fatalf("%v: decoded\n%s\nclient-go\n%s\nsemantically equal: %v", what, g, w, equality.Semantic.DeepEqual(got, want))
	}
}

var exactFuncs = func(_ serializer.CodecFactory) []any {
	return []any{
		func(q *runtime.RawExtension, c randfill.Continue) { q.Raw = []byte(`{"a":1}`) },
	}
}
