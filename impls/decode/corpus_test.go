package decode

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"slices"
	"sync"
	"testing"

	apifuzzer "k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"watchlab/loadgen/trace"
)

// long plays whole recordings and more rounds: make nightly does.
var long = flag.Bool("long", false, "play whole recordings and all rounds")

// walked are the options of shared that have code of their own.
var walked = []Options{{Encoding: Protobuf}, {Encoding: JSON}, {Encoding: JSON, Unstructured: true}}

func title(o Options) string { return fmt.Sprintf("%s,unstructured=%v", o.Encoding, o.Unstructured) }

// recordedObjects returns the first objects of a recording in the encoding, in order, with their
// event types.
func recordedObjects(tb testing.TB, e Encoding, name string, most int) (objs [][]byte, types []string) {
	tb.Helper()
	in := must(trace.Open(name))(tb)
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
		raw := f.Object
		if e != JSON {
			obj, _, err := universal.Decode(raw, nil, nil)
			if err != nil {
				tb.Fatal(err)
			}
			raw = encode(tb, e, obj)
		}
		objs, types = append(objs, raw), append(types, string(f.Type))
	}
}

func encode(tb testing.TB, e Encoding, obj runtime.Object) []byte {
	tb.Helper()
	b := must(runtime.Encode(info(e).Serializer, obj))(tb)
	return b
}

func info(e Encoding) runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(codecs(scheme.Scheme).SupportedMediaTypes(), e.MediaType())
	return info
}

// frames returns the body of a watch of the objects.
func frames(tb testing.TB, e Encoding, objs [][]byte, types []string) []byte {
	tb.Helper()
	var body bytes.Buffer
	stream := info(e).StreamSerializer
	w := stream.Framer.NewFrameWriter(&body)
	for i, raw := range objs {
		b, err := runtime.Encode(stream.Serializer, &metav1.WatchEvent{Type: types[i], Object: runtime.RawExtension{Raw: raw}})
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			tb.Fatal(err)
		}
	}
	return body.Bytes()
}

// exactly is client-go's decoder that shared is compared with.
func exactly(tb testing.TB, o Options) Decoder {
	tb.Helper()
	return decoder(tb, "clientgo-"+string(o.Encoding)+"-transform", o)
}

func decoder(tb testing.TB, name string, o Options) Decoder {
	tb.Helper()
	d := must(New(name, o))(tb)
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
	obj := must(scheme.Scheme.New(gvk))(tb)
	f.Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// same fails unless shared decodes from data what client-go does.
func same(tb testing.TB, d, exact Decoder, data []byte, what any) {
	tb.Helper()
	sameInto(tb, d, exact, data, none, what)
}

var exactFuncs = func(_ serializer.CodecFactory) []any {
	return []any{
		func(q *runtime.RawExtension, c randfill.Continue) { q.Raw = []byte(`{"a":1}`) },
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
