package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	clientfeatures "k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// open starts a server of storms.
func open(t testing.TB, opts Options, storms ...*storm.Storm) *testServer {
	t.Helper()
	var prepared []*Prepared
	for _, s := range storms {
		p, err := Prepare(s, wire.JSON)
		if err != nil {
			t.Fatal(err)
		}
		prepared = append(prepared, p)
	}
	srv, err := Open(opts, prepared...)
	if err != nil {
		t.Fatal(err)
	}
	return started(t, srv)
}

// encodings are the encodings of clients.
var encodings = []string{wire.ContentJSON, wire.ContentProtobuf, wire.ContentCBOR}

// speaking returns a client's configuration for an encoding.
func (s *testServer) speaking(t *testing.T, encoding string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.AcceptContentTypes, config.ContentType = encoding, encoding
	if encoding == wire.ContentCBOR {
		featuretesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
		featuretesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	}
	return config
}

func configMap(name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}}, Data: map[string]string{"a": "1"}}
}

// A typed client performs all operations on an object, in each encoding.
func TestTypedClient(t *testing.T) {
	for _, encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			srv := open(t, Options{})
			cs, err := kubernetes.NewForConfig(srv.speaking(t, encoding))
			if err != nil {
				t.Fatal(err)
			}
			ctx, c := t.Context(), cs.CoreV1().ConfigMaps("default")
			made, err := c.Create(ctx, configMap("a"), metav1.CreateOptions{FieldManager: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || len(made.ManagedFields) != 1 {
				t.Errorf("created %+v", made.ObjectMeta)
			}
			if _, err := c.Create(ctx, configMap("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("created twice: %v", err)
			}
			got, err := c.Get(ctx, "a", metav1.GetOptions{})
			if err != nil || !cmp.Equal(made, got) {
				t.Errorf("got, %v (-created +got):\n%s", err, cmp.Diff(made, got))
			}
			changed := got.DeepCopy()
			changed.Data["a"] = "2"
			updated, err := c.Update(ctx, changed, metav1.UpdateOptions{})
			if err != nil || updated.Data["a"] != "2" || updated.ResourceVersion == got.ResourceVersion || updated.UID != got.UID {
				t.Errorf("updated %+v, %v", updated, err)
			}
			if _, err := c.Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("updated an old version: %v", err)
			}
			if same, err := c.Update(ctx, updated, metav1.UpdateOptions{}); err != nil || same.ResourceVersion != updated.ResourceVersion {
				t.Errorf("an update that changes nothing: %v, %v", same, err)
			}
			for kind, body := range map[types.PatchType]string{
				types.JSONPatchType:           `[{"op":"add","path":"/data/json","value":"x"}]`,
				types.MergePatchType:          `{"data":{"merge":"x"}}`,
				types.StrategicMergePatchType: `{"data":{"strategic":"x"}}`,
			} {
				if p, err := c.Patch(ctx, "a", kind, []byte(body), metav1.PatchOptions{}); err != nil || len(p.Data) < 2 {
					t.Errorf("%s: %v, %v", kind, p, err)
				}
			}
			applied, err := c.Apply(ctx, applycorev1.ConfigMap("b", "default").WithData(map[string]string{"x": "y"}), metav1.ApplyOptions{FieldManager: "me"})
			if err != nil || applied.Data["x"] != "y" {
				t.Errorf("applied %v, %v", applied, err)
			}
			_, err = c.Apply(ctx, applycorev1.ConfigMap("b", "default").WithData(map[string]string{"x": "z"}), metav1.ApplyOptions{FieldManager: "other"})
			if !apierrors.IsConflict(err) {
				t.Errorf("apply of another manager's field: %v", err)
			}
			dry, err := c.Create(ctx, configMap("c"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil || dry.Name != "c" {
				t.Errorf("a dry run: %v, %v", dry, err)
			}
			list, err := c.List(ctx, metav1.ListOptions{LabelSelector: "app=x"})
			if err != nil || len(list.Items) != 1 || list.Items[0].Data["json"] != "x" {
				t.Errorf("list %+v, %v", list, err)
			}
			wrong := types.UID("wrong")
			if err := c.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}}); !apierrors.IsConflict(err) {
				t.Errorf("deleted another: %v", err)
			}
			if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("deleted twice: %v", err)
			}
			if err := c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
			if list, err := c.List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
				t.Errorf("after all was deleted: %v, %v", list, err)
			}
		})
	}
}

// Deletion marks an object with finalizers. The object is gone after the removal of the last one.
func TestFinalizers(t *testing.T) {
	srv := open(t, Options{})
	ctx, c := t.Context(), srv.clientset(t).CoreV1().ConfigMaps("default")
	held := configMap("held")
	held.Finalizers = []string{"example.com/hold"}
	if _, err := c.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := c.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || got.DeletionTimestamp == nil {
		t.Fatalf("after its deletion: %+v, %v", got, err)
	}
	if _, err := c.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its last finalizer: %v", err)
	}
	last := 0
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		e := <-w.ResultChan()
		version, _ := strconv.Atoi(e.Object.(*v1.ConfigMap).ResourceVersion)
		if e.Type != want || version <= last {
			t.Errorf("event %s at %d after %d, want %s", e.Type, version, last, want)
		}
		last = version
	}
}

func TestNamespaces(t *testing.T) {
	srv := open(t, Options{}, pods(40))
	ctx, c := t.Context(), srv.clientset(t).CoreV1()
	list, err := c.Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	if want := []string{"default", "kube-node-lease", "kube-public", "kube-system", "ns-0", "ns-1"}; !cmp.Equal(want, names) {
		t.Errorf("namespaces %v, want %v", names, want)
	}
	if _, err := c.ConfigMaps("new").Create(ctx, configMap("a"), metav1.CreateOptions{}); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `namespaces "new"`) {
		t.Errorf("in a missing namespace: %v", err)
	}
	if _, err := c.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "held"} {
		cm := configMap(name)
		if name == "held" {
			cm.Finalizers = []string{"example.com/hold"}
		}
		if _, err := c.ConfigMaps("new").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Namespaces().Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ns, err := c.Namespaces().Get(ctx, "new", metav1.GetOptions{})
	if err != nil || ns.Status.Phase != v1.NamespaceTerminating || ns.DeletionTimestamp == nil {
		t.Errorf("while a finalizer holds an object: %+v, %v", ns, err)
	}
	if left, err := c.ConfigMaps("new").List(ctx, metav1.ListOptions{}); err != nil || len(left.Items) != 1 {
		t.Errorf("remaining objects: %v, %v", left, err)
	}
	_, err = c.ConfigMaps("new").Create(ctx, configMap("b"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		t.Errorf("in a namespace that is being deleted: %v", err)
	}
	if _, err := c.ConfigMaps("new").Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Namespaces().Get(ctx, "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the last object is gone: %v", err)
	}
}

func TestSubresources(t *testing.T) {
	srv := open(t, Options{})
	ctx, cs := t.Context(), srv.clientset(t)
	replicas := int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}}
	d, err := cs.AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Status.ReadyReplicas = 1
	replicas = 7
	d.Spec.Replicas = &replicas
	got, err := cs.AppsV1().Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if err != nil || got.Status.ReadyReplicas != 1 || *got.Spec.Replicas != 2 || got.Generation != 1 {
		t.Errorf("status %+v, %v", got, err)
	}
	scale, err := cs.AppsV1().Deployments("default").GetScale(ctx, "d", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 2 {
		t.Fatalf("scale %+v, %v", scale, err)
	}
	scale.Spec.Replicas = 5
	after, err := cs.AppsV1().Deployments("default").UpdateScale(ctx, "d", scale, metav1.UpdateOptions{})
	if err != nil || after.Spec.Replicas != 5 || after.ResourceVersion == scale.ResourceVersion {
		t.Errorf("scaled %+v, %v", after, err)
	}
	if _, err := cs.AppsV1().Deployments("default").UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old scale: %v", err)
	}

	bare := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
	if _, err := cs.AppsV1().Deployments("default").Create(ctx, bare, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if scale, err := cs.AppsV1().Deployments("default").GetScale(ctx, "bare", metav1.GetOptions{}); err != nil || scale.Spec.Replicas != 1 {
		t.Errorf("scale without replicas %+v, %v", scale, err)
	}

	p := cs.CoreV1().Pods("default")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	pod, err = p.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(pod.Name, "p-") || pod.Status.Phase != v1.PodPending {
		t.Fatalf("a pod with a generated name: %+v, %v", pod, err)
	}
	bind := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := p.Bind(ctx, bind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Bind(ctx, bind, metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("bound twice: %v", err)
	}
	if pod, err = p.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil || pod.Spec.NodeName != "n" {
		t.Errorf("a bound pod: %+v, %v", pod, err)
	}
	if err := p.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}); err != nil {
		t.Error(err)
	}
	if _, err := p.Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its eviction: %v", err)
	}
	r, err := cs.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
	if err != nil || !r.Status.Allowed {
		t.Errorf("a review: %+v, %v", r, err)
	}
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    selectableFields: [{jsonPath: .spec.color}]
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, minimum: 0}, color: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v2
    served: true
    storage: false
    selectableFields: [{jsonPath: .spec.color}]
    schema: *schema
`

func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"size": size, "color": []string{"red", "blue"}[size&1]},
	}}
}

// A custom resource is served in all its versions, to informers in JSON and CBOR.
func TestCustomResources(t *testing.T) {
	v1s := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	v2s := v1s.GroupResource().WithVersion("v2")
	for _, encoding := range []string{wire.ContentJSON, wire.ContentCBOR} {
		t.Run(encoding, func(t *testing.T) {
			srv := open(t, Options{})
			srv.defineCRD(t, widgets)
			c, err := dynamic.NewForConfig(srv.speaking(t, encoding))
			if err != nil {
				t.Fatal(err)
			}
			ctx, old, other := t.Context(), c.Resource(v1s).Namespace("default"), c.Resource(v2s).Namespace("default")
			for i := range int64(4) {
				if _, err := old.Create(ctx, widget(fmt.Sprintf("w-%d", i), i), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := old.Create(ctx, widget("bad", -1), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("against the schema: %v", err)
			}
			list, err := other.List(ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
			if err != nil || len(list.Items) != 4/2 || list.GetAPIVersion() != "example.com/v2" || list.Items[0].GetAPIVersion() != "example.com/v2" {
				t.Errorf("in v2: %v, %v", list, err)
			}
			w, err := other.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			// A generated client's options are in the version of its own group.
			for body, want := range map[string]int{
				`{"apiVersion":"example.com/v1","kind":"DeleteOptions","preconditions":{"uid":"other"}}`: http.StatusConflict,
				`{"apiVersion":"example.com/v1","kind":"Widget"}`:                                        http.StatusBadRequest,
			} {
				path := "/apis/example.com/v1/namespaces/default/widgets/w-1"
				if code, answer := srv.ask(http.MethodDelete, path, "", wire.ContentJSON, body); code != want {
					t.Errorf("DELETE with %s: %d %s", body, code, answer)
				}
			}
			if err := old.Delete(ctx, "w-1", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if e := <-w.ResultChan(); e.Type != watch.Deleted || e.Object.(*unstructured.Unstructured).GetAPIVersion() != "example.com/v2" {
				t.Errorf("event %v", e)
			}
			crds := c.Resource(definitionResource)
			crd, err := crds.Get(ctx, "widgets.example.com", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if established, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions"); len(established) == 0 {
				t.Errorf("definition %v isn't established", crd)
			}
			if err := crds.Delete(ctx, "widgets.example.com", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := old.List(ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after its definition has gone: %v", err)
			}
		})
	}
}

// A controller writes to a storm's objects during the storm. Informers of all encodings
// end with the server's state, and versions only rise.
func TestWritesDuringStorm(t *testing.T) {
	for _, encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			s := pods(600)
			srv := open(t, Options{}, s)
			config := srv.speaking(t, encoding)
			cs, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			lw := cache.ToListWatcherWithWatchListSemantics(cache.NewListWatchFromClient(cs.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything()), cs.CoreV1().RESTClient())
			inf := cache.NewSharedIndexInformer(lw, &v1.Pod{}, 0, cache.Indexers{})
			progress := &progress{}
			progress.cond = sync.NewCond(&progress.mu)
			rising := map[string]int{}
			see := func(o any) {
				if p, ok := o.(*v1.Pod); ok {
					version, _ := strconv.Atoi(p.ResourceVersion)
					if version <= rising[p.Namespace+"/"+p.Name] {
						t.Errorf("%s goes from version %d to %d", p.Name, rising[p.Namespace+"/"+p.Name], version)
					}
					rising[p.Namespace+"/"+p.Name] = version
				}
				progress.see(o)
			}
			if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }, DeleteFunc: see}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			var wg sync.WaitGroup
			wg.Go(func() { inf.RunWithContext(ctx) })
			defer wg.Wait()
			defer cancel()
			if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
				t.Fatal("not synced")
			}
			wrote := 0
			for seq := s.Initial + 1; seq <= len(s.Events); seq++ {
				srv.Release(uint64(seq))
				if seq%7 != 0 {
					continue
				}
				list, err := cs.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for i := range list.Items[:min(2, len(list.Items))] {
					p := &list.Items[i]
					if i == 0 && seq%2 == 0 {
						err = cs.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
					} else {
						_, err = cs.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
							[]byte(fmt.Sprintf(`{"metadata":{"labels":{"wrote":"%d"}}}`, seq)), metav1.PatchOptions{})
					}
					if err != nil {
						t.Fatal(err)
					}
					wrote++
				}
			}
			list, err := cs.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]uint64{}
			for _, p := range list.Items {
				want[storm.ObjectKey(p.Namespace, p.Name)], _ = strconv.ParseUint(p.ResourceVersion, 10, 64)
			}
			progress.await(ctx, t, func() bool { return cmp.Equal(want, state(t, inf.GetStore())) })
			if wrote == 0 || len(want) == 0 {
				t.Error("no object was written, or none remains")
			}
		})
	}
}

// Metadata is watched in each encoding, of typed and of untyped resources.
func TestMetadataClient(t *testing.T) {
	for _, encoding := range encodings {
		t.Run(encoding, func(t *testing.T) {
			s := pods(60)
			srv := open(t, Options{}, s)
			srv.defineCRD(t, widgets)
			if err := srv.Create(widget("w", 1)); err != nil {
				t.Fatal(err)
			}
			config := srv.speaking(t, encoding)
			config.ContentType = ""
			c, err := metadata.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			for _, gvr := range []schema.GroupVersionResource{podResource, {Group: "example.com", Version: "v1", Resource: "widgets"}} {
				list, err := c.Resource(gvr).List(t.Context(), metav1.ListOptions{})
				if err != nil || len(list.Items) == 0 || list.Items[0].Name == "" {
					t.Fatalf("%s: %v, %v", gvr.Resource, list, err)
				}
				w, err := c.Resource(gvr).Watch(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				e := <-w.ResultChan()
				if p, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || e.Type != watch.Added || p.Name != list.Items[0].Name {
					t.Errorf("%s: event %+v", gvr.Resource, e)
				}
				w.Stop()
			}
		})
	}
}

// kubectl get -w asks for tables, in lists and in watches.
func TestTables(t *testing.T) {
	s := pods(60)
	srv := open(t, Options{}, s)
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	code, body := srv.do(t, http.MethodGet, "/api/v1/pods", "Accept", table)
	var list metav1.Table
	if err := json.Unmarshal(body, &list); err != nil || code != http.StatusOK {
		t.Fatal(code, err)
	}
	if len(list.Rows) != s.Initial || list.ResourceVersion != strconv.Itoa(s.Initial) || list.ColumnDefinitions[1].Name != "Ready" {
		t.Errorf("table of %d rows at %s: %.200s", len(list.Rows), list.ResourceVersion, body)
	}
	srv.Release(uint64(len(s.Events)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.url+"/api/v1/pods?watch=1&resourceVersion="+list.ResourceVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", table)
	res, err := srv.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	d := json.NewDecoder(res.Body)
	for i := s.Initial; i < len(s.Events); i++ {
		var e struct {
			Type   watch.EventType
			Object metav1.Table
		}
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Type != s.Events[i].Type || len(e.Object.Rows) != 1 || "ns/"+fmt.Sprint(e.Object.Rows[0].Cells[0]) == "ns/" {
			t.Fatalf("event %+v, want %s %s", e, s.Events[i].Type, s.Events[i].Key)
		}
	}
}

// One server plays several storms, each from its own recording.
func TestSeveralStorms(t *testing.T) {
	nodes := &storm.Storm{Name: "nodes", Resource: v1.SchemeGroupVersion.WithResource("nodes"), Kind: v1.SchemeGroupVersion.WithKind("Node")}
	for i := range 3 {
		name := fmt.Sprintf("node-%d", i)
		nodes.Events = append(nodes.Events, storm.Event{
			Type: watch.Added, Seq: uint64(i + 1), Key: name, KeyIndex: int32(i),
			Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(i + 1)}},
		})
	}
	nodes.Keys = 3
	var prepared []*Prepared
	for _, s := range []*storm.Storm{pods(100), nodes} {
		p, err := Prepare(s, wire.JSON)
		if err != nil {
			t.Fatal(err)
		}
		prepared = append(prepared, p)
	}
	srv, err := Open(Options{}, prepared...)
	if err != nil {
		t.Fatal(err)
	}
	ts := started(t, srv)
	if err := NewPlayer(srv, prepared, 1000).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := ts.clientset(t).CoreV1()
	if l, err := c.Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 3 {
		t.Errorf("nodes %v, %v", l, err)
	}
	if l, err := c.Pods("").List(t.Context(), metav1.ListOptions{}); err != nil || l.ResourceVersion != "100" {
		t.Errorf("pods %v, %v", l, err)
	}
	if _, err := Open(Options{}, prepared[0], prepared[0]); err == nil {
		t.Error("two storms of one resource are accepted")
	}
}

// untyped begins the message of an apply configuration with a field that the schema lacks: kube-apiserver answers
// 500, too (managedfields' structuredMergeManager.Apply returns a plain error).
const untyped = "failed to create typed patch object"

// FuzzWrite: any request gets a status or an object, and never a server error but that one.
func FuzzWrite(f *testing.F) {
	f.Add(http.MethodPost, "/api/v1/namespaces/default/configmaps", "dryRun=All&fieldManager=x", "application/json", `{"metadata":{"name":"a"}}`)
	f.Add(http.MethodPatch, "/api/v1/namespaces/default/configmaps/a", "force=true&fieldManager=x", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}")
	f.Add(http.MethodPut, "/apis/apps/v1/namespaces/default/deployments/d/scale", "fieldValidation=Strict", "application/json", `{"spec":{"replicas":1}}`)
	f.Add(http.MethodDelete, "/api/v1/namespaces/default/pods", "propagationPolicy=Foreground&gracePeriodSeconds=-1&labelSelector=a", "", "")
	f.Add(http.MethodPost, "/api/v1/namespaces/default/pods/a/binding", "", "application/cbor", "\xd9\xd9\xf7\xa0")
	f.Add(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", "application/yaml", widgets)
	f.Fuzz(func(t *testing.T, method, path, query, content, body string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		switch method {
		case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		default:
			return
		}
		if query == "watch" || strings.Contains(query, "watch") || !strings.HasPrefix(path, "/") {
			return
		}
		srv, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = srv.Close() }()
		code, answer := srv.ask(method, path, query, content, body)
		if code >= http.StatusInternalServerError && code != http.StatusGatewayTimeout && !strings.Contains(answer, untyped) {
			t.Fatalf("%s %s?%s %q: %d: %s", method, path, query, body, code, answer)
		}
	})
}

// TestGraceful deletes pods on nodes as in a cluster: they wait for the kubelet, and their namespace for them.
func TestGraceful(t *testing.T) {
	var seen changes
	srv, err := Open(Options{Graceful: true, Changed: seen.add})
	if err != nil {
		t.Fatal(err)
	}
	ctx, c := t.Context(), inProcessClient(t, srv, "user").CoreV1()
	if _, err := c.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelet := inProcessClient(t, srv, "kubelet").CoreV1().Pods("ns")
	for _, name := range []string{"one", "two", "evicted", "waiting", "unbound"} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{NodeName: "n"}}
		if name == "waiting" || name == "unbound" {
			pod.Spec.NodeName = ""
		}
		if _, err := c.Pods("ns").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "unbound"} {
		if err := c.Pods("ns").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Pods("ns").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted", Namespace: "ns"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Namespaces().Delete(ctx, "ns", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	left, err := c.Pods("ns").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range left.Items {
		if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
			t.Errorf("%s: %+v", p.Name, p.ObjectMeta)
		}
		if _, err := c.Namespaces().Get(ctx, "ns", metav1.GetOptions{}); err != nil {
			t.Errorf("before the deletion of %s: %v", p.Name, err)
		}
		if err := kubelet.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
	}
	if len(left.Items) != 3 {
		t.Errorf("%d pods wait for the kubelet, want 3", len(left.Items))
	}
	if _, err := c.Namespaces().Get(ctx, "ns", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the last pod is gone: %v", err)
	}
	by := map[string][]string{}
	for _, c := range seen.of("pods") {
		by[c.Key] = append(by[c.Key], string(c.Type)+" "+c.By)
	}
	want := map[string][]string{
		"ns/one":     {"ADDED user", "MODIFIED user", "MODIFIED kubelet", "DELETED kubelet"},
		"ns/two":     {"ADDED user", "MODIFIED user", "MODIFIED kubelet", "DELETED kubelet"},
		"ns/evicted": {"ADDED user", "MODIFIED user", "MODIFIED kubelet", "DELETED kubelet"},
		"ns/waiting": {"ADDED user", "DELETED user"},
		"ns/unbound": {"ADDED user", "MODIFIED user", "DELETED user"},
	}
	if diff := cmp.Diff(want, by); diff != "" {
		t.Errorf("changes of pods (-want +got):\n%s", diff)
	}
	if all := seen.of("namespaces"); all[len(all)-1].By != "kubelet" {
		t.Errorf("the namespace was deleted by %q, want by the last deletion of a pod", all[len(all)-1].By)
	}
}
