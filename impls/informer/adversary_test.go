package informer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
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

// The adversary of the stacks that README and the guides recommend. TestHostileUser plays client-go's informers
// beside them. Package decode compares what it makes of hostile objects and answers with client-go's decoders and
// clients: TestTrees, TestMessages and TestEveryPart, TestAnswers and TestWatchAnswers.

// recommendedDecoders are those of README and the guides.
var recommendedDecoders = []string{"shared"}

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
	if noWatchList(w, r) {
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
		_, _ = w.Write(encodeAs(encoding, list))
		return
	}
	client := r.Header.Get("User-Agent") + r.URL.Path
	a.mu.Lock()
	a.watches[client]++
	first := a.watches[client] == 1
	a.mu.Unlock()
	send := func(t watch.EventType, obj runtime.Object) {
		_, _ = w.Write(frame(encoding, t, encodeAs(encoding, obj)))
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

// noWatchList answers a watch with an initial list as a server without WatchList.
func noWatchList(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Query().Get("sendInitialEvents") != "true" {
		return false
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"details":{"causes":[{"reason":"FieldValueForbidden","message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]}}`))
	return true
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
func (s *streamed) Flush()              { s.WriteHeader(http.StatusOK) }
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
		client := must(dynamic.NewForConfig(config))(t)
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
		d := must(decode.New("clientgo-json", decode.Options{Scheme: everything()}))(t)
		client := must(decode.NewRESTClient(config, d, gvr.GroupVersion()))(t)
		return cache.NewListWatchFromClient(client, gvr.Resource, "", fields.Everything())
	}
	clients := must(kubernetes.NewForConfig(config))(t)
	client := clients.CoreV1().RESTClient()
	if gvr == setResource {
		client = clients.AppsV1().RESTClient()
	}
	return cache.NewListWatchFromClient(client, gvr.Resource, "", fields.Everything())
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
			noError(t, u.inf.SetTransform(f))
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

// answer is what a hostile server answers to a list.
type answer struct {
	contentType string
	body        []byte
}

// wrongAnswers are no lists of pods, in an encoding.
func wrongAnswers(encoding decode.Encoding, list []byte) []answer {
	kind := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }
	is := encoding.MediaType()
	return []answer{
		{"application/json;as=Table;v=v1;g=meta.k8s.io", []byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"columnDefinitions":[],"rows":[]}`)},
		{is, encodeAs(encoding, &metav1.Status{TypeMeta: kind("Status"), Status: metav1.StatusSuccess, Code: http.StatusOK})},
		{is, encodeAs(encoding, member(podResource, 0, 1))},
		{is, list[:len(list)/2]},
		{is, nil},
		{"text/html", []byte("<html>")},
		// A ListWatch does not know the type of the objects; an informer does.
		{is, encodeAs(encoding, &v1.ServiceList{TypeMeta: kind("ServiceList"), Items: []v1.Service{{ObjectMeta: metav1.ObjectMeta{Name: "s"}}}})},
	}
}

// TestHostileServer: an informer has the objects of a server that answers in another encoding than it
// asked for, and keeps them while the next answers are no lists of its objects.
func TestHostileServer(t *testing.T) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9"}}
	for i := range 3 {
		list.Items = append(list.Items, *member(podResource, i, i+1).(*v1.Pod))
	}
	for _, asked := range []decode.Encoding{decode.JSON, decode.Protobuf} {
		for _, served := range decode.Encodings() {
			for _, name := range recommendedDecoders {
				for title, build := range constructors(name, asked) {
					t.Run(fmt.Sprintf("asked=%s/served=%s/impl=%s/%s", asked, served, name, title), func(t *testing.T) {
						t.Parallel()
						right := answer{served.MediaType(), encodeAs(served, list)}
						wrong := wrongAnswers(served, right.body)
						if title == "NewListWatch" {
							wrong = wrong[:len(wrong)-1]
						}
						synctest.Test(t, func(t *testing.T) { keepsObjects(t, build, right, wrong) })
					})
				}
			}
		}
	}
}

// keepsObjects runs an informer of pods, which has the objects of the right answer after each of the wrong ones.
func keepsObjects(t *testing.T, build constructor, right answer, wrong []answer) {
	var mu sync.Mutex
	lists := 0 // answered wrongly; guarded by mu
	begin, all := make(chan struct{}), make(chan struct{})
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if noWatchList(w, r) {
			return
		}
		if r.URL.Query().Get("watch") != "" { // A watch that ends at once makes the informer list again.
			w.Header().Set("Content-Type", right.contentType)
			w.(http.Flusher).Flush()
			select {
			case <-begin:
			case <-r.Context().Done():
			}
			return
		}
		mu.Lock()
		defer mu.Unlock()
		a := right
		select {
		case <-begin:
			if a = wrong[lists%len(wrong)]; lists == len(wrong) { // The informer has read all of them.
				close(all)
			}
			lists++
		default:
		}
		w.Header().Set("Content-Type", a.contentType)
		_, _ = w.Write(a.body)
	})
	config := &rest.Config{Host: "http://adversary", Transport: streaming{server}, QPS: -1, UserAgent: "adversary"}
	inf := build(t, config, podResource, &v1.Pod{})
	refused := make(chan error, len(wrong)+10)
	noError(t, inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { refused <- err }))
	stop := run(t, inf)
	wait(t, inf.HasSyncedChecker())
	want := contents(inf.GetStore())
	close(begin)
	<-all
	stop()
	if got := contents(inf.GetStore()); len(want) != 3 || !maps.Equal(got, want) {
		t.Errorf("the store had %v, and has %v", want, got)
	}
	close(refused)
	var errs []error
	for err := range refused {
		errs = append(errs, err)
	}
	if len(errs) < len(wrong) || len(wrong) == 7 && !strings.Contains(fmt.Sprint(errs), "*v1.Service (want *v1.Pod)") {
		t.Errorf("%d answers are wrong; errors: %v", len(wrong), errs)
	}
}
