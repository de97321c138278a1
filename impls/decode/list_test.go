package decode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"sigs.k8s.io/randfill"

	"watchlab/impls"
)

func podList(n int) *v1.PodList {
	l := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "99"}}
	for i := range n {
		l.Items = append(l.Items, v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("web-", i), Namespace: "default", UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: fmt.Sprint(i + 1),
				Labels:        map[string]string{"app": "a-long-value"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1("{}")}},
			},
			Spec: v1.PodSpec{NodeName: "node-1", Containers: []v1.Container{{Name: "main", Image: "example.com/web:v1"}}},
		})
	}
	return l
}

// TestListedKind: an item of a list has the kind that client-go gives it, also if the same bytes came
// before in a list of another kind or alone.
func TestListedKind(t *testing.T) {
	bare := `{"metadata":{"name":"a","uid":"1","resourceVersion":"1"},"kind":""}`
	full := `{"metadata":{"name":"a","uid":"1","resourceVersion":"1"},"kind":"Pod","apiVersion":"v1"}`
	bodies := []string{
		`{"kind":"PodList","apiVersion":"v1","items":[` + bare + `]}`, `{"kind":"NodeList","apiVersion":"v1","items":[` + bare + `]}`,
		`{"apiVersion":"v1","items":[` + bare + `],"kind":"PodList"}`, `{"kind":"PodList","apiVersion":"v1","items":[` + full + `]}`, full,
	}
	for _, o := range walked[1:] {
		d, exact := decoder(t, "shared-readonly", o), exactly(t, o)
		for range 3 {
			for _, body := range bodies {
				for _, into := range []func() kruntime.Object{
					func() kruntime.Object { return &List{} }, func() kruntime.Object { return &unstructured.UnstructuredList{} },
				} {
					sameInto(t, d, exact, []byte(body), into, title(o))
				}
				same(t, d, exact, []byte(body), title(o))
			}
		}
	}
}

// gone returns a function that waits until the object is collected.
func gone(obj kruntime.Object) (wait func()) {
	collected := make(chan struct{})
	done := func(struct{}) { close(collected) }
	switch obj := obj.(type) {
	case *v1.Pod:
		runtime.AddCleanup(obj, done, struct{}{})
	case *unstructured.Unstructured:
		runtime.AddCleanup(obj, done, struct{}{})
	}
	return func() {
		for {
			runtime.GC()
			select {
			case <-collected:
				return
			default:
				runtime.Gosched()
			}
		}
	}
}

// TestForgets: the decoder keeps no object alive.
func TestForgets(t *testing.T) {
	for _, o := range walked {
		d := decoder(t, "shared-readonly", o)
		data := encode(t, o.Encoding, onePod())
		var wait func()
		func() {
			obj, _, err := d.Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if again, _, err := d.Decode(data, nil, nil); err != nil || again == obj {
				t.Fatalf("%s: decoded again: the same %v, %v", title(o), again == obj, err)
			}
			wait = gone(obj)
		}()
		wait()
		same(t, d, exactly(t, o), data, "again")
	}
}

// server lists and watches three pods in the encoding that the client prefers.
func server(t *testing.T) *rest.Config {
	l := podList(3)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "clientgo-json"
		for _, e := range []Encoding{Protobuf, CBOR} {
			if strings.HasPrefix(r.Header.Get("Accept"), e.MediaType()) {
				name = "clientgo-" + string(e)
			}
		}
		info := decoder(t, name, Options{}).Info()
		w.Header().Set("Content-Type", info.MediaType)
		if info.MediaType == kruntime.ContentTypeCBOR && r.URL.Query().Get("watch") != "" {
			w.Header().Set("Content-Type", kruntime.ContentTypeCBORSequence)
		}
		if r.URL.Query().Get("watch") == "" {
			_ = info.Serializer.Encode(l, w)
			return
		}
		pod := l.Items[0]
		pod.TypeMeta, pod.ResourceVersion = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, "100"
		raw, _ := kruntime.Encode(info.Serializer, &pod)
		e, _ := kruntime.Encode(info.StreamSerializer.Serializer, &metav1.WatchEvent{Type: "MODIFIED", Object: kruntime.RawExtension{Raw: raw}})
		_, _ = info.StreamSerializer.Framer.NewFrameWriter(w).Write(e)
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}
}

// TestUntyped: decoders of Go types alone refuse the option Unstructured.
func TestUntyped(t *testing.T) {
	for _, name := range []string{"clientgo-protobuf", "clientgo-cbor"} {
		if _, err := New(name, Options{Unstructured: true}); !errors.Is(err, impls.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadOnlyRefused: what could hand a shared object to a transform or a client refuses it.
func TestReadOnlyRefused(t *testing.T) {
	c := &rest.Config{Host: "http://localhost"}
	pods := v1.SchemeGroupVersion.WithResource("pods")
	_, with, err := Intercept(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Variants() {
		d, err := v.New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		refused := v.Guarantees[0].Transform == impls.NotOffered
		if ReadOnly(d) != refused || refused != strings.Contains(v.Name, "readonly") {
			t.Errorf("%s: read-only: %v", v.Name, ReadOnly(d))
		}
		check := func(what string, refused bool, err error) {
			t.Helper()
			if errors.Is(err, impls.ErrOptions) != refused || err != nil && !refused {
				t.Errorf("%s: %s: %v", v.Name, what, err)
			}
		}
		_, err = NewListWatch(c, d, pods, metav1.NamespaceAll, nil)
		check("NewListWatch", refused, err)
		_, err = NewListWatch(c, Untransformed(d), pods, metav1.NamespaceAll, nil)
		check("NewListWatch, untransformed", false, err)
		_, err = with(&cache.ListWatch{}, d)
		check("Intercept", refused, err)
		_, err = with(&cache.ListWatch{}, Untransformed(d))
		check("Intercept, untransformed", false, err)
		_, err = NewRESTClient(c, d, pods.GroupVersion())
		check("NewRESTClient", refused, err)
		_, err = NewRESTClient(c, Untransformed(Untransformed(d)), pods.GroupVersion())
		check("NewRESTClient, untransformed", refused, err)
	}
}

// recorded records the requests of a client, without the media types.
type recorded struct {
	base     http.RoundTripper
	requests *[]string
}

func (r recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	_, deadline := req.Context().Deadline()
	*r.requests = append(*r.requests, fmt.Sprint(req.Method, " ", req.URL.RequestURI(), " ", req.UserAgent(), " ", deadline))
	return r.base.RoundTrip(req)
}

// TestTypedClient: a ListWatch sends the requests of client-go's typed client.
func TestTypedClient(t *testing.T) {
	seconds := int64(300)
	for _, e := range []Encoding{JSON, Protobuf} {
		t.Run(string(e), func(t *testing.T) {
			var sent []string
			c := server(t)
			c.ContentType, c.UserAgent = e.MediaType(), "watchlab"
			c.Wrap(func(base http.RoundTripper) http.RoundTripper { return recorded{base, &sent} })
			clients := must(kubernetes.NewForConfig(c))(t)
			d := decoder(t, "clientgo-"+string(e), Options{})
			lw := must(NewListWatch(c, d, v1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, nil))(t)
			if watchlist.DoesClientNotSupportWatchListSemantics(lw) || watchlist.DoesClientNotSupportWatchListSemantics(clients) {
				t.Error("a client does not support WatchList")
			}
			pods := clients.CoreV1().Pods(metav1.NamespaceAll)
			for _, o := range []metav1.ListOptions{
				{ResourceVersion: "0"}, {Limit: 500, Continue: "token", LabelSelector: "app=web"},
				{ResourceVersion: "99", AllowWatchBookmarks: true, TimeoutSeconds: &seconds},
			} {
				sent = nil
				_, err1 := pods.List(t.Context(), o)
				_, err2 := lw.ListWithContext(t.Context(), o)
				if err := errors.Join(err1, err2); err != nil {
					t.Fatal(err)
				}
				for _, f := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){pods.Watch, lw.WatchWithContext} {
					w := must(f(t.Context(), o))(t)
					w.Stop()
				}
				if len(sent) != 4 || sent[0] != sent[1] || sent[2] != sent[3] {
					t.Errorf("requests %q", sent)
				}
			}
		})
	}
}

// TestListItems: an item does not keep the other items of its list alive.
func TestListItems(t *testing.T) {
	for _, o := range walked {
		for _, d := range []Decoder{exactly(t, o), decoder(t, "shared", o)} {
			l := &List{}
			if _, _, err := d.Decode(encode(t, o.Encoding, podList(2)), nil, l); err != nil {
				t.Fatal(err)
			}
			wait := gone(l.Items[0])
			kept := l.Items[1] // and l is not used any more
			wait()
			runtime.KeepAlive(kept)
		}
	}
}

// seen is an observer that writes down what it is told.
type seen struct {
	log  *[]string
	open bool
}

func (s *seen) Begin() {
	if s.open {
		*s.log = append(*s.log, "begun twice")
	}
	s.open = true
}

func (s *seen) End(event watch.EventType, obj kruntime.Object) {
	if !s.open {
		*s.log = append(*s.log, "not begun")
	}
	s.open = false
	entry := fmt.Sprintf("%s %T", event, obj)
	if o, ok := obj.(metav1.Object); ok {
		entry += " " + o.GetResourceVersion()
	}
	*s.log = append(*s.log, entry)
}

// TestObserve: the observer is told of lists, of the frames of a watch and of errors.
func TestObserve(t *testing.T) {
	for _, v := range Variants() {
		t.Run(v.Name, func(t *testing.T) {
			var log []string
			d := must(v.New(Options{Observe: func() Observer { return &seen{log: &log} }}))(t)
			lw, err := NewListWatch(server(t), Untransformed(d), v1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lw.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			w := must(lw.WatchWithContext(t.Context(), metav1.ListOptions{}))(t)
			for range w.ResultChan() {
			}
			info := d.Info()
			event := &metav1.WatchEvent{Type: "ADDED", Object: kruntime.RawExtension{Raw: []byte("{}")}}
			frame := must(kruntime.Encode(info.StreamSerializer.Serializer, event))(t)
			if _, _, err := info.StreamSerializer.Serializer.Decode(frame, nil, &metav1.WatchEvent{}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := info.Serializer.Decode([]byte("no object"), nil, nil); err == nil {
				t.Error("decoded")
			}
			if _, _, err := info.StreamSerializer.Serializer.Decode([]byte("no frame"), nil, &metav1.WatchEvent{}); err == nil {
				t.Error("decoded")
			}
			want := []string{" *decode.List", "MODIFIED *v1.Pod 100", " <nil>", " <nil>"}
			if !slices.Equal(log, want) {
				t.Errorf("observed %q, want %q", log, want)
			}
		})
	}
}

// TestListMeta: a [List] has every field of the metadata, also one that client-go adds in the future.
func TestListMeta(t *testing.T) {
	l := podList(1)
	randfill.New().NilChance(0).Funcs(func(s *string, c randfill.Continue) { *s = fmt.Sprint("a", c.Uint32()) }).Fill(&l.ListMeta)
	fields := reflect.ValueOf(l.ListMeta)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			t.Fatalf("%s is not filled", fields.Type().Field(i).Name)
		}
	}
	for _, e := range Encodings() {
		data := encode(t, e, l)
		for _, v := range Variants() {
			for _, o := range []Options{{Encoding: e}, {Encoding: e, Unstructured: true}} {
				d, err := v.New(o)
				if err != nil {
					continue // another encoding
				}
				got := &List{}
				if _, _, err := d.Decode(data, nil, got); err != nil || !reflect.DeepEqual(got.ListMeta, l.ListMeta) {
					t.Errorf("%s, %s: %+v, want %+v: %v", v.Name, title(o), got.ListMeta, l.ListMeta, err)
				}
			}
		}
	}
}

// TestRescue: after a panic of the decoder client-go's decodes the object, and the panic is counted.
func TestRescue(t *testing.T) {
	for _, o := range walked {
		o.Table = NewTable(0)
		o.Table.hash = func([]byte) uint64 { panic("a bug") }
		d, exact := decoder(t, "shared", o), exactly(t, o)
		data := encode(t, o.Encoding, podList(2))
		same(t, d, exact, data, title(o))
		for _, into := range []func() kruntime.Object{
			func() kruntime.Object { return &List{} }, func() kruntime.Object { return &v1.PodList{} },
			func() kruntime.Object { return &unstructured.UnstructuredList{} },
		} {
			sameInto(t, d, exact, data, into, title(o))
		}
		if o.Table.Panics() < 2 {
			t.Errorf("%s: %d panics", title(o), o.Table.Panics())
		}
	}
}
