package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
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
			got, err := c.Get(ctx, "a", metav1.GetOptions{})
			if err != nil || !cmp.Equal(made, got) {
				t.Errorf("got, %v (-created +got):\n%s", err, cmp.Diff(made, got))
			}
			got.Data["a"] = "2"
			updated, err := c.Update(ctx, got, metav1.UpdateOptions{})
			if err != nil || updated.Data["a"] != "2" || updated.ResourceVersion == got.ResourceVersion || updated.UID != got.UID {
				t.Errorf("updated %+v, %v", updated, err)
			}
			if _, err := c.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("updated an old version: %v", err)
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
			list, err := c.List(ctx, metav1.ListOptions{LabelSelector: "app=x"})
			if err != nil || len(list.Items) != 1 || list.Items[0].Data["json"] != "x" {
				t.Errorf("list %+v, %v", list, err)
			}
			if err := c.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
				t.Error(err)
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

// widgets is a definition with two versions.
func widgets(t testing.TB) string {
	t.Helper()
	manifest, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(manifest)
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"}, "spec": map[string]any{"size": "small"},
	}}
}

// A custom resource is listed and watched in another version, in JSON and CBOR.
func TestCustomResources(t *testing.T) {
	v1 := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	for _, encoding := range []string{wire.ContentJSON, wire.ContentCBOR} {
		t.Run(encoding, func(t *testing.T) {
			srv := open(t, Options{})
			srv.defineCRD(t, widgets(t))
			c, err := dynamic.NewForConfig(srv.speaking(t, encoding))
			if err != nil {
				t.Fatal(err)
			}
			ctx, stored := t.Context(), c.Resource(v1).Namespace("default")
			other := c.Resource(v1.GroupResource().WithVersion("v1beta1")).Namespace("default")
			if _, err := stored.Create(ctx, widget("w"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := other.List(ctx, metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || list.Items[0].GetAPIVersion() != "example.com/v1beta1" {
				t.Fatalf("in v1beta1: %v, %v", list, err)
			}
			w, err := other.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if err := stored.Delete(ctx, "w", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if e := <-w.ResultChan(); e.Type != watch.Deleted || e.Object.(*unstructured.Unstructured).GetAPIVersion() != "example.com/v1beta1" {
				t.Errorf("event %v", e)
			}
		})
	}
}

// A generated name that is always taken is a conflict with a retry time.
func TestGeneratedNameTaken(t *testing.T) {
	srv, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv.editor.Suffix = func() string { return "same1" }
	code, answer := 0, ""
	for range 2 {
		code, answer = srv.ask(http.MethodPost, "/api/v1/namespaces/default/configmaps", "", "", `{"metadata":{"generateName":"a-"}}`)
	}
	if code != http.StatusConflict || !strings.Contains(answer, "not able to generate a unique name") || !strings.Contains(answer, `"retryAfterSeconds":1`) {
		t.Errorf("%d: %s", code, answer)
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
			changed := make(chan struct{}, 1)
			rising := map[string]int{}
			see := func(o any) {
				if p, ok := o.(*v1.Pod); ok {
					version, _ := strconv.Atoi(p.ResourceVersion)
					if version <= rising[p.Namespace+"/"+p.Name] {
						t.Errorf("%s goes from version %d to %d", p.Name, rising[p.Namespace+"/"+p.Name], version)
					}
					rising[p.Namespace+"/"+p.Name] = version
				}
				select {
				case changed <- struct{}{}:
				default:
				}
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
			state := func() map[string]uint64 {
				got := map[string]uint64{}
				for _, o := range inf.GetStore().List() {
					p := o.(*v1.Pod)
					got[storm.ObjectKey(p.Namespace, p.Name)], _ = strconv.ParseUint(p.ResourceVersion, 10, 64)
				}
				return got
			}
			for !maps.Equal(want, state()) {
				select {
				case <-changed:
				case <-ctx.Done():
					t.Fatalf("the informer (-want +got):\n%s", cmp.Diff(want, state()))
				}
			}
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
			srv.defineCRD(t, widgets(t))
			if err := srv.Create(widget("w")); err != nil {
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
	f.Add(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", "application/yaml", widgets(f))
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
