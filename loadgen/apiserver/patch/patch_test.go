package patch

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"sigs.k8s.io/yaml"
	"watchlab/loadgen/apiserver/resources"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func lookup(t testing.TB, registry *resources.Registry, group, version, name string) *resources.Resource {
	t.Helper()
	res, ok := registry.Lookup(group, version, name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	return res
}

// define serves the custom resource of a manifest.
func define(t testing.TB, registry *resources.Registry, crd []byte) {
	t.Helper()
	object := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.UnmarshalStrict(crd, object); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Define(object); err != nil {
		t.Fatal(err)
	}
}

// withWidgets returns a registry with the widgets of testdata, and their version v1.
func withWidgets(t testing.TB) (*resources.Registry, *resources.Resource) {
	t.Helper()
	registry := resources.New()
	crd, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	define(t, registry, crd)
	return registry, lookup(t, registry, "example.com", "v1", "widgets")
}

// TestSystemFields: create, change and delete set the system's fields.
func TestSystemFields(t *testing.T) { synctest.Test(t, testSystemFields) }

func testSystemFields(t *testing.T) {
	noon := time.Now()
	e := New()
	e.Suffix = func() string { return "abcde" }
	pods := lookup(t, resources.New(), "", "v1", "pods")
	base := strings.Repeat("n", 70)
	r, err := e.Create(pods, []byte(`{"metadata":{"generateName":"`+base+`"},"spec":{"containers":[]}}`), Request{Namespace: "ns", FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	pod := r.Object.(*corev1.Pod)
	if want := base[:58] + "abcde"; pod.Name != want {
		t.Errorf("generated name %s, want %s", pod.Name, want)
	}
	if !pod.CreationTimestamp.Time.Equal(noon) || pod.UID == "" || pod.Generation != 1 || pod.Namespace != "ns" || pod.ResourceVersion != "" {
		t.Errorf("metadata %+v", pod.ObjectMeta)
	}
	if pod.Kind != "Pod" || pod.APIVersion != "v1" || !pod.ManagedFields[0].Time.Time.Equal(noon) {
		t.Errorf("kind %v, managed at %v", pod.TypeMeta, pod.ManagedFields[0].Time)
	}

	time.Sleep(time.Hour)
	now := time.Now()
	pod.ResourceVersion = "5"
	pod.Finalizers = []string{"example.com/a"}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"creationTimestamp": nil, "generation": 9, "labels": map[string]string{"a": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err = e.Patch(pods, pod, body, Request{Namespace: "ns", Name: pod.Name, ContentType: "application/merge-patch+json", FieldManager: "other"})
	if err != nil {
		t.Fatal(err)
	}
	changed := r.Object.(*corev1.Pod)
	if !changed.CreationTimestamp.Time.Equal(noon) || changed.Generation != 1 || changed.ResourceVersion != "5" {
		t.Errorf("metadata %+v", changed.ObjectMeta)
	}
	for _, m := range changed.ManagedFields {
		if want := map[string]time.Time{"m": noon, "other": now}[m.Manager]; !m.Time.Time.Equal(want) {
			t.Errorf("%s managed at %v, want %v", m.Manager, m.Time, want)
		}
	}

	r, err = e.Delete(pods, changed, &metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dying := r.Object.(*corev1.Pod)
	if r.Gone || !dying.DeletionTimestamp.Time.Equal(now) || dying.Generation != 2 || *dying.DeletionGracePeriodSeconds != 0 {
		t.Errorf("deleted: %+v", r)
	}
	time.Sleep(time.Hour)
	if r, err = e.Delete(pods, dying, &metav1.DeleteOptions{}); err != nil || !r.Unchanged || !r.Object.(*corev1.Pod).DeletionTimestamp.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("deleted again: %+v, %v", r, err)
	}
	r, err = e.Patch(pods, dying, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), Request{Namespace: "ns", Name: pod.Name, ContentType: "application/json-patch+json"})
	if err != nil || !r.Gone {
		t.Errorf("without its finalizer: %+v, %v", r, err)
	}
	dying.Finalizers = nil
	if r, err = e.Delete(pods, dying, &metav1.DeleteOptions{}); err != nil || !r.Gone {
		t.Errorf("deleted without finalizers: %+v, %v", r, err)
	}
}

// TestEncodings decodes the same object from all encodings.
func TestEncodings(t *testing.T) {
	registry, widgets := withWidgets(t)
	e := New()
	leases := lookup(t, registry, "coordination.k8s.io", "v1", "leases")
	typed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("me"), LeaseDurationSeconds: new(int32(15))}}
	typed.SetGroupVersionKind(leases.GVK)
	untyped := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x", "namespace": "ns"}, "spec": map[string]any{"size": "small", "replicas": int64(3)}}}
	untyped.SetGroupVersionKind(widgets.GVK)
	for _, tt := range []struct {
		res   *resources.Resource
		obj   runtime.Object
		types []string
	}{
		{leases, typed, []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR}},
		{widgets, untyped, []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeCBOR}},
	} {
		var first runtime.Object
		for _, mediaType := range tt.types {
			info, ok := runtime.SerializerInfoForMediaType(resources.Codecs.SupportedMediaTypes(), mediaType)
			if !ok {
				t.Fatalf("no %s", mediaType)
			}
			body, err := runtime.Encode(info.Serializer, tt.obj)
			if err != nil {
				t.Fatal(err)
			}
			r, err := e.Create(tt.res, body, Request{Namespace: "ns", ContentType: mediaType + "; charset=utf-8", FieldManager: "m", FieldValidation: "Strict"})
			if err != nil {
				t.Errorf("%s: %v", mediaType, err)
				continue
			}
			o := r.Object
			o.SetUID("")
			o.SetCreationTimestamp(metav1.Time{})
			o.SetManagedFields(nil)
			if first == nil {
				first = r.Object
			} else if !reflect.DeepEqual(first, r.Object) {
				t.Errorf("%s: %v, want %v", mediaType, r.Object, first)
			}
		}
	}
	if _, err := e.Create(widgets, nil, Request{ContentType: runtime.ContentTypeProtobuf}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("a custom resource in protobuf: %v", err)
	}
}

// TestApplyCBOR sends a server-side apply in CBOR.
func TestApplyCBOR(t *testing.T) {
	e := New()
	cms := lookup(t, resources.New(), "", "v1", "configmaps")
	info, ok := runtime.SerializerInfoForMediaType(resources.Codecs.SupportedMediaTypes(), runtime.ContentTypeCBOR)
	if !ok {
		t.Fatal("no CBOR")
	}
	body, err := runtime.Encode(info.Serializer, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"k": "v"}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Patch(cms, nil, body, Request{Namespace: "ns", Name: "c", ContentType: string(types.ApplyCBORPatchType), FieldManager: "m"})
	if err != nil || r.Object.(*corev1.ConfigMap).Data["k"] != "v" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestUntypedStore edits objects that a store keeps untyped.
func TestUntypedStore(t *testing.T) {
	e := New()
	deployments := lookup(t, resources.New(), "apps", "v1", "deployments")
	current := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "d", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": int64(3)},
		"spec": map[string]any{"replicas": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}},
	}}
	r, err := e.Patch(deployments, current, []byte(`{"spec":{"replicas":4}}`), Request{Namespace: "ns", Name: "d", ContentType: "application/strategic-merge-patch+json"})
	if err != nil {
		t.Fatal(err)
	}
	d := r.Object.(*appsv1.Deployment)
	if *d.Spec.Replicas != 4 || d.Generation != 4 || d.ResourceVersion != "7" {
		t.Errorf("%+v", d)
	}
	scale, err := e.Scale(deployments, current)
	if err != nil || scale.Spec.Replicas != 2 || scale.Status.Selector != "a=b" || scale.ResourceVersion != "7" {
		t.Errorf("scale %+v, %v", scale, err)
	}
}

// TestDefinitions edits CustomResourceDefinitions: they get a uid and a generation, and
// their status changes on its own path only.
func TestDefinitions(t *testing.T) {
	e := New()
	crds := lookup(t, resources.New(), "apiextensions.k8s.io", "v1", "customresourcedefinitions")
	body, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Create(crds, body, Request{ContentType: runtime.ContentTypeYAML, FieldValidation: "Strict"})
	if err != nil {
		t.Fatal(err)
	}
	u := r.Object.(*apiextensionsv1.CustomResourceDefinition)
	if u.Spec.Conversion.Strategy != "None" || u.GetGeneration() != 1 || u.GetNamespace() != "" {
		t.Errorf("%v", u)
	}
	resources.Establish(u, time.Now())
	u.SetResourceVersion("3")
	r, err = e.Patch(crds, u, []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"labels":{"a":"b"}},"status":{}}`),
		Request{Name: u.GetName(), ContentType: "application/merge-patch+json"})
	if err != nil {
		t.Fatal(err)
	}
	changed := r.Object.(*apiextensionsv1.CustomResourceDefinition)
	if changed.GetGeneration() != 1 || !reflect.DeepEqual(changed.Status, u.Status) {
		t.Errorf("generation %d, status %v", changed.GetGeneration(), changed.Status)
	}
}

// TestVersions applies to one object in two versions of its custom resource. The
// managers of both keep their fields.
func TestVersions(t *testing.T) {
	registry, v1 := withWidgets(t)
	beta := lookup(t, registry, "example.com", "v1beta1", "widgets")
	e := New()
	apply := func(res *resources.Resource, current runtime.Object, manager, spec string) *unstructured.Unstructured {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":"Widget","metadata":{"name":"w"},"spec":%s}`, res.GroupVersion(), spec)
		r, err := e.Patch(res, current, []byte(body), Request{Namespace: "ns", Name: "w", ContentType: string(types.ApplyYAMLPatchType), FieldManager: manager})
		if err != nil {
			t.Fatal(err)
		}
		return r.Object.(*unstructured.Unstructured)
	}
	w := apply(v1, nil, "one", `{"size":"small","color":"red"}`)
	w.SetResourceVersion("1")
	w = apply(beta, w, "two", `{"replicas":5}`)
	if w.GetAPIVersion() != "example.com/v1beta1" {
		t.Errorf("the answer is in %s", w.GetAPIVersion())
	}
	w = apply(v1, w, "one", `{"size":"small"}`)
	if got := fmt.Sprint(w.Object["spec"]); got != "map[replicas:5 size:small]" {
		t.Errorf("spec %s", got)
	}
}

// TestRedefined changes a definition. Validation follows the new schema; no cache keeps
// the old one.
func TestRedefined(t *testing.T) {
	registry, _ := withWidgets(t)
	e := New()
	crd, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"size":"huge"}}`)
	for i := range 10 {
		sizes, valid := "[small, large]", false
		if i%2 == 1 {
			sizes, valid = "[small, huge]", true
		}
		define(t, registry, []byte(strings.Replace(string(crd), "[small, large]", sizes, 1)))
		widgets := lookup(t, registry, "example.com", "v1", "widgets")
		if _, err := e.Create(widgets, body, Request{Namespace: "ns"}); (err == nil) != valid {
			t.Errorf("sizes %s: %v", sizes, err)
		}
	}
	n := 0
	e.managers.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d managers are kept", n)
	}
}

// TestStatusErrors: invalid requests cause API statuses, never a panic or another error.
func TestStatusErrors(t *testing.T) {
	registry, widgets := withWidgets(t)
	e := New()
	all := []*resources.Resource{widgets, lookup(t, registry, "", "v1", "pods"), lookup(t, registry, "apiextensions.k8s.io", "v1", "customresourcedefinitions")}
	for _, res := range all {
		current := res.NewObject()
		current.SetName("n")
		current.SetUID("u")
		for _, body := range []string{"", "null", "1", `"x"`, "[]", "{}", `{"metadata":5}`, `{"metadata":{"name":5}}`, `{"metadata":null}`, `{"kind":5}`, `{"spec":[]}`, `{"spec":{"parts":[null,5]}}`, `{"metadata":{"managedFields":[{"manager":"x","fieldsV1":{"f:a":5}}]}}`, "\xff", `[{"op":"add"}]`, `[{"op":"replace","path":"","value":null}]`, `[{"op":"replace","path":"/metadata","value":null}]`} {
			requests := []Request{{}, {ContentType: runtime.ContentTypeYAML}, {ContentType: runtime.ContentTypeCBOR}, {ContentType: runtime.ContentTypeProtobuf}}
			for _, req := range requests {
				_, err := e.Create(res, []byte(body), req)
				isStatus(t, err, "create", res, req, body)
				req.Name = "n"
				for _, sub := range []string{"", resources.Status, resources.Scale} {
					req.Subresource = sub
					_, err = e.Update(res, current, []byte(body), req)
					isStatus(t, err, "update", res, req, body)
					_, err = e.Update(res, nil, []byte(body), req)
					isStatus(t, err, "update nothing", res, req, body)
				}
			}
			for _, kind := range []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType, types.ApplyCBORPatchType, "text/plain", ""} {
				for _, sub := range []string{"", resources.Status, resources.Scale} {
					req := Request{Name: "n", ContentType: string(kind), FieldManager: "m", Subresource: sub}
					_, err := e.Patch(res, current, []byte(body), req)
					isStatus(t, err, "patch", res, req, body)
					_, err = e.Patch(res, nil, []byte(body), req)
					isStatus(t, err, "patch nothing", res, req, body)
				}
			}
		}
	}
}

func isStatus(t *testing.T, err error, verb string, res *resources.Resource, req Request, body string) {
	t.Helper()
	if err == nil {
		return
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code < 400 || status.Status().Message == "" {
		t.Errorf("%s %s %+v %q: %T %v", verb, res, req, body, err, err)
	}
}

// TestInputsUnchanged draws objects and patches. The editor changes no input, and a change
// of its result changes no input.
func TestInputsUnchanged(t *testing.T) {
	registry, widgets := withWidgets(t)
	deployments := lookup(t, registry, "apps", "v1", "deployments")
	e := New()
	rapid.Check(t, func(rt *rapid.T) {
		res, kind := deployments, types.StrategicMergePatchType
		body := `{"metadata":{"name":"x","labels":{"a":"b"},"finalizers":["a.b/c"]},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"spec":{"containers":[{"name":"c"}]}}}}`
		patches := []string{`{"spec":{"replicas":2}}`, `{"metadata":{"labels":{"x":"y"}}}`, `{"status":{"replicas":3}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"d"}]}}}}`, `{"metadata":{"finalizers":null}}`}
		if rapid.Bool().Draw(rt, "custom") {
			res, kind = widgets, types.MergePatchType
			body = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x","labels":{"a":"b"}},"spec":{"size":"small","free":{"a":[1,{"b":2}]},"parts":[{"name":"p"}]}}`
			patches = []string{`{"spec":{"replicas":2}}`, `{"metadata":{"labels":{"x":"y"}}}`, `{"status":{"phase":"p"}}`, `{"spec":{"parts":[{"name":"p"},{"name":"q"}]}}`, `{"spec":{"free":null}}`}
		}
		created, err := e.Create(res, []byte(body), Request{Namespace: "ns", FieldManager: "m"})
		if err != nil {
			rt.Fatal(err)
		}
		current := created.Object
		for i := range 4 {
			current.(metav1.Object).SetResourceVersion(fmt.Sprint(i + 1))
			kept := current.DeepCopyObject()
			req := Request{Namespace: "ns", Name: "x", ContentType: string(kind), FieldManager: rapid.SampledFrom([]string{"m", "n"}).Draw(rt, "manager")}
			req.Subresource = rapid.SampledFrom([]string{"", resources.Status}).Draw(rt, "subresource")
			r, err := e.Patch(res, current, []byte(rapid.SampledFrom(patches).Draw(rt, "patch")), req)
			if err != nil {
				rt.Fatal(err)
			}
			scribble(r.Object)
			if !reflect.DeepEqual(kept, current) {
				rt.Fatalf("the patched object has changed\n%v\n%v", kept, current)
			}
			next, err := e.Patch(res, current, []byte(`{}`), req)
			if err != nil || !next.Unchanged {
				rt.Fatalf("an empty patch: %+v, %v", next, err)
			}
		}
	})
}

// scribble changes all parts of an object.
func scribble(obj runtime.Object) {
	m := obj.(metav1.Object)
	for k := range m.GetLabels() {
		m.GetLabels()[k] = "scribbled"
	}
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		var over func(any)
		over = func(x any) {
			switch x := x.(type) {
			case map[string]any:
				for _, v := range x {
					over(v)
				}
				x["scribbled"] = true
			case []any:
				for i, v := range x {
					over(v)
					x[i] = "scribbled"
				}
			}
		}
		over(o.Object)
	case *appsv1.Deployment:
		*o.Spec.Replicas = 99
		o.Spec.Selector.MatchLabels["scribbled"] = "x"
		for i := range o.Spec.Template.Spec.Containers {
			o.Spec.Template.Spec.Containers[i].Name = "scribbled"
		}
		for i := range o.Finalizers {
			o.Finalizers[i] = "scribbled"
		}
	}
}

// TestConcurrent uses one editor from several goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	_, widgets := withWidgets(t)
	e := New()
	r, err := e.Create(widgets, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"size":"small"}}`), Request{Namespace: "ns"})
	if err != nil {
		t.Fatal(err)
	}
	r.Object.(metav1.Object).SetResourceVersion("1")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				if _, err := e.Patch(widgets, r.Object, []byte(`{"spec":{"replicas":`+fmt.Sprint(i)+`}}`), Request{Namespace: "ns", Name: "x", ContentType: "application/merge-patch+json"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestEveryBuiltin creates an object of each built-in resource, with a name only, and
// applies to it. Types and schemas must match.
func TestEveryBuiltin(t *testing.T) {
	registry := resources.New()
	for _, gv := range []schema.GroupVersion{{Group: "resource.k8s.io", Version: "v1beta2"}, {Group: "coordination.k8s.io", Version: "v1beta1"}, {Group: "extensions", Version: "v1beta1"}} {
		if !registry.Serve(gv) {
			t.Fatalf("no %s", gv)
		}
	}
	e := New()
	for _, res := range registry.All() {
		if !res.Storable() {
			continue
		}
		namespace := ""
		if res.Namespaced {
			namespace = "ns"
		}
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"x"}}`, res.GroupVersion(), res.GVK.Kind)
		r, err := e.Create(res, []byte(body), Request{Namespace: namespace, FieldValidation: "Strict"})
		if err != nil {
			t.Errorf("%s: %v", res, err)
			continue
		}
		r.Object.(metav1.Object).SetResourceVersion("1")
		body = strings.Replace(body, `"name":"x"`, `"name":"x","labels":{"a":"b"}`, 1)
		r, err = e.Patch(res, r.Object, []byte(body), Request{Namespace: namespace, Name: "x", ContentType: string(types.ApplyYAMLPatchType), FieldManager: "m"})
		if err != nil {
			t.Errorf("%s: %v", res, err)
			continue
		}
		managed := r.Object.(metav1.Object).GetManagedFields()
		if len(managed) == 0 || managed[0].Manager != "m" {
			t.Errorf("%s: managed %v", res, managed)
		}
	}
}

func FuzzPatch(f *testing.F) {
	for _, seed := range []string{`{"spec":{"replicas":2}}`, `[{"op":"add","path":"/spec/tags","value":["a"]}]`, "spec: {size: large}", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"}}`, `{"metadata":{"managedFields":[]}}`} {
		for kind := range 5 {
			f.Add(kind, []byte(seed))
		}
	}
	f.Add(4, []byte(`{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","$patch":"replace","ports":[{"containerPort":1}]}],"$retainKeys":["containers"]}}`))
	f.Add(4, []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a.b/c"],"labels":null}}`))
	registry, widgets := withWidgets(f)
	e := New()
	create := func(res *resources.Resource, body string) runtime.Object {
		created, err := e.Create(res, []byte(body), Request{Namespace: "ns", FieldManager: "m"})
		if err != nil {
			f.Fatal(err)
		}
		created.Object.(metav1.Object).SetResourceVersion("1")
		return created.Object
	}
	widget := create(widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"size":"small"}}`)
	pods := lookup(f, registry, "", "v1", "pods")
	pod := create(pods, `{"metadata":{"name":"x","finalizers":["a.b/c"],"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}}`)
	kinds := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType, types.ApplyCBORPatchType, types.StrategicMergePatchType}
	f.Fuzz(func(t *testing.T, kind int, body []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		res, live := widgets, widget
		req := Request{Namespace: "ns", Name: "x", ContentType: string(kinds[uint(kind)%uint(len(kinds))]), FieldManager: "m"}
		if uint(kind)%10 > 3 { // a strategic merge patch, and each second of the others
			res, live = pods, pod
		}
		kept := live.DeepCopyObject()
		r, err := e.Patch(res, live, body, req)
		isStatus(t, err, "patch", res, req, string(body))
		if !reflect.DeepEqual(kept, live) {
			t.Fatal("the patched object has changed")
		}
		if err != nil {
			return
		}
		m := r.Object.(metav1.Object)
		if m.GetName() != "x" || m.GetUID() != kept.(metav1.Object).GetUID() || m.GetResourceVersion() != "1" {
			t.Fatalf("%v", r.Object)
		}
		if _, err := json.Marshal(r.Object); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkEditor(b *testing.B) {
	registry := resources.New()
	e := New()
	leases := lookup(b, registry, "coordination.k8s.io", "v1", "leases")
	pods := lookup(b, registry, "", "v1", "pods")
	pod := []byte(`{"metadata":{"name":"x"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	made, err := e.Create(pods, pod, Request{Namespace: "ns", FieldManager: "m"})
	if err != nil {
		b.Fatal(err)
	}
	made.Object.(metav1.Object).SetResourceVersion("1")
	lease, err := e.Create(leases, []byte(`{"metadata":{"name":"x"},"spec":{"holderIdentity":"a"}}`), Request{Namespace: "ns", FieldManager: "m"})
	if err != nil {
		b.Fatal(err)
	}
	lease.Object.(metav1.Object).SetResourceVersion("1")
	status := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	renewed := []byte(`{"metadata":{"name":"x","resourceVersion":"1"},"spec":{"holderIdentity":"a","renewTime":"2026-11-21T12:00:00.000000Z"}}`)
	for _, bb := range []struct {
		name string
		do   func() (Result, error)
	}{
		{"write=create/kind=Pod", func() (Result, error) {
			return e.Create(pods, pod, Request{Namespace: "ns", FieldManager: "m"})
		}},
		{"write=status/kind=Pod", func() (Result, error) {
			return e.Patch(pods, made.Object, status, Request{Namespace: "ns", Name: "x", Subresource: "status", ContentType: string(types.StrategicMergePatchType), FieldManager: "k"})
		}},
		{"write=update/kind=Lease", func() (Result, error) {
			return e.Update(leases, lease.Object, renewed, Request{Namespace: "ns", Name: "x", FieldManager: "m"})
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bb.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
