package patch

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	if _, err := registry.Define(nil, object); err != nil {
		t.Fatal(err)
	}
}

// withWidgets returns a registry with the widgets of testdata, and their version v1.
func withWidgets(t testing.TB) (*resources.Registry, *resources.Resource) {
	t.Helper()
	registry := resources.New()
	crd, err := os.ReadFile("../testdata/widgets.yaml")
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
		if !res.Can(resources.Watch) || res.GVK.Kind == "CustomResourceDefinition" { // which needs versions
			continue
		}
		namespace := ""
		if res.Namespaced {
			namespace = "ns"
		}
		name := "x"
		if res.GVK.Kind == "IPAddress" {
			name = "10.0.0.1"
		}
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q}}`, res.GroupVersion(), res.GVK.Kind, name)
		r, err := e.Create(res, []byte(body), Request{Namespace: namespace, FieldValidation: "Strict"})
		if err != nil {
			t.Errorf("%s: %v", res, err)
			continue
		}
		r.Object.(metav1.Object).SetResourceVersion("1")
		body = strings.Replace(body, `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1)
		r, err = e.Patch(res, r.Object, []byte(body), Request{Namespace: namespace, Name: name, ContentType: string(types.ApplyYAMLPatchType), FieldManager: "m"})
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

func isStatus(t *testing.T, err error, body string) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if err != nil && (!ok || status.Status().Code < 400 || status.Status().Message == "") {
		t.Errorf("%q: %T %v", body, err, err)
	}
}

// FuzzPatch: a patch results in an object of the same name and uid, or in an API status. It changes no input.
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
		isStatus(t, err, string(body))
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
