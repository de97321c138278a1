package decode

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/trace"
)

// partialOf returns the metadata of an object that client-go has decoded, or another object itself.
func partialOf(t *testing.T, obj kruntime.Object) kruntime.Object {
	t.Helper()
	if o, ok := obj.(metav1.ObjectMetaAccessor); ok {
		return &metav1.PartialObjectMetadata{ObjectMeta: *o.GetObjectMeta().(*metav1.ObjectMeta)}
	}
	field, ok := reflect.TypeOf(obj).Elem().FieldByName("Items")
	if !ok {
		return obj
	}
	if _, ok := field.Type.Elem().FieldByName("ObjectMeta"); !ok {
		return obj
	}
	items := must(meta.ExtractList(obj))(t)
	list := &metav1.PartialObjectMetadataList{}
	if items != nil {
		list.Items = []metav1.PartialObjectMetadata{}
	}
	for _, item := range items {
		list.Items = append(list.Items, *partialOf(t, item).(*metav1.PartialObjectMetadata))
	}
	list.ListMeta = reflect.ValueOf(obj).Elem().FieldByName("ListMeta").Interface().(metav1.ListMeta)
	return list
}

// samePartial fails unless got is the metadata of what client-go decodes, or the same error. Where only
// client-go refuses the data, the rest of the object must be at fault: got is then what the generated
// code makes of the metadata.
func samePartial(t *testing.T, d, exact Decoder, generated kruntime.Decoder, data []byte, what any) {
	t.Helper()
	whole, wantKind, wantErr := exact.Decode(data, nil, nil)
	got, gotKind, err := d.Decode(data, nil, nil)
	var want kruntime.Object
	switch {
	case wantErr == nil:
		want = partialOf(t, whole)
	case err == nil || kruntime.IsNotRegisteredError(wantErr):
		want, wantKind, wantErr = generated.Decode(data, nil, nil)
	}
	if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(gotKind, wantKind) || wantErr == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%v: %+v, %v, %v; client-go has %+v, %v, %v\n%q", what, got, gotKind, err, want, wantKind, wantErr, data)
	}
}

// TestMetadata compares the metadata of recorded, random and damaged objects with client-go's.
func TestMetadata(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	all, rounds := 1<<20, 60_000
	if !*long {
		all, rounds = 100, 1000
	}
	for _, e := range Encodings() {
		exact, d := decoder(t, "clientgo-"+string(e)+"-transform", Options{}), decoder(t, "metadata", Options{Encoding: e})
		most, rounds := all, rounds
		if e != Protobuf { // they take twenty times the time
			most, rounds = min(most/20, 500), rounds/20
		}
		generated := transformed{clientgoPartial(e, scheme.Scheme, false)}
		for _, name := range trace.Names() {
			objs, _ := recordedObjects(t, e, name, most)
			for i, data := range objs {
				samePartial(t, d, exact, generated, data, fmt.Sprint(e, " ", name, " ", i))
			}
		}
		var corpus [][]byte
		for _, gvk := range kinds() {
			if e != Protobuf && len(gvk.Kind)%4 != 0 {
				continue
			}
			data := encode(t, e, filled(t, gvk, 1))
			corpus = append(corpus, data)
			for range 2 {
				samePartial(t, d, exact, generated, data, gvk)
			}
		}
		r := rand.New(rand.NewPCG(5, 6))
		for range rounds {
			data := mutate(r, corpus[r.IntN(len(corpus))])
			samePartial(t, d, exact, generated, data, e)
		}
	}
}

// TestMetadataKinds: kinds that client-go does not know have metadata too, and what has none is decoded
// whole.
func TestMetadataKinds(t *testing.T) {
	widget := metav1.TypeMeta{Kind: "WidgetList", APIVersion: "example.com/v1"} // the kind of an object, in spite of its name
	for _, e := range Encodings() {
		d := decoder(t, "metadata", Options{Encoding: e})
		decode := func(obj, into kruntime.Object) kruntime.Object {
			t.Helper()
			data := must(kruntime.Encode(d.Info().Serializer, obj))(t)
			got, _, err := d.Decode(data, nil, into)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		pod := podList(1).Items[0]
		want := &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}
		want.ManagedFields = nil
		pod.TypeMeta = widget
		if got := decode(&pod, nil); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: a custom resource: %+v", e, got)
		}
		list := podList(2)
		list.TypeMeta = widget
		for range 2 {
			got, ok := decode(list, &List{}).(*List)
			if !ok || got.ResourceVersion != "99" || len(got.Items) != 2 || !reflect.DeepEqual(got.Items[0], want) {
				t.Errorf("%s: custom resources: %+v", e, got)
			}
		}
		list.TypeMeta = metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}
		if got, ok := decode(list, nil).(*metav1.PartialObjectMetadataList); !ok || !reflect.DeepEqual(&got.Items[0], want) {
			t.Errorf("%s: pods: %+v", e, got)
		}
		if got, ok := decode(list, &v1.PodList{}).(*v1.PodList); !ok || got.Items[0].Spec.NodeName == "" || got.Items[0].ManagedFields != nil {
			t.Errorf("%s: into a typed list: %+v", e, got)
		}
		status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410}
		for _, into := range []kruntime.Object{nil, &List{}} {
			if got, ok := decode(status, into).(*metav1.Status); !ok || got.Code != 410 {
				t.Errorf("%s: status: %+v", e, got)
			}
		}
	}
}
