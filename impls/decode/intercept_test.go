package decode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestIntercept: a clientset of the config lists and watches with the decoder, at the URL that it
// chooses, also behind a proxy with a path. Its other requests, and another clientset, decode as before.
func TestIntercept(t *testing.T) {
	var sent []string
	target := must(url.Parse(server(t).Host))(t)
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.URL.RequestURI()+" "+strings.Split(r.Header.Get("Accept"), ",")[0])
		if strings.Contains(r.URL.Path, "missing") {
			http.Error(w, "no such namespace", http.StatusNotFound)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	take := func() []string { defer func() { sent = nil }(); return sent }
	for _, path := range []string{"", "/clusters/one"} {
		plain := &rest.Config{Host: proxy.URL + path, QPS: -1}
		intercepted, with, err := Intercept(plain)
		if err != nil {
			t.Fatal(err)
		}
		// seen lists and watches, and says whether objects came stripped and what was sent.
		seen := func(c *rest.Config, namespace string, decoding bool) (stripped bool, requests []string) {
			clients, err := kubernetes.NewForConfig(c)
			if err != nil {
				t.Fatal(err)
			}
			var lw cache.ListerWatcher = cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", namespace, fields.OneTermEqualSelector("a", "b c/d"))
			if decoding {
				if lw, err = with(lw, decoder(t, "shared", Options{})); err != nil {
					t.Fatal(err)
				}
			}
			both := cache.ToListerWatcherWithContext(lw)
			list, err := both.ListWithContext(t.Context(), metav1.ListOptions{LabelSelector: "x in (y,z)", Limit: 5})
			if err != nil {
				t.Fatal(err)
			}
			items, err := meta.ExtractList(list)
			if err != nil || len(items) != 3 {
				t.Fatalf("listed %v: %v", list, err)
			}
			w, err := both.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7", AllowWatchBookmarks: true})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			e := <-w.ResultChan()
			stripped = items[0].(*v1.Pod).ManagedFields == nil
			if e.Type != watch.Modified || (e.Object.(*v1.Pod).ManagedFields == nil) != stripped {
				t.Errorf("watched %v", e)
			}
			return stripped, take()
		}
		stripped, want := seen(plain, "default", false)
		if len(want) != 2 || stripped || !strings.HasPrefix(want[0], path+"/api/v1/namespaces/default/pods?") {
			t.Fatalf("the plain clientset sent %q", want)
		}
		for i := range want {
			want[i] = strings.TrimSuffix(want[i], kruntime.ContentTypeJSON) + kruntime.ContentTypeProtobuf
		}
		if stripped, got := seen(intercepted, "default", true); !stripped || !slices.Equal(got, want) {
			t.Errorf("intercepted, the clientset sent %q, want %q; stripped: %v", got, want, stripped)
		}
		if stripped, got := seen(plain, "default", true); stripped || len(got) != 2 {
			t.Errorf("a clientset of another config sent %q; stripped: %v", got, stripped)
		}
		if stripped, got := seen(intercepted, "", false); stripped || len(got) != 2 {
			t.Errorf("other requests: %q; stripped: %v", got, stripped)
		}
		clients := must(kubernetes.NewForConfig(intercepted))(t)
		lw, err := with(cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", "missing", fields.Everything()), decoder(t, "shared", Options{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cache.ToListerWatcherWithContext(lw).ListWithContext(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(fmt.Sprint(err), "could not find") {
			t.Errorf("the error of the server is %v", err)
		}
		take()
	}
}
