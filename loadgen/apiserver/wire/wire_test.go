package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

var (
	podKind    = v1.SchemeGroupVersion.WithKind("Pod")
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

func pod() *v1.Pod {
	replicas := int64(30)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "b", ResourceVersion: "7", UID: "u", Labels: map[string]string{"x": "<y>&"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)}},
		},
		Spec:   v1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: &replicas, Containers: []v1.Container{{Name: "c", Image: strings.Repeat("i", 200)}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
}

func widget() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": "w", "namespace": "a", "resourceVersion": "3"},
		"spec":     map[string]any{"replicas": int64(3), "size": 1.5, "on": true},
	}}
}

func kinds() map[string]struct {
	kind *Kind
	objs []runtime.Object
} {
	withKind := pod()
	withKind.SetGroupVersionKind(podKind)
	return map[string]struct {
		kind *Kind
		objs []runtime.Object
	}{
		"pods":    {NewKind(podKind, "PodList", false, ColumnsOf(podKind)), []runtime.Object{pod(), withKind, &v1.Pod{}}},
		"widgets": {NewKind(widgetKind, "WidgetList", true, nil), []runtime.Object{widget(), widget()}},
	}
}

// serializerOf returns a client's serializer for the form.
func serializerOf(t testing.TB, f Form) runtime.SerializerInfo {
	t.Helper()
	known := scheme.Scheme
	if f.Shape() == Metadata {
		// As in client-go's metadata client.
		known = runtime.NewScheme()
		if err := metav1.AddMetaToScheme(known); err != nil {
			t.Fatal(err)
		}
	}
	if f.Media() == CBOR {
		return cbor.NewSerializerInfo(known, known)
	}
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(known).SupportedMediaTypes(), f.ContentType())
	if !ok {
		t.Fatalf("client-go has no encoder for %s", f.ContentType())
	}
	return info
}

// decode decodes an object like a client.
func decode(t testing.TB, f Form, untyped bool, data []byte) runtime.Object {
	t.Helper()
	var into runtime.Object
	if untyped {
		into = &unstructured.Unstructured{}
	}
	o, _, err := serializerOf(t, f).Serializer.Decode(data, nil, into)
	if err != nil {
		t.Fatalf("%s: %v\n%q", f.Media(), err, data)
	}
	return o
}

// An encoded object decodes to the same object with its kind, in every encoding.
func TestObjects(t *testing.T) {
	for name, tc := range kinds() {
		untyped := name == "widgets"
		for m := range medias {
			if untyped && m == Protobuf {
				if _, err := tc.kind.AppendObject(nil, FormOf(m, Object), tc.objs[0]); !errors.Is(err, ErrEncoding) {
					t.Errorf("%s in protobuf: %v", name, err)
				}
				continue
			}
			for i, o := range tc.objs {
				want := o.DeepCopyObject()
				got, err := tc.kind.AppendObject([]byte("x"), FormOf(m, Object), o)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, o); diff != "" {
					t.Errorf("%s %d in %s: encoding changed it (-want +got):\n%s", name, i, m, diff)
				}
				want.GetObjectKind().SetGroupVersionKind(tc.kind.gvk)
				if diff := cmp.Diff(want, decode(t, FormOf(m, Object), untyped, got[1:])); diff != "" {
					t.Errorf("%s %d in %s (-want +got):\n%s", name, i, m, diff)
				}
			}
		}
	}
}

// Protobuf objects equal the output of apimachinery's serializer byte for byte.
func TestProtobufMatchesKubeAPIServer(t *testing.T) {
	o := pod()
	got, err := kinds()["pods"].kind.AppendObject(nil, FormOf(Protobuf, Object), o)
	if err != nil {
		t.Fatal(err)
	}
	o.SetGroupVersionKind(podKind)
	var want bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want.Bytes(), got) {
		t.Errorf("got\n%q, want\n%q", got, want.Bytes())
	}
}

// client-go's stream decoders read events of all types and shapes.
func TestEvents(t *testing.T) {
	for name, tc := range kinds() {
		for f := range Form(Forms) {
			if f.Media() == Protobuf && (f.Shape().IsTable() || (name == "widgets" && f.Shape() == Object)) {
				continue
			}
			types := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error}
			var body, objects []byte
			for _, typ := range types {
				object, err := tc.kind.AppendObject(nil, f, tc.objs[0])
				if err != nil {
					t.Fatal(err)
				}
				body = AppendEvent(body, f.Media(), typ, object)
				objects = object
				if !bytes.HasSuffix(body[:len(body)-EventTail(f.Media())], object) {
					t.Errorf("%s: the object is not where EventTail says", f.Media())
				}
			}
			s := serializerOf(t, FormOf(f.Media(), Object)).StreamSerializer
			r := s.NewFrameReader(io.NopCloser(bytes.NewReader(body)))
			d := streaming.NewDecoder(r, s.Serializer)
			for _, typ := range types {
				var e metav1.WatchEvent
				if _, _, err := d.Decode(nil, &e); err != nil {
					t.Fatalf("%s in %s: %v", name, f.Media(), err)
				}
				if e.Type != string(typ) || !bytes.Equal(e.Object.Raw, objects) {
					t.Errorf("%s in %s: got %s %q, want %s %q", name, f.Media(), e.Type, e.Object.Raw, typ, objects)
				}
			}
			if _, _, err := d.Decode(nil, &metav1.WatchEvent{}); !errors.Is(err, io.EOF) {
				t.Errorf("after the last: %v", err)
			}
		}
	}
}

// A list contains the objects and the list's metadata, in every encoding.
func TestLists(t *testing.T) {
	remaining := int64(5)
	m := metav1.ListMeta{ResourceVersion: "12", Continue: "abc", RemainingItemCount: &remaining}
	for name, tc := range kinds() {
		for media := range medias {
			for _, shape := range []Shape{Object, Metadata} {
				f := FormOf(media, shape)
				if media == Protobuf && name == "widgets" && shape == Object {
					continue
				}
				for n := range len(tc.objs) + 1 {
					var encoded [][]byte
					for _, o := range tc.objs[:n] {
						b, err := tc.kind.AppendObject(nil, f, o)
						if err != nil {
							t.Fatal(err)
						}
						encoded = append(encoded, b)
					}
					var out bytes.Buffer
					if err := tc.kind.WriteList(&out, f, m, encoded); err != nil {
						t.Fatal(err)
					}
					checkList(t, f, name == "widgets", out.Bytes(), m, tc.objs[:n])
				}
			}
		}
	}
}

func checkList(t *testing.T, f Form, untyped bool, data []byte, m metav1.ListMeta, objs []runtime.Object) {
	t.Helper()
	var got runtime.Object
	switch {
	case f.Shape() == Metadata:
		list := &metav1.PartialObjectMetadataList{}
		s := serializerOf(t, f).Serializer
		if _, _, err := s.Decode(data, nil, list); err != nil {
			t.Fatalf("%s: %v\n%q", f.Media(), err, data)
		}
		if len(list.Items) != len(objs) || !cmp.Equal(list.ListMeta, m) || list.Kind != "PartialObjectMetadataList" {
			t.Errorf("%s: %+v", f.Media(), list)
		}
		for i := range list.Items {
			if f.Media() != Protobuf && list.Items[i].Kind != "PartialObjectMetadata" {
				t.Errorf("%s: item %d has the kind %q", f.Media(), i, list.Items[i].Kind)
			}
		}
		return
	case untyped:
		list := &unstructured.UnstructuredList{}
		if _, _, err := serializerOf(t, f).Serializer.Decode(data, nil, list); err != nil {
			t.Fatalf("%s: %v\n%q", f.Media(), err, data)
		}
		if len(list.Items) != len(objs) || list.GetResourceVersion() != "12" || list.GetKind() != "WidgetList" {
			t.Errorf("%s: %+v", f.Media(), list)
		}
		for i := range list.Items {
			if diff := cmp.Diff(objs[i], runtime.Object(&list.Items[i])); diff != "" {
				t.Errorf("%s (-want +got):\n%s", f.Media(), diff)
			}
		}
		return
	default:
		got = decode(t, f, false, data)
	}
	list := got.(*v1.PodList)
	if len(list.Items) != len(objs) || !cmp.Equal(list.ListMeta, m) {
		t.Errorf("%s: %+v", f.Media(), list)
	}
	for i := range list.Items {
		want := objs[i].DeepCopyObject().(*v1.Pod)
		want.TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(want, &list.Items[i]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Media(), diff)
		}
	}
}

// TestCells: the cells of common kinds are those of a real server.
func TestCells(t *testing.T) {
	data, err := os.ReadFile("testdata/tables.txt")
	if err != nil {
		t.Fatal(err)
	}
	for kind, c := range known() { // Each query has a value for an empty object.
		o, err := scheme.Scheme.New(kind)
		if kind.Kind == "CustomResourceDefinition" {
			o, err = &apiextensionsv1.CustomResourceDefinition{}, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		row := c.cells(o, o.(metav1.Object))
		if len(row) != len(c.definitions) || kind.Kind != "Event" && slices.Contains(row[1:], any(unknown)) && len(row) > 2 && row[1] == unknown && row[2] == unknown {
			t.Errorf("%s: %v in %v", kind, row, c.definitions)
		}
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")[1:]
	if len(lines) < 80 {
		t.Errorf("%d lines", len(lines))
	}
	for i := 0; i+1 < len(lines); i += 2 {
		o, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(lines[i]), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		table, err := NewKind(*kind, kind.Kind+"List", false, ColumnsOf(*kind)).table(metav1.ListMeta{}, []runtime.Object{o}, TableBare)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		if err := e.Encode(table.Rows[0].Cells); err != nil || got.String() != lines[i+1]+"\n" {
			t.Errorf("%s: %s want %s %v", lines[i], &got, lines[i+1], err)
		}
	}
}

func TestTables(t *testing.T) {
	k := kinds()["pods"].kind
	for shape, carries := range map[Shape]string{Table: "PartialObjectMetadata", TableBare: "", TableObject: "Pod"} {
		b, err := k.AppendObject(nil, FormOf(JSON, shape), pod())
		if err != nil {
			t.Fatal(err)
		}
		var table metav1.Table
		if err := json.Unmarshal(b, &table); err != nil {
			t.Fatal(err)
		}
		if table.Kind != "Table" || table.APIVersion != "meta.k8s.io/v1" || table.ResourceVersion != "7" || len(table.Rows) != 1 {
			t.Fatalf("table %s", b)
		}
		row := table.Rows[0]
		if got, want := len(row.Cells), len(table.ColumnDefinitions); got != want {
			t.Errorf("%d cells in %d columns", got, want)
		}
		if diff := cmp.Diff([]any{"b", "0/1", "Running", "0", "<unknown>", "<none>", "n", "<none>", "<none>"}, row.Cells); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		var o struct{ Kind string }
		if carries != "" {
			if err := json.Unmarshal(row.Object.Raw, &o); err != nil {
				t.Fatal(err)
			}
		}
		if o.Kind != carries {
			t.Errorf("shape %d carries a %q, want %q", shape, o.Kind, carries)
		}
	}
	columns, err := PathColumns([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "Replicas", Type: "integer", JSONPath: ".spec.replicas"}, {Name: "None", Type: "string", JSONPath: ".spec.none"}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := NewKind(widgetKind, "WidgetList", true, columns).table(metav1.ListMeta{}, []runtime.Object{widget()}, TableBare)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{"w", int64(3), nil}, table.Rows[0].Cells); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, path := range []string{"..a..b", ".a[0,0,0,0,0,0,0,0,0,0]"} {
		if _, err := PathColumns([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "many", JSONPath: path}}); err == nil || !strings.Contains(err.Error(), "more than one .. or 8 commas") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := PathColumns([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "bad", JSONPath: ".spec["}}); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("a wrong path: %v", err)
	}
}

func TestNegotiate(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	const proto = "application/vnd.kubernetes.protobuf"
	for _, tc := range []struct {
		accept string
		offer  Offer
		want   Form
		fails  bool
	}{
		{accept: "", want: FormOf(JSON, Object)},
		{accept: "*/*", want: FormOf(JSON, Object)},
		{accept: "application/*", want: FormOf(JSON, Object)},
		{accept: proto, want: FormOf(Protobuf, Object)},
		{accept: proto + ",application/json", want: FormOf(Protobuf, Object)},
		{accept: proto + ";q=0.3,application/json", want: FormOf(JSON, Object)},
		{accept: proto + ",application/json", offer: Offer{Untyped: true}, want: FormOf(JSON, Object)},
		{accept: proto, offer: Offer{Untyped: true}, fails: true},
		{accept: proto + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", offer: Offer{Untyped: true}, want: FormOf(Protobuf, Metadata)},
		{accept: "application/cbor", want: FormOf(CBOR, Object)},
		{accept: "application/cbor-seq", fails: true},
		{accept: "application/cbor-seq", offer: Offer{Stream: true}, want: FormOf(CBOR, Object)},
		{accept: proto + ";stream=watch", offer: Offer{Stream: true}, want: FormOf(Protobuf, Object)},
		{accept: proto + ";stream=watch", fails: true},
		{accept: table + ",application/json", want: FormOf(JSON, Table)},
		{accept: table, offer: Offer{Whole: true}, fails: true},
		{accept: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", fails: true},
		{accept: "application/json;as=Table;v=v2;g=meta.k8s.io", fails: true},
		{accept: "application/json;as=Else;v=v1;g=meta.k8s.io", fails: true},
		{accept: "application/yaml", fails: true},
		{accept: "application/json;q=0", fails: true},
		{accept: "text/html", fails: true},
	} {
		got, ok := Negotiate([]string{tc.accept}, tc.offer)
		if ok == tc.fails || got != tc.want {
			t.Errorf("Negotiate(%q, %+v) = %d, %v, want %d", tc.accept, tc.offer, got, ok, tc.want)
		}
	}
}

// FuzzNegotiate: any header is accepted or refused.
func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,*/*;q=0.1", true)
	f.Add(";;=,/;q=x", false)
	f.Fuzz(func(t *testing.T, accept string, stream bool) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		form, _ := Negotiate([]string{accept}, Offer{Stream: stream})
		if int(form) >= Forms {
			t.Fatalf("%q: form %d", accept, form)
		}
	})
}
