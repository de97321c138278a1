package controllerruntime_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"watchlab/impls/decode"
	"watchlab/impls/informer"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
)

var soak = flag.Duration("soak", 3*time.Second, "how long the recommended configuration runs through storms and faults; from 90 s on, through all faults")

var soakDecode = flag.String("soak-decode", recommended.Decode, "the decoder of the soak")

// recommended is README's configuration of a manager.
var recommended = informer.Options{Variant: "ring", Decode: "shared"}

// Widget is a custom resource of a Go type.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Template v1.PodTemplateSpec `json:"template,omitempty"`
	} `json:"spec,omitempty"`
}

type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	c := &Widget{TypeMeta: w.TypeMeta, ObjectMeta: *w.ObjectMeta.DeepCopy()}
	w.Spec.Template.DeepCopyInto(&c.Spec.Template)
	return c
}

func (l *WidgetList) DeepCopyObject() runtime.Object {
	c := &WidgetList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Widget))
	}
	return c
}

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// soakScheme returns client-go's types, metadata and Widget.
func soakScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = scheme.AddToScheme(s)
	_ = metav1.AddMetaToScheme(s)
	s.AddKnownTypeWithName(widgetKind, &Widget{})
	s.AddKnownTypeWithName(widgetKind.GroupVersion().WithKind("WidgetList"), &WidgetList{})
	metav1.AddToGroupVersion(s, widgetKind.GroupVersion())
	return s
}

// kinds are the informers of the soak: three built-in kinds, a custom resource with and without a Go
// type, and metadata.
func soakKinds() map[string]client.Object {
	return map[string]client.Object{
		"pods": &v1.Pod{}, "replicasets": &appsv1.ReplicaSet{}, "services": &v1.Service{}, "widgets": &Widget{},
		"untyped": ofKind(&unstructured.Unstructured{}, widgetKind), "metadata": ofKind(&metav1.PartialObjectMetadata{}, v1.SchemeGroupVersion.WithKind("Pod")),
	}
}

// resourceOf returns the resource of a kind of [soakKinds].
func resourceOf(kind string) string {
	return cmp.Or(map[string]string{"untyped": "widgets", "metadata": "pods"}[kind], kind)
}

func ofKind[T client.Object](obj T, gvk schema.GroupVersionKind) T {
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj
}

// transformTemplate changes a template in place, as a transform may.
func transformTemplate(m *metav1.ObjectMeta, s *v1.PodSpec) {
	delete(m.Labels, "pod-template-hash")
	for i := range s.Containers {
		c := &s.Containers[i]
		c.Args = append(c.Args[:min(1, len(c.Args))], "transformed")
		for j := range c.Env {
			c.Env[j].Value = "transformed"
		}
	}
}

// transform changes pods, widgets and services in place, and leaves replica sets as they are.
func transform(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *v1.Pod:
		transformTemplate(&o.ObjectMeta, &o.Spec)
	case *Widget:
		transformTemplate(&o.Spec.Template.ObjectMeta, &o.Spec.Template.Spec)
	case *v1.Service:
		for i := range o.Spec.Ports {
			o.Spec.Ports[i].Name = "transformed"
		}
		clear(o.Spec.Selector)
	case *unstructured.Unstructured:
		spec, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
		if containers, ok := spec.(map[string]any)["containers"].([]any); ok {
			for _, c := range containers {
				c.(map[string]any)["image"] = "transformed"
			}
		}
	}
	return obj, nil
}

// revision is the number of the write of an object, which begins with 1.
const revision = "example.com/revision"

// body returns an object whose parts are those of many others.
func body(resource, name string, n, variant int) *unstructured.Unstructured {
	type m = map[string]any
	labels := m{"app": fmt.Sprint("app-", variant%5), "pod-template-hash": fmt.Sprint("hash-", variant%7)}
	var containers []any
	for i := range variant%2 + 1 {
		containers = append(containers, m{
			"name": fmt.Sprint("c-", i), "image": fmt.Sprint("example.com/image:", variant%3), "args": []any{"--one", "--two", "--three"},
			"env": []any{m{"name": "A", "value": "a-long-value-of-the-variable-a"}, m{"name": "B", "value": fmt.Sprint("b-", variant%5)}},
		})
	}
	template := m{"metadata": m{"labels": maps.Clone(labels)}, "spec": m{"containers": containers, "nodeName": fmt.Sprint("node-", variant%3)}}
	o := m{"metadata": m{"namespace": "default", "name": name, "labels": labels, "annotations": m{revision: strconv.Itoa(n)}}}
	switch resource {
	case "pods":
		o["apiVersion"], o["kind"], o["spec"] = "v1", "Pod", template["spec"]
	case "replicasets":
		o["apiVersion"], o["kind"] = "apps/v1", "ReplicaSet"
		o["spec"] = m{"replicas": int64(variant), "selector": m{"matchLabels": maps.Clone(labels)}, "template": template}
	case "services":
		o["apiVersion"], o["kind"] = "v1", "Service"
		o["spec"] = m{"selector": maps.Clone(labels), "ports": []any{m{"name": "http", "port": int64(80), "protocol": "TCP", "targetPort": int64(variant%9 + 8080)}}}
	default:
		o["apiVersion"], o["kind"], o["spec"] = "example.com/v1", "Widget", m{"template": template}
	}
	return &unstructured.Unstructured{Object: o}
}

// life is what one cache told of an object.
type life struct {
	kind, name string
	last       any      // the last object, as the handler got it
	sum        uint64   // of last, when the handler got it
	told       []string // its notifications
	ended      bool
	gap        bool // revisions are missing, because of a list
}

// judge compares the notifications of two caches: client-go's informers, and ours.
type judge struct {
	listed [2]map[string]*lists // by resource

	mu       sync.Mutex // guards the fields below
	lives    map[string]*[2]*life
	equal    int // lives that were compared
	notified [2]int
	broken   []string
}

// lists are the lists of a resource that a cache has got.
type lists struct {
	mu      sync.Mutex // guards the fields below
	n       int64
	version int64 // the highest resourceVersion that a list can have
}

func (l *lists) add(version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	l.version = max(l.version, versionOf(version))
}

// cover reports whether an object may have come by a list, so that older revisions of it may be missing.
func (l *lists) cover(o client.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return versionOf(o.GetResourceVersion()) <= l.version
}

func versionOf(resourceVersion string) int64 {
	n, _ := strconv.ParseInt(resourceVersion, 10, 64)
	return n
}

func (j *judge) fail(format string, args ...any) {
	if len(j.broken) < 20 {
		j.broken = append(j.broken, fmt.Sprintf(format, args...))
	}
}

// watcher is the handler of one kind in one cache.
type watcher struct {
	*judge
	cache int
	kind  string
}

var cacheNames = [2]string{"client-go's informer", "our informer"}

func sumOf(obj any) uint64 {
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(obj); err != nil {
		panic(err)
	}
	return h.Sum64()
}

func (w watcher) OnAdd(obj any, _ bool) { w.note("add", nil, obj) }
func (w watcher) OnUpdate(old, obj any) { w.note("update", old, obj) }
func (w watcher) OnDelete(obj any) {
	if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		w.note("bury", nil, d.Obj)
		return
	}
	w.note("delete", nil, obj)
}

func (w watcher) note(verb string, old, obj any) {
	o, sum := obj.(client.Object), sumOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified[w.cache]++
	key := w.kind + "/" + string(o.GetUID())
	lives := w.lives[key]
	if lives == nil {
		lives = &[2]*life{}
		w.lives[key] = lives
	}
	l := lives[w.cache]
	if l == nil {
		l = &life{kind: w.kind, name: o.GetName()}
		lives[w.cache] = l
	}
	before := 0
	if l.last != nil {
		before = revisionOf(l.last.(client.Object))
	}
	if verb == "add" || verb == "update" {
		before++
	}
	if n := revisionOf(o); n != before || verb == "bury" {
		if l.gap = true; !w.listed[w.cache][resourceOf(w.kind)].cover(o) {
			w.fail("%s left out a revision of %s %s before %d", cacheNames[w.cache], w.kind, l.name, n)
		}
	}
	replaced := old != nil && old.(client.Object).GetUID() != o.GetUID()
	switch {
	case replaced: // A list has another object of the name.
		l.gap = true
		if was := w.lives[w.kind+"/"+string(old.(client.Object).GetUID())]; was != nil && was[w.cache] != nil {
			was[w.cache].gap, was[w.cache].ended = true, true
		}
	case (verb == "add") != (l.last == nil), l.ended, verb == "update" && l.last != old:
		w.fail("%s: %s %s of %s follows %v", cacheNames[w.cache], w.kind, verb, o.GetName(), l)
	case verb == "update" && sumOf(old) != l.sum:
		w.fail("%s: %s %s was changed after it was told", cacheNames[w.cache], w.kind, o.GetName())
	}
	l.last, l.sum, l.ended = obj, sum, verb == "delete" || verb == "bury"
	l.told = append(l.told, fmt.Sprintf("%s %s (%x)", verb, o.GetResourceVersion(), sum))
	if lives[0] != nil && lives[1] != nil && lives[0].ended && lives[1].ended {
		w.compare(lives)
		delete(w.lives, key)
	}
}

// compare compares what the caches told of an object: if no revisions are missing, the notifications are equal.
func (j *judge) compare(lives *[2]*life) {
	if lives[0].gap || lives[1].gap {
		return
	}
	if j.equal++; !slices.Equal(lives[0].told, lives[1].told) {
		j.fail("%s %s: %s told\n%q\n%s\n%q", lives[0].kind, lives[0].name, cacheNames[0], lives[0].told, cacheNames[1], lives[1].told)
	}
}

// settled reports whether the handlers of both caches have the same last versions.
func (j *judge) settled() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, lives := range j.lives {
		if a, b := lives[0], lives[1]; a != nil && b != nil && (a.ended != b.ended || !a.ended && revisionOf(a.last.(client.Object)) != revisionOf(b.last.(client.Object))) {
			return false
		}
	}
	return true
}

func revisionOf(o client.Object) int {
	n, _ := strconv.Atoi(o.GetAnnotations()[revision])
	return n
}

// listed is the transport of a cache. It notes the lists and the watches that begin with the state.
type listed struct {
	http.RoundTripper
	lists map[string]*lists // by resource
	now   func(resource string) (resourceVersion string, err error)
}

// RoundTrip asks for the current resourceVersion after the answer has begun: the server has read the state by then, and the
// informer has nothing of it yet.
func (l listed) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(r)
	q, resource := r.URL.Query(), path.Base(r.URL.Path)
	of := l.lists[resource]
	if err != nil || res.StatusCode != http.StatusOK || of == nil || q.Get("watch") == "true" && q.Get("sendInitialEvents") != "true" {
		return res, err
	}
	version, err := l.now(resource)
	if err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	of.add(version)
	return res, nil
}

// TestSoak runs a manager with README's configuration through storms of writes and faults, with
// transforms that change objects in place and with reads that see their writes, beside a cache with
// client-go's informers. Both caches end with the same objects. Each object has the same notifications
// with the same contents in both, except where a list has replaced some; no object changes after a
// handler has got it.
func TestSoak(t *testing.T) {
	klog.SetLogger(klog.New(nil))
	log.SetLogger(logr.Discard())
	specs, err := fault.ParseAll("disconnect:frames=241; half-frame:frames=263; reset:frames=167; duplicate-bookmark:frames=41; " +
		"drip:every=500ms,duration=20ms; stall:every=700ms,duration=50ms")
	if *soak >= 90*time.Second {
		specs, err = fault.Cycle(4*time.Second, 0), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	until := *soak * 3 / 4
	for i := range specs {
		specs[i].Until = fault.Duration(until)
	}
	inj := must(fault.New(specs, 1))(t)
	srv := must(apiserver.Open(apiserver.Options{Wrap: inj.Wrap, BookmarkInterval: 100 * time.Millisecond}))(t)
	url := must(srv.Start())(t)
	transport := &http.Transport{}
	ctx, cancel := context.WithTimeout(t.Context(), *soak+10*time.Minute)
	var running sync.WaitGroup
	t.Cleanup(func() { // after that of the caches
		cancel()
		inj.Stop()
		running.Wait()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})

	// The writer has no faults.
	direct := must(dynamic.NewForConfig(&rest.Config{Host: url, Transport: srv.Transport("writer"), QPS: -1}))(t)
	resources := map[string]schema.GroupVersionResource{
		"pods": v1.SchemeGroupVersion.WithResource("pods"), "services": v1.SchemeGroupVersion.WithResource("services"),
		"replicasets": appsv1.SchemeGroupVersion.WithResource("replicasets"), "widgets": widgetKind.GroupVersion().WithResource("widgets"),
	}
	crds := direct.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Create(ctx, widgetDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A few objects are there before.
	for name, gvr := range resources {
		for i := range 5 {
			if _, err := direct.Resource(gvr).Namespace("default").Create(ctx, body(name, fmt.Sprint("first-", i), 1, i), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}

	j := &judge{lives: map[string]*[2]*life{}, listed: [2]map[string]*lists{{}, {}}}
	now := func(resource string) (string, error) {
		l, err := direct.Resource(resources[resource]).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		return l.GetResourceVersion(), nil
	}
	var configs [2]*rest.Config
	for c := range configs {
		for resource := range resources {
			j.listed[c][resource] = &lists{}
		}
		configs[c] = &rest.Config{Host: url, Transport: listed{transport, j.listed[c], now}, QPS: -1}
	}
	opts, s := recommended, soakScheme()
	opts.Decode, opts.Decoder = *soakDecode, decode.Options{Scheme: s}
	intercepted, ours, err := informer.ForManager(configs[1], opts)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(intercepted, ctrl.Options{
		Scheme:     s,
		Cache:      cache.Options{NewInformer: ours, DefaultTransform: transform},
		Client:     client.Options{Cache: &client.CacheOptions{Unstructured: true, EnableReadYourWritesConsistency: new(true)}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var reconciled atomic.Int64
	for _, obj := range []client.Object{&v1.Pod{}, &appsv1.ReplicaSet{}, &Widget{}} {
		err := ctrl.NewControllerManagedBy(mgr).For(obj).Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			reconciled.Add(1)
			into := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
			return ctrl.Result{}, client.IgnoreNotFound(mgr.GetClient().Get(ctx, req.NamespacedName, into))
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	caches := [2]cache.Cache{startCache(t, configs[0], cache.Options{Scheme: s, DefaultTransform: transform}), mgr.GetCache()}
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	for c := range caches {
		for kind, obj := range soakKinds() {
			inf := must(caches[c].GetInformer(ctx, obj))(t)
			if _, err := inf.AddEventHandler(watcher{j, c, kind}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := inj.Start(); err != nil {
		t.Fatal(err)
	}

	// Storms: bursts of writes on each resource. Beside them, a client of the manager reads what it wrote.
	var writing sync.WaitGroup
	var writes, reads atomic.Int64
	end := time.Now().Add(until)
	seed := uint64(0)
	for name, gvr := range resources {
		seed++
		rng := rand.New(rand.NewPCG(seed, 33))
		writing.Go(func() {
			revisions := map[string]int{}
			for time.Now().Before(end) && ctx.Err() == nil {
				for range 1 + rng.IntN(40) {
					if err := write(ctx, direct.Resource(gvr).Namespace("default"), name, fmt.Sprint(name, "-", rng.IntN(30)), revisions, rng); err != nil {
						t.Errorf("the writer of %s: %v", name, err)
						return
					}
					writes.Add(1)
				}
				pause(ctx, time.Duration(rng.IntN(500))*time.Millisecond)
			}
		})
		writing.Go(func() {
			for n := 0; time.Now().Before(end) && ctx.Err() == nil; n++ {
				err := readYourWrites(ctx, mgr.GetClient(), s, body(name, fmt.Sprint("own-", name, "-", n), 1, n))
				switch refused := errWrite(""); {
				case err == nil:
					reads.Add(1)
				case errors.As(err, &refused):
				default:
					t.Errorf("read-your-writes of %s: %v", name, err)
					return
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	writing.Wait()

	// Both caches come to have what the server has.
	for kind, obj := range soakKinds() {
		list := must(direct.Resource(resources[resourceOf(kind)]).List(ctx, metav1.ListOptions{}))(t)
		want := map[string]string{}
		for i := range list.Items {
			want[list.Items[i].GetName()] = list.Items[i].GetResourceVersion()
		}
		var contents [2]map[string]uint64
		for c := range caches {
			for {
				versions := map[string]string{}
				contents[c] = map[string]uint64{}
				for _, o := range cached(ctx, t, caches[c], obj) {
					versions[o.GetName()], contents[c][o.GetName()] = o.GetResourceVersion(), sumOf(o)
				}
				if maps.Equal(versions, want) {
					break
				}
				if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
					t.Fatalf("%s of %s has %v, want %v", cacheNames[c], kind, versions, want)
				}
			}
		}
		if !maps.Equal(contents[0], contents[1]) {
			t.Errorf("the caches of %s differ:\n%v\n%v", kind, contents[0], contents[1])
		}
	}
	for !j.settled() {
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatal("a handler has not got the last state of its cache")
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, lives := range j.lives {
		for c, l := range lives {
			if other := lives[1-c]; l != nil && other == nil && !j.listed[1-c][resourceOf(l.kind)].cover(l.last.(client.Object)) {
				j.fail("%s %s was told by %s only", l.kind, l.name, cacheNames[c])
			}
		}
		if lives[0] != nil && lives[1] != nil {
			j.compare(lives)
		}
	}
	for _, b := range j.broken {
		t.Error(b)
	}
	if j.equal == 0 || reads.Load() == 0 || reconciled.Load() == 0 {
		t.Errorf("%d objects compared, %d reads, %d reconciles: nothing is tested", j.equal, reads.Load(), reconciled.Load())
	}
	var counts [2]int64
	for c := range counts {
		for _, l := range j.listed[c] {
			counts[c] += l.n
		}
	}
	t.Logf("%v: %d writes, %d reads of own writes, %d reconciles; notifications %v, lists %v, %d objects with equal notifications; faults %v",
		*soak, writes.Load(), reads.Load(), reconciled.Load(), j.notified, counts, j.equal, inj.Counts())
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func widgetDefinition() *unstructured.Unstructured {
	type m = map[string]any
	return &unstructured.Unstructured{Object: m{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": m{"name": "widgets.example.com"},
		"spec": m{
			"group": "example.com", "scope": "Namespaced", "names": m{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{m{"name": "v1", "served": true, "storage": true, "schema": m{"openAPIV3Schema": m{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}}}},
		},
	}}
}

// write creates, updates or deletes an object. revisions has those that exist.
func write(ctx context.Context, to dynamic.ResourceInterface, resource, name string, revisions map[string]int, rng *rand.Rand) error {
	n := revisions[name]
	var err error
	switch {
	case n == 0:
		_, err = to.Create(ctx, body(resource, name, 1, rng.IntN(100)), metav1.CreateOptions{})
	case rng.IntN(4) == 0:
		delete(revisions, name)
		now := int64(0)
		return to.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	default:
		var is *unstructured.Unstructured
		if is, err = to.Get(ctx, name, metav1.GetOptions{}); err == nil {
			next := body(resource, name, n+1, rng.IntN(100))
			next.SetResourceVersion(is.GetResourceVersion())
			next.SetUID(is.GetUID())
			if resource != "widgets" {
				next.Object["spec"] = is.Object["spec"] // Much of it is immutable.
			}
			_, err = to.Update(ctx, next, metav1.UpdateOptions{})
		}
	}
	revisions[name] = n + 1
	return err
}

// errWrite is the error of a write that a fault has met.
type errWrite string

func (e errWrite) Error() string { return string(e) }

// readYourWrites creates, updates and deletes an object, and expects each in the cache.
func readYourWrites(ctx context.Context, c client.Client, s *runtime.Scheme, u *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the cache has not caught up in 5 minutes"))
	defer cancel()
	typed, err := s.New(u.GroupVersionKind())
	if err != nil {
		return err
	}
	obj := typed.(client.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(obj)
	for _, verb := range []string{"create", "update", "delete"} {
		switch verb {
		case "create":
			err = c.Create(ctx, obj)
		case "update":
			obj.SetAnnotations(map[string]string{revision: "2"})
			err = c.Update(ctx, obj)
		case "delete":
			err = c.Delete(ctx, obj, client.GracePeriodSeconds(0))
		}
		if err != nil {
			return errWrite(err.Error())
		}
		into, err := s.New(u.GroupVersionKind())
		if err != nil {
			return err
		}
		got := into.(client.Object)
		err = c.Get(ctx, key, got)
		if verb == "delete" {
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("deleted, %s is read as %v: %w", key, got, err)
			}
			continue
		}
		if err != nil || got.GetResourceVersion() != obj.GetResourceVersion() {
			return fmt.Errorf("after %s at version %s, %s is read at %q: %w", verb, obj.GetResourceVersion(), key, got.GetResourceVersion(), err)
		}
	}
	return nil
}

// cached returns the objects of a cache that are like obj.
func cached(ctx context.Context, t *testing.T, from cache.Cache, obj client.Object, by ...client.ListOption) (all []client.Object) {
	t.Helper()
	gvk, err := apiutil.GVKForObject(obj, soakScheme())
	if err != nil {
		t.Fatal(err)
	}
	gvk.Kind += "List"
	var list runtime.Object
	switch obj.(type) {
	case *unstructured.Unstructured:
		list = &unstructured.UnstructuredList{}
	case *metav1.PartialObjectMetadata:
		list = &metav1.PartialObjectMetadataList{}
	default:
		if list, err = soakScheme().New(gvk); err != nil {
			t.Fatal(err)
		}
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	if err := from.List(ctx, list.(client.ObjectList), by...); err != nil {
		t.Fatal(err)
	}
	if err := meta.EachListItem(list, func(o runtime.Object) error { all = append(all, o.(client.Object)); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}
