package decode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
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

// TestRelist: the objects of a second list are those of the first if their bytes are equal and the
// objects are in use.
func TestRelist(t *testing.T) {
	l := podList(50)
	d := decoder(t, "shared", Options{})
	first, second := &List{}, &List{}
	if _, _, err := d.Decode(encode(t, l), nil, first); err != nil {
		t.Fatal(err)
	}
	l.Items[7].ResourceVersion = "1000"
	l.Items[8].Labels["app"] = "changed without a new version"
	relist := encode(t, l)
	if _, _, err := d.Decode(relist, nil, second); err != nil {
		t.Fatal(err)
	}
	for i := range first.Items {
		if reused := first.Items[i] == second.Items[i]; reused != (i != 7 && i != 8) {
			t.Errorf("item %d: reused: %v", i, reused)
		}
	}
	want := kruntime.Object(&v1.PodList{})
	if _, _, err := decoder(t, "clientgo-protobuf-transform", Options{}).Decode(relist, nil, want); err != nil {
		t.Fatal(err)
	}
	typed, _, err := d.Decode(relist, nil, &v1.PodList{})
	if err != nil || !reflect.DeepEqual(typed, want) {
		t.Errorf("into a typed list: %v, %+v", err, typed)
	}
	items, err := meta.ExtractList(want)
	if err != nil || !reflect.DeepEqual(items, second.Items) || second.ResourceVersion != "99" {
		t.Errorf("items %+v of version %s: %v", second.Items, second.ResourceVersion, err)
	}
	runtime.KeepAlive(first)
}

// TestForgets: the decoder keeps no object alive.
func TestForgets(t *testing.T) {
	d := decoder(t, "shared", Options{})
	pod := podList(1).Items[0]
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	data := encode(t, &pod)
	collected := make(chan struct{})
	func() {
		obj, _, err := d.Decode(data, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(obj.(*v1.Pod), func(struct{}) { close(collected) }, struct{}{})
	}()
	for {
		runtime.GC()
		select {
		case <-collected:
			same(t, d, decoder(t, "clientgo-protobuf-transform", Options{}), data, "again")
			return
		default:
			runtime.Gosched()
		}
	}
}

// server lists and watches three pods in protobuf, or in JSON if the client does not accept it.
func server(t *testing.T) *rest.Config {
	l := podList(3)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "clientgo-json"
		if strings.HasPrefix(r.Header.Get("Accept"), kruntime.ContentTypeProtobuf) {
			name = "clientgo-protobuf"
		}
		info := decoder(t, name, Options{}).Info()
		w.Header().Set("Content-Type", info.MediaType)
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

// TestWhere: the decoder goes into a REST client. Each variant works there, below a ListWatch and
// below a typed client. A generated clientset overwrites it.
func TestWhere(t *testing.T) {
	for _, v := range Variants() {
		t.Run(v.Name, func(t *testing.T) {
			if v.Name == "clientgo-cbor" || v.Name == "clientgo-cbor-transform" {
				t.Skip("client-go's feature gate ClientsAllowCBOR is off")
			}
			c := server(t)
			d := decoder(t, v.Name, Options{})
			lw, err := NewListWatch(c, d, v1.SchemeGroupVersion.WithResource("pods"), metav1.NamespaceAll, nil)
			if err != nil {
				t.Fatal(err)
			}
			list, err := cache.ToListerWatcherWithContext(lw).ListWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			items, err := meta.ExtractList(list)
			if err != nil || len(items) != 3 || items[2].(*v1.Pod).Name != "web-2" {
				t.Fatalf("listed %v: %v", items, err)
			}
			stripped := v.Guarantees[0].Strips != ""
			if (items[0].(*v1.Pod).ManagedFields == nil) != stripped {
				t.Errorf("managed fields: %v", items[0])
			}
			w, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if e := <-w.ResultChan(); e.Type != watch.Modified || e.Object.(*v1.Pod).ResourceVersion != "100" {
				t.Errorf("watched %v", e)
			}
			w.Stop()

			client, err := NewRESTClient(c, d, v1.SchemeGroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := corev1.New(client).Pods("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 3 || (pods.Items[0].ManagedFields == nil) != stripped {
				t.Errorf("typed client: %v, %v", pods, err)
			}
		})
	}
	t.Run("clientset", func(t *testing.T) {
		c := server(t)
		c.NegotiatedSerializer = Negotiated(decoder(t, "shared", Options{}))
		clients, err := kubernetes.NewForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		pods, err := clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || pods.Items[0].ManagedFields == nil {
			t.Errorf("the clientset took the decoder: %v, %v", pods, err)
		}
	})
}

// TestStatus: a decoder decodes a Status where a list was asked for.
func TestStatus(t *testing.T) {
	data := encode(t, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Reason: "Expired"})
	for _, v := range []string{"shared", "clientgo-protobuf"} {
		obj, _, err := decoder(t, v, Options{}).Decode(data, nil, nil)
		if err != nil || obj.(*metav1.Status).Code != 410 {
			t.Errorf("%s: %v, %v", v, obj, err)
		}
		obj, _, err = decoder(t, v, Options{}).Decode(data, nil, &List{})
		if s, ok := obj.(*metav1.Status); !ok || err != nil || s.Code != 410 {
			t.Errorf("%s into a list: %v, %v", v, obj, err)
		}
	}
}
