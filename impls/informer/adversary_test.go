package informer_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/decode"
	"watchlab/impls/informer"
)

// The adversary of the stacks that README and the guides recommend. Each test has an oracle: client-go
// doing the same beside it, against the same server.
//
//   - TestHostileUser: transforms, handlers and readers change all that they hold.
//   - TestHostileTenant: any tree in a custom resource.
//   - TestHostileServer: any content type, truncated and wrong answers.

// recommendedDecoders are those of README and the guides.
var recommendedDecoders = []string{"shared", "parallel"}

// vandalise changes all memory that an object leads to, so that a second call shows: values in place,
// elements of slices and the room behind them, entries of maps, targets of pointers. It leaves alone what
// the informer itself reads: name, namespace, UID and version, and with them the maps of an unstructured
// object and of its metadata.
func vandalise(obj any) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		spoil(reflect.ValueOf(obj))
		return
	}
	metadata, _ := u.Object["metadata"].(map[string]any)
	for _, m := range []map[string]any{u.Object, metadata} {
		for k, v := range m {
			switch v.(type) {
			case map[string]any, []any:
				if k != "metadata" {
					spoil(reflect.ValueOf(v))
				}
			}
		}
	}
}

// identity are the fields that the informer reads.
var identity = []string{"Name", "Namespace", "UID", "ResourceVersion"}

func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if q, ok := v.Interface().(*resource.Quantity); ok && q != nil {
			q.Add(resource.MustParse("1")) // its fields are unexported
		} else if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Struct:
		if q, ok := v.Addr().Interface().(*resource.Quantity); ok {
			q.Add(resource.MustParse("1"))
			return
		}
		for i := range v.NumField() {
			known := v.Type() == reflect.TypeFor[metav1.ObjectMeta]() && slices.Contains(identity, v.Type().Field(i).Name)
			if f := v.Field(i); f.CanSet() && !known {
				spoil(f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoilEntry(v.Index(i), v.Index(i).Set)
		}
		if v.Len() < v.Cap() { // as append does within the capacity
			v.Slice(0, v.Len()+1).Index(v.Len()).SetZero()
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		for _, key := range v.MapKeys() {
			spoilEntry(v.MapIndex(key), func(to reflect.Value) { v.SetMapIndex(key, to) })
		}
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() != reflect.Interface {
			v.SetMapIndex(reflect.ValueOf("spoilt").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
		}
	case reflect.Interface:
		if !v.IsNil() {
			spoilEntry(v, v.Set)
		}
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	}
}

// spoilEntry spoils a copy of a value that may not be settable, and what it leads to, and sets it.
func spoilEntry(v reflect.Value, set func(reflect.Value)) {
	of := v
	if of.Kind() == reflect.Interface {
		of = of.Elem()
	}
	if !of.IsValid() {
		return
	}
	fresh := reflect.New(of.Type()).Elem()
	fresh.Set(of)
	spoil(fresh)
	set(fresh)
}

// template is the part that objects of several kinds have in common.
func template(n int) v1.PodTemplateSpec {
	grace := int64(30)
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "pod-template-hash": "f00"}, Annotations: map[string]string{"note": "the same in all"}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace, NodeSelector: map[string]string{"zone": "a"},
			Tolerations: []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists, TolerationSeconds: &grace}},
			Containers: []v1.Container{{
				Name: "main", Image: "example.com/web:v1", Args: []string{"--a", "--b", "--c"},
				Env:       []v1.EnvVar{{Name: "A", Value: "one"}, {Name: "B", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1.5Gi")}},
			}},
			NodeName: fmt.Sprint("node-", n%2),
		},
	}
}

// crowd are objects of several kinds that share parts. Each has its resource.
var (
	podResource    = v1.SchemeGroupVersion.WithResource("pods")
	setResource    = appsv1.SchemeGroupVersion.WithResource("replicasets")
	adversaryKinds = map[schema.GroupVersionResource]runtime.Object{podResource: &v1.Pod{}, setResource: &appsv1.ReplicaSet{}, widgets: &Widget{}}
)

func member(gvr schema.GroupVersionResource, i, version int) runtime.Object {
	t := template(i)
	m := metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprint("x-", i), UID: types.UID(fmt.Sprint("uid-", gvr.Resource, i)), ResourceVersion: fmt.Sprint(version),
		Labels: t.Labels, Annotations: t.Annotations, Finalizers: []string{"example.com/f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u", Controller: new(true)}},
	}
	switch gvr {
	case podResource:
		return &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: m, Spec: t.Spec}
	case setResource:
		return &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}, ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: t.Labels}, Template: t,
		}}
	}
	return &Widget{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"}, ObjectMeta: m, Spec: WidgetSpec{Size: 3}}
}

// everything is a scheme with client-go's types, Widget, and metav1's as in controller-runtime.
var everything = sync.OnceValue(func() *runtime.Scheme {
	s := widgetScheme()
	_ = scheme.AddToScheme(s)
	return s
})

// answers is the server of TestHostileUser: each resource has five objects and, for each watch, their
// updates with the same contents. A watch from version 100 ends as expired, so that there is a second
// list, of the objects of the first. The last event of the second watch is of the object x-last.
type answers struct {
	mu      sync.Mutex
	watches map[string]int // by client and path
}

const members = 5

func encoded(encoding decode.Encoding, obj runtime.Object) []byte {
	if _, ok := obj.(*Widget); !ok && encoding == decode.Protobuf {
		if l, ok := obj.(*WidgetList); !ok || l == nil {
			return encodeAs(encoding, obj)
		}
	}
	return encodeAs(decode.JSON, obj)
}

func encodeAs(encoding decode.Encoding, obj runtime.Object) []byte {
	d, err := decode.New("clientgo-"+string(encoding), decode.Options{Scheme: everything()})
	if err != nil {
		panic(err)
	}
	var b bytes.Buffer
	if err := d.Info().Serializer.Encode(obj, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// frame returns an event of a watch.
func frame(encoding decode.Encoding, of watch.EventType, obj []byte) []byte {
	if encoding == decode.JSON {
		return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", of, obj)
	}
	d, err := decode.New("clientgo-"+string(encoding), decode.Options{})
	if err != nil {
		panic(err)
	}
	var b bytes.Buffer
	e := &metav1.WatchEvent{Type: string(of), Object: runtime.RawExtension{Raw: obj}}
	if err := d.Info().StreamSerializer.Serializer.Encode(e, &b); err != nil {
		panic(err)
	}
	var framed bytes.Buffer
	if _, err := d.Info().StreamSerializer.Framer.NewFrameWriter(&framed).Write(b.Bytes()); err != nil {
		panic(err)
	}
	return framed.Bytes()
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	gvr := podResource
	for of := range adversaryKinds {
		if strings.HasSuffix(r.URL.Path, "/"+of.Resource) {
			gvr = of
		}
	}
	encoding := decode.JSON
	if gvr != widgets && strings.HasPrefix(r.Header.Get("Accept"), decode.Protobuf.MediaType()) {
		encoding = decode.Protobuf
	}
	w.Header().Set("Content-Type", encoding.MediaType())
	if r.URL.Query().Get("sendInitialEvents") == "true" { // As a server without WatchList.
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"details":{"causes":[{"reason":"FieldValueForbidden","message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]}}`))
		return
	}
	if r.URL.Query().Get("watch") == "" {
		var items []runtime.Object
		for i := range members {
			items = append(items, member(gvr, i, i+1))
		}
		var list runtime.Object
		at := metav1.ListMeta{ResourceVersion: "100"}
		switch gvr {
		case podResource:
			list = &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: at}
		case setResource:
			list = &appsv1.ReplicaSetList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSetList"}, ListMeta: at}
		default:
			list = &WidgetList{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "WidgetList"}, ListMeta: at}
		}
		if err := meta.SetList(list, items); err != nil {
			panic(err)
		}
		_, _ = w.Write(encoded(encoding, list))
		return
	}
	client := r.Header.Get("User-Agent") + r.URL.Path
	a.mu.Lock()
	a.watches[client]++
	first := a.watches[client] == 1
	a.mu.Unlock()
	send := func(t watch.EventType, obj runtime.Object) {
		_, _ = w.Write(frame(encoding, t, encoded(encoding, obj)))
	}
	for i := range members {
		send(watch.Modified, member(gvr, i, 101+i))
	}
	send(watch.Modified, member(gvr, 0, 3)) // goes back
	send(watch.Deleted, member(gvr, 1, 107))
	if first {
		send(watch.Error, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
		return
	}
	send(watch.Added, member(gvr, 99, 120))
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// streaming is a transport to a handler, in the memory and the bubble of the test.
type streaming struct{ http.Handler }

type streamed struct {
	header http.Header
	code   int
	ready  chan struct{}
	once   sync.Once
	*io.PipeWriter
}

func (s *streamed) Header() http.Header { return s.header }
func (s *streamed) Flush()              {}
func (s *streamed) WriteHeader(code int) {
	s.once.Do(func() { s.code = code; close(s.ready) })
}

func (s *streamed) Write(b []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	return s.PipeWriter.Write(b)
}

type streamBody struct {
	*io.PipeReader
	end context.CancelFunc
}

func (b streamBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}

func (s streaming) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, end := context.WithCancel(r.Context())
	body, w := io.Pipe()
	answer := &streamed{header: http.Header{}, ready: make(chan struct{}), PipeWriter: w}
	go func() {
		defer end()
		s.ServeHTTP(answer, r.WithContext(ctx))
		answer.WriteHeader(http.StatusOK)
		_ = w.Close()
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	<-answer.ready
	return &http.Response{
		StatusCode: answer.code, Status: http.StatusText(answer.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: streamBody{body, end}, ContentLength: -1, Request: r,
	}, nil
}

// tap is a handler that notes what it is told, and says when it has the last object.
type tap struct {
	mu      sync.Mutex
	told    []string
	objs    []any
	last    chan struct{}
	vandals bool
}

func (h *tap) note(verb string, obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		verb, obj = "bury", d.Obj
	}
	text, err := json.Marshal(obj)
	if err != nil {
		panic(err)
	}
	h.mu.Lock()
	h.told = append(h.told, verb+" "+string(text))
	h.objs = append(h.objs, obj)
	h.mu.Unlock()
	if h.vandals {
		vandalise(obj)
	}
	if m, _ := meta.Accessor(obj); m.GetName() == "x-99" {
		close(h.last)
	}
}

func (h *tap) OnAdd(obj any, _ bool) { h.note("add", obj) }
func (h *tap) OnUpdate(_, obj any)   { h.note("update", obj) }
func (h *tap) OnDelete(obj any)      { h.note("delete", obj) }

// constructor makes an informer of a resource. name tells clients apart.
type constructor func(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object) cache.SharedIndexInformer

// clientGoLister lists as a generated or a dynamic client does.
func clientGoLister(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object) cache.ListerWatcher {
	t.Helper()
	if _, ok := example.(runtime.Unstructured); ok {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.Resource(gvr).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return client.Resource(gvr).Watch(ctx, o)
			},
		}
	}
	if gvr == widgets { // As a client that code-generator generates.
		d, err := decode.New("clientgo-json", decode.Options{Scheme: everything()})
		if err != nil {
			t.Fatal(err)
		}
		client, err := decode.NewRESTClient(config, d, gvr.GroupVersion())
		if err != nil {
			t.Fatal(err)
		}
		return cache.NewListWatchFromClient(client, gvr.Resource, "", fields.Everything())
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return clients.CoreV1().Pods("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return clients.CoreV1().Pods("").Watch(ctx, o)
		},
	}
	if gvr == setResource {
		lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return clients.AppsV1().ReplicaSets("").List(ctx, o)
		}
		lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return clients.AppsV1().ReplicaSets("").Watch(ctx, o)
		}
	}
	return lw
}

// stripped is the usual transform.
func stripped(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// constructors returns those of README and the guides, with a decoder whose table they share.
func constructors(name string, encoding decode.Encoding) map[string]constructor {
	o := decode.Options{Scheme: everything(), Table: decode.NewTable(0), Encoding: encoding}
	opts := informer.Options{Decode: name, Decoder: o, Variant: "ring"}
	fail := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]constructor{
		"ForResource": func(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object) cache.SharedIndexInformer {
			inf, err := informer.ForResource(config, gvr, example, opts)
			fail(t, err)
			return inf
		},
		"ForManager": func(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object) cache.SharedIndexInformer {
			config, newInformer, err := informer.ForManager(config, opts)
			fail(t, err)
			return newInformer(clientGoLister(t, config, gvr, example), example, 0, cache.Indexers{})
		},
		"NewListWatch": func(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object) cache.SharedIndexInformer {
			o := o
			_, o.Unstructured = example.(runtime.Unstructured)
			if o.Unstructured || gvr == widgets {
				o.Encoding = decode.JSON
			}
			d, err := decode.New(name, o)
			fail(t, err)
			lw, err := decode.NewListWatch(config, d, gvr, "", nil)
			fail(t, err)
			inf, err := informer.New(lw, example, informer.Options{})
			fail(t, err)
			return inf
		},
	}
}

func clientGoInformer(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource, example runtime.Object) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(clientGoLister(t, config, gvr, example), example, 0, cache.Indexers{})
}

// hostility are the transform, the handler and the reader of a vandal.
type hostility struct{ transforms, handles, reads bool }

// played is what an informer told and stored in the end.
type played struct {
	Told   []string
	Stored map[string]string
}

// playUsers runs, for each kind, an informer of a vandal and one of an innocent user, whose reader reads
// all the time. It returns what the innocent and the vandals had, by kind.
func playUsers(t *testing.T, encoding decode.Encoding, h hostility, untyped bool, build constructor) map[string]played {
	type user struct {
		inf    cache.SharedIndexInformer
		tap    *tap
		vandal bool
	}
	users := map[string]user{}
	transport := streaming{&answers{watches: map[string]int{}}}
	for gvr, example := range adversaryKinds {
		if untyped {
			example = &unstructured.Unstructured{}
		}
		for _, vandal := range []bool{true, false} {
			name := fmt.Sprintf("%s vandal=%t", gvr.Resource, vandal)
			config := &rest.Config{Host: "http://adversary", Transport: transport, QPS: -1, UserAgent: name}
			if !untyped && gvr != widgets {
				config.ContentType, config.AcceptContentTypes = encoding.MediaType(), encoding.MediaType()
			}
			u := user{build(t, config, gvr, example), &tap{last: make(chan struct{}), vandals: vandal && h.handles}, vandal}
			f := stripped
			if vandal && h.transforms {
				f = func(obj any) (any, error) { vandalise(obj); return stripped(obj) }
			}
			if err := u.inf.SetTransform(f); err != nil {
				t.Fatal(err)
			}
			addHandler(t, u.inf, u.tap)
			users[name] = u
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running, reading sync.WaitGroup
	over := make(chan struct{})
	for _, u := range users {
		running.Go(func() { u.inf.RunWithContext(ctx) })
		if !u.vandal {
			reading.Go(func() {
				for {
					for _, obj := range u.inf.GetStore().List() {
						if _, err := json.Marshal(obj); err != nil {
							t.Error(err)
						}
					}
					select {
					case <-over:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}
	}
	for name, u := range users {
		select {
		case <-u.tap.last:
		case <-time.After(2 * time.Minute):
			t.Errorf("the informer of %s has not got the last object in 2 minutes", name)
		}
		if u.vandal && h.reads {
			for _, obj := range u.inf.GetStore().List() {
				vandalise(obj)
			}
		}
	}
	close(over)
	reading.Wait()
	all := map[string]played{}
	for name, u := range users {
		p := played{Told: u.tap.told, Stored: map[string]string{}}
		for _, obj := range u.inf.GetStore().List() {
			text, _ := json.Marshal(obj)
			p.Stored[key(obj)] = string(text)
		}
		// What the innocent were told is as it was.
		if !u.vandal {
			for i, obj := range u.tap.objs {
				if text, _ := json.Marshal(obj); !strings.HasSuffix(p.Told[i], " "+string(text)) {
					t.Errorf("%s: an object changed after it was told:\n%s\n%s", name, p.Told[i], text)
				}
			}
		}
		all[name] = p
	}
	cancel()
	running.Wait()
	return all
}

// TestHostileUser: what a transform, a handler or a reader changes is seen where client-go's informers
// show it, and nowhere else: not by other informers, kinds or the next list.
func TestHostileUser(t *testing.T) {
	for _, h := range []hostility{{transforms: true}, {handles: true, reads: true}, {true, true, true}} {
		for _, of := range []struct {
			encoding decode.Encoding
			untyped  bool
		}{{decode.Protobuf, false}, {decode.JSON, false}, {decode.JSON, true}} {
			name := fmt.Sprintf("%+v/encoding=%s/untyped=%t", h, of.encoding, of.untyped)
			play := func(t *testing.T, build constructor) (all map[string]played) {
				synctest.Test(t, func(t *testing.T) { all = playUsers(t, of.encoding, h, of.untyped, build) })
				return all
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var want map[string]played
				t.Run("client-go", func(t *testing.T) { want = play(t, clientGoInformer) })
				for _, name := range recommendedDecoders {
					for title, build := range constructors(name, of.encoding) {
						t.Run(fmt.Sprintf("impl=%s/%s", name, title), func(t *testing.T) {
							got := play(t, build)
							for who := range want {
								if !slices.Equal(got[who].Told, want[who].Told) {
									t.Errorf("%s was told\n%s\nby client-go\n%s", who, strings.Join(got[who].Told, "\n"), strings.Join(want[who].Told, "\n"))
								}
								if !reflect.DeepEqual(got[who].Stored, want[who].Stored) {
									t.Errorf("%s has stored\n%v\nwith client-go\n%v", who, got[who].Stored, want[who].Stored)
								}
							}
						})
					}
				}
			})
		}
	}
}

// reply is an answer of a hostile server to a list or a watch.
type reply struct {
	code        int
	contentType string
	gzip        bool
	body        []byte
}

func (a reply) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.contentType)
	if a.contentType == "" {
		w.Header()["Content-Type"] = nil
	}
	body := a.body
	if a.gzip {
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		body = b.Bytes()
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(body)
}

// inMemory is a transport to a handler whose answers end.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	answer := w.Result()
	answer.Request = r
	if answer.Header.Get("Content-Encoding") == "gzip" { // as http.Transport does
		z, err := gzip.NewReader(answer.Body)
		if err != nil {
			return nil, err
		}
		answer.Header.Del("Content-Encoding")
		answer.Body, answer.ContentLength, answer.Uncompressed = io.NopCloser(z), -1, true
	}
	return answer, nil
}

// outcome is what a ListerWatcher made of an answer, as a list and as a watch.
func outcome(t *testing.T, lw cache.ListerWatcher, watching bool) string {
	t.Helper()
	both := cache.ToListerWatcherWithContext(lw)
	var b strings.Builder
	show := func(obj runtime.Object) {
		if m, err := meta.Accessor(obj); err == nil {
			m.SetManagedFields(nil)
		}
		text, err := json.Marshal(obj)
		fmt.Fprintf(&b, "%T %s %v\n", obj, text, err)
	}
	if !watching {
		list, err := both.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			return "error " + err.Error()
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return "error " + err.Error()
		}
		remaining, _ := json.Marshal(m.GetRemainingItemCount())
		fmt.Fprintf(&b, "list %q %q %s\n", m.GetResourceVersion(), m.GetContinue(), remaining)
		items, err := meta.ExtractListWithAlloc(list)
		if err != nil {
			return "error " + err.Error()
		}
		for _, item := range items {
			show(item)
		}
		return b.String()
	}
	w, err := both.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		return "error " + err.Error()
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		fmt.Fprint(&b, e.Type, " ")
		show(e.Object)
	}
	return b.String()
}

// listers are client-go's and our ListerWatchers of a resource, whose server gives one answer.
type listers struct {
	answer   reply
	clientGo cache.ListerWatcher
	ours     map[string]cache.ListerWatcher
}

func newListers(t *testing.T, gvr schema.GroupVersionResource, example runtime.Object, encoding decode.Encoding) *listers {
	t.Helper()
	l := &listers{ours: map[string]cache.ListerWatcher{}}
	_, untyped := example.(runtime.Unstructured)
	config := &rest.Config{Host: "http://adversary", QPS: -1, UserAgent: "adversary"}
	config.Transport = inMemory{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.answer.ServeHTTP(w, r) })}
	if !untyped && gvr != widgets {
		config.ContentType, config.AcceptContentTypes = encoding.MediaType(), encoding.MediaType()+","+runtime.ContentTypeJSON+";q=0.5"
	}
	l.clientGo = clientGoLister(t, config, gvr, example)
	for _, name := range recommendedDecoders {
		d, err := decode.New(name, decode.Options{Scheme: everything(), Encoding: encoding, Unstructured: untyped})
		if err != nil {
			t.Fatal(err)
		}
		if l.ours["NewListWatch of "+name], err = decode.NewListWatch(config, d, gvr, "", nil); err != nil {
			t.Fatal(err)
		}
		intercepted, with, err := decode.Intercept(config)
		if err != nil {
			t.Fatal(err)
		}
		if l.ours["Intercept of "+name], err = with(clientGoLister(t, intercepted, gvr, example), d); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// compare compares what client-go and ours make of an answer.
func (l *listers) compare(t *testing.T, title string, answer reply, watching bool) {
	t.Helper()
	l.answer = answer
	want := outcome(t, l.clientGo, watching)
	for of, lw := range l.ours {
		got := outcome(t, lw, watching)
		// client-go makes an empty list without a version of anything. An informer would delete all that
		// it has, so ours may refuse the answer.
		if refused := want == "list \"\" \"\" null\n" && strings.HasPrefix(got, "error "); got != want && !refused {
			t.Errorf("%s, watch %t, %s: %.200q\n%.400q\nwant\n%.400q", title, watching, of, answer.body, got, want)
		}
	}
}

// nodes are JSON values of each kind.
var nodes = []string{`{}`, `[]`, `""`, `"5"`, `5`, `-1.5`, `1e400`, `true`, `null`, `[1]`, `[{}]`, `{"a":{"b":[null]}}`, `99999999999999999999`, `"\ud800"`, `{"metadata":{"name":5}}`}

// mutations calls f with the tree in which each node is replaced by each of nodes in turn.
func mutations(tree any, f func(title string, tree any)) {
	root := tree
	var walk func(v any, path string, set func(any))
	walk = func(v any, path string, set func(any)) {
		for _, n := range nodes {
			set(json.RawMessage(n))
			f(path+"="+n, root)
		}
		set(v)
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				inner := v[k]
				walk(inner, path+"."+k, func(to any) { v[k] = to })
			}
		case []any:
			for i := range v {
				inner := v[i]
				walk(inner, fmt.Sprint(path, "[", i, "]"), func(to any) { v[i] = to })
			}
		}
	}
	walk(tree, "", func(to any) { root = to })
}

// TestHostileTenant: a node of any kind at any place of a custom resource, in a list and in a watch.
func TestHostileTenant(t *testing.T) {
	for _, example := range []runtime.Object{&Widget{}, &unstructured.Unstructured{}} {
		t.Run(fmt.Sprintf("%T", example), func(t *testing.T) {
			t.Parallel()
			var tree any
			if err := json.Unmarshal(encodeAs(decode.JSON, member(widgets, 0, 7)), &tree); err != nil {
				t.Fatal(err)
			}
			l := newListers(t, widgets, example, decode.JSON)
			mutations(tree, func(title string, tree any) {
				object, err := json.Marshal(tree)
				if err != nil {
					t.Fatal(err)
				}
				list := fmt.Appendf(nil, `{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"9"},"items":[%s,%s]}`, object, object)
				l.compare(t, title, reply{200, runtime.ContentTypeJSON, false, list}, false)
				l.compare(t, title, reply{200, runtime.ContentTypeJSON, false, frame(decode.JSON, watch.Added, object)}, true)
			})
		})
	}
}

// TestHostileServer: answers of any content type, code and form, whole and truncated.
func TestHostileServer(t *testing.T) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "c", RemainingItemCount: new(int64(5))}}
	for i := range 2 {
		list.Items = append(list.Items, *member(podResource, i, i+1).(*v1.Pod))
	}
	// A list of another kind is client-go's empty list. ListerWatchers do not know the type; see TestOtherKinds.
	service := &v1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: list.ListMeta, Items: []v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "s"}}}}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone, Message: "too old"}
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, ListMeta: list.ListMeta}
	bodies := func(encoding decode.Encoding) map[string][]byte {
		all := map[string][]byte{}
		for name, obj := range map[string]runtime.Object{"list": list, "status": status, "pod": member(podResource, 0, 1), "empty": &v1.PodList{TypeMeta: list.TypeMeta}} {
			all[name] = encodeAs(encoding, obj)
		}
		whole := all["list"]
		for _, part := range []int{1, 4, 10, len(whole) / 3, len(whole) / 2, len(whole) - 1} {
			all[fmt.Sprint("truncated at ", part)] = whole[:part]
		}
		all["nothing"], all["null"], all["text"] = nil, []byte("null"), []byte("upstream connect error")
		if encoding == decode.JSON {
			all["table"] = encodeAs(encoding, table)
			for _, n := range nodes {
				all["items "+n] = []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":` + n + `}`)
				all["metadata "+n] = []byte(`{"kind":"PodList","apiVersion":"v1","metadata":` + n + `,"items":[]}`)
				all["kind "+n] = []byte(`{"kind":` + n + `,"apiVersion":"v1","items":[]}`)
			}
		}
		return all
	}
	contentTypes := []string{"", "text/html", "application/json;charset=utf-8", "APPLICATION/JSON", "application/octet-stream", "not a type"}
	// Answers as CBOR are refused by client-go without its feature gate; ours decode them.
	for _, e := range []decode.Encoding{decode.JSON, decode.Protobuf} {
		contentTypes = append(contentTypes, e.MediaType())
	}
	for _, asked := range []decode.Encoding{decode.JSON, decode.Protobuf} {
		for _, encoding := range decode.Encodings() {
			t.Run(fmt.Sprintf("asked=%s/encoding=%s", asked, encoding), func(t *testing.T) {
				t.Parallel()
				l := newListers(t, podResource, &v1.Pod{}, asked)
				for name, body := range bodies(encoding) {
					for _, contentType := range contentTypes {
						for _, code := range []int{200, 406, 500} {
							if code != 200 && name != "status" && name != "text" {
								continue
							}
							l.compare(t, fmt.Sprintf("%s as %q, code %d", name, contentType, code), reply{code, contentType, code == 200, body}, false)
						}
					}
				}
				pod := encodeAs(encoding, member(podResource, 0, 1))
				if encoding == decode.CBOR {
					return // client-go's frames of CBOR need its feature gate
				}
				stream := append(frame(encoding, watch.Added, pod), frame(encoding, watch.Modified, pod)...)
				stream = append(stream, frame(encoding, "STRANGE", pod)...)
				for _, body := range [][]byte{stream, stream[:len(stream)/2], stream[:3], nil, []byte("upstream connect error"), frame(encoding, watch.Added, encodeAs(encoding, service)), frame(encoding, watch.Error, encodeAs(encoding, status))} {
					for _, contentType := range contentTypes {
						l.compare(t, fmt.Sprintf("a watch as %q", contentType), reply{200, contentType, false, body}, true)
					}
				}
			})
		}
	}
}

// TestOtherKinds: an informer refuses a list of objects of another kind.
func TestOtherKinds(t *testing.T) {
	services := &v1.ServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"},
		Items: []v1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}}},
	}
	for _, encoding := range []decode.Encoding{decode.JSON, decode.Protobuf} {
		for _, name := range recommendedDecoders {
			for title, build := range constructors(name, encoding) {
				if title == "NewListWatch" {
					continue // It is told no type.
				}
				t.Run(fmt.Sprintf("encoding=%s/impl=%s/%s", encoding, name, title), func(t *testing.T) {
					server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Query().Get("watch") != "" {
							http.Error(w, "no watch", http.StatusMethodNotAllowed)
							return
						}
						reply{200, encoding.MediaType(), false, encodeAs(encoding, services)}.ServeHTTP(w, r)
					})
					config := &rest.Config{Host: "http://adversary", Transport: inMemory{server}, QPS: -1, UserAgent: "adversary"}
					inf := build(t, config, podResource, &v1.Pod{})
					refused := make(chan error, 100)
					if err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { refused <- err }); err != nil {
						t.Fatal(err)
					}
					stop := run(t, inf)
					if err := <-refused; !strings.Contains(err.Error(), "*v1.Service (want *v1.Pod)") {
						t.Errorf("the error is %v", err)
					}
					if stop(); len(inf.GetStore().List()) > 0 {
						t.Errorf("the store has %v", inf.GetStore().List())
					}
				})
			}
		}
	}
}
