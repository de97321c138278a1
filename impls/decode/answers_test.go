package decode

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// answer is what a server answers to a list or a watch of pods.
type answer struct {
	name, contentType string
	status            int // 0: 200
	body              []byte
	gzipped           bool
	empty             bool // client-go's clients take it for a list without items and version
	failure           bool // its dynamic client too
}

func (a answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = nil // else net/http guesses it
	if a.contentType != "" {
		w.Header().Set("Content-Type", a.contentType)
	}
	body := a.body
	if a.gzipped {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		body = b.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.Write(body)
}

var tableBody = []byte(written[slices.IndexFunc(written, func(s string) bool { return strings.Contains(s, `"Table"`) })])

// listAnswers are the answers to a list, in each encoding of a server.
func listAnswers(t *testing.T) (all []answer) {
	success := &metav1.Status{TypeMeta: goneStatus.TypeMeta, Status: metav1.StatusSuccess, Code: 200}
	for _, info := range codecs(scheme.Scheme).SupportedMediaTypes() {
		encoded := func(obj runtime.Object) []byte {
			b := must(runtime.Encode(info.Serializer, obj))(t)
			return b
		}
		typ, list := info.MediaType, encoded(podList(3))
		for _, a := range []answer{
			{name: "list", contentType: typ, body: list},
			{name: "no items", contentType: typ, body: encoded(podList(0))},
			{name: "with a parameter", contentType: typ + ";stream=watch", body: list},
			{name: "with a charset", contentType: typ + "; charset=utf-8", body: list},
			{name: "in capitals", contentType: strings.ToUpper(typ), body: list},
			{name: "gzipped", contentType: typ, body: list, gzipped: true},
			{name: "without content type", body: list},
			{name: "content type of text", contentType: "text/plain", body: list},
			{name: "bad content type", contentType: typ + "; =", body: list},
			{name: "cut", contentType: typ, body: list[:len(list)/2]},
			{name: "nothing", contentType: typ},
			{name: "status 410", contentType: typ, status: 410, body: encoded(goneStatus)},
			{name: "status 406", contentType: typ, status: 406, body: encoded(goneStatus)},
			{name: "status 500 with a list", contentType: typ, status: 500, body: list},
			{name: "status 200, a failure", contentType: typ, body: encoded(goneStatus), failure: true},
			{name: "status 200, a success", contentType: typ, body: encoded(success), empty: true},
			{name: "a pod", contentType: typ, body: encoded(onePod()), empty: true},
		} {
			a.name = typ + ": " + a.name
			all = append(all, a)
		}
	}
	for _, members := range []string{`"items":{}`, `"items":"gone"`, `"metadata":"5","items":[]`} {
		all = append(all, answer{name: members, contentType: "application/json", body: []byte(`{"kind":"PodList","apiVersion":"v1",` + members + `}`)})
	}
	return append(all,
		answer{name: "table", contentType: "application/json", body: tableBody, empty: true},
		answer{name: "table with parameters", contentType: "application/json;as=Table;v=v1;g=meta.k8s.io", body: tableBody, empty: true},
		answer{name: "406 of text", contentType: "text/plain", status: 406, body: []byte("not acceptable")},
		answer{name: "404 of text", contentType: "text/plain", status: 404, body: []byte("404 page not found")},
		answer{name: "HTML", contentType: "text/html", body: []byte("<html>")},
	)
}

// readList is what a client read.
type readList struct {
	items   []runtime.Object
	version string
	err     error
}

func readOf(list runtime.Object, err error) (r readList) {
	if r.err = err; err != nil {
		return r
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return readList{err: err}
	}
	r.version = m.GetResourceVersion()
	r.items, r.err = meta.ExtractListWithAlloc(list)
	return r
}

// like reports whether a client read the same as client-go's.
func (r readList) like(want readList) bool {
	if messageOf(r.err) != messageOf(want.err) || apierrors.ReasonForError(r.err) != apierrors.ReasonForError(want.err) {
		return false
	}
	return r.err != nil || r.version == want.version && len(r.items) == len(want.items) && (len(r.items) == 0 || reflect.DeepEqual(r.items, want.items))
}

// messageOf returns the text of an error without the name of the resource, which only some clients know.
func messageOf(err error) string { return strings.TrimSuffix(fmt.Sprint(err), " (get pods)") }

// everyDecoder calls f with each variant in each encoding, in tests of their own.
func everyDecoder(t *testing.T, f func(t *testing.T, v Variant, o Options)) {
	for _, v := range Variants() {
		for _, e := range Encodings() {
			for _, o := range []Options{{Encoding: e}, {Encoding: e, Unstructured: true}} {
				// shared-readonly refuses clients, and is shared for the rest.
				if d, err := v.New(o); err == nil && !ReadOnly(d) {
					t.Run(v.Name+"/"+title(o), func(t *testing.T) { f(t, v, o) })
				}
			}
		}
	}
}

var podsResource = v1.SchemeGroupVersion.WithResource("pods")

// clientsOf returns client-go's clients of a server that gives the current answer.
func clientsOf(t *testing.T, current *answer, d Decoder, o Options) (*rest.Config, kubernetes.Interface, dynamic.Interface) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { current.ServeHTTP(w, r) }))
	t.Cleanup(s.Close)
	config := &rest.Config{Host: s.URL, QPS: -1}
	config.ContentType, config.AcceptContentTypes = o.Encoding.MediaType(), accept(d)
	typed, err1 := kubernetes.NewForConfig(config)
	untyped, err2 := dynamic.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return config, typed, untyped
}

// goneStatus says that a version is too old.
var goneStatus = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old"}

// onePod returns a pod with its kind.
func onePod() *v1.Pod {
	pod := podList(1).Items[0]
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	return &pod
}

// TestAnswers: a client decodes a list by the content type of the answer, as client-go's does, also if
// that is not what it asked for.
func TestAnswers(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	all := listAnswers(t)
	everyDecoder(t, func(t *testing.T, v Variant, o Options) {
		var current answer
		d := decoder(t, v.Name, o)
		config, typed, untyped := clientsOf(t, &current, d, o)
		exact := func() (r readList) {
			if o.Unstructured {
				r = readOf(untyped.Resource(podsResource).List(t.Context(), metav1.ListOptions{}))
			} else {
				r = readOf(typed.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}))
			}
			for i := range r.items {
				if v.Guarantees[0].Strips != "" {
					if err := strip(r.items[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			return r
		}
		// Ours.
		lw := must(NewListWatch(config, d, podsResource, "", nil))(t)
		client := must(NewRESTClient(config, d, podsResource.GroupVersion()))(t)
		interceptedConfig, with, err := Intercept(config)
		if err != nil {
			t.Fatal(err)
		}
		intercepted := must(kubernetes.NewForConfig(interceptedConfig))(t)
		inner, err := with(cache.NewListWatchFromClient(intercepted.CoreV1().RESTClient(), "pods", "", fields.Everything()), d)
		if err != nil {
			t.Fatal(err)
		}
		lists := func(lw cache.ListerWatcher) readList {
			return readOf(cache.ToListerWatcherWithContext(lw).ListWithContext(t.Context(), metav1.ListOptions{}))
		}
		for _, current = range all {
			if o.Unstructured && o.Encoding == CBOR && current.contentType == "" {
				continue // client-go's dynamic client sets its own content type
			}
			want := exact()
			for name, got := range map[string]readList{"NewListWatch": lists(lw), "Intercept": lists(inner)} {
				if want.err == nil && (current.empty || o.Unstructured && current.failure) {
					if got.err == nil || current.failure && !apierrors.IsResourceExpired(got.err) {
						t.Errorf("%s, %s: listed %v, %v", current.name, name, got.items, got.err)
					}
				} else if !got.like(want) {
					t.Errorf("%s, %s: listed %v of version %q, %v; client-go %v of version %q, %v", current.name, name, got.items, got.version, got.err, want.items, want.version, want.err)
				}
			}
			var got readList
			if o.Unstructured {
				got = readOf(dynamic.New(client).Resource(podsResource).List(t.Context(), metav1.ListOptions{}))
			} else {
				got = readOf(corev1.New(client).Pods("").List(t.Context(), metav1.ListOptions{}))
			}
			if !got.like(want) {
				t.Errorf("%s, NewRESTClient: listed %v of version %q, %v; client-go %v of version %q, %v", current.name, got.items, got.version, got.err, want.items, want.version, want.err)
			}
		}
	})
}

// TestWatchAnswers: so does a watch.
func TestWatchAnswers(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	var all []answer
	for _, e := range Encodings() {
		body := frames(t, e, [][]byte{encode(t, e, onePod()), encode(t, e, onePod()), encode(t, e, goneStatus)}, []string{"ADDED", "BOOKMARK", "ERROR"})
		typ := e.MediaType()
		if e == CBOR {
			typ = runtime.ContentTypeCBORSequence
		}
		for _, a := range []answer{
			{name: "watch", contentType: typ, body: body},
			{name: "with a parameter", contentType: typ + ";stream=watch", body: body},
			{name: "with a charset", contentType: typ + "; charset=utf-8", body: body},
			{name: "gzipped", contentType: typ, body: body, gzipped: true},
			{name: "without content type", body: body},
			{name: "bad content type", contentType: "=;", body: body},
			{name: "content type of text", contentType: "text/plain", body: body},
			{name: "cut", contentType: typ, body: body[:len(body)-5]},
			{name: "nothing", contentType: typ},
			{name: "status 410", contentType: e.MediaType(), status: 410, body: encode(t, e, goneStatus)},
			{name: "status 406", contentType: e.MediaType(), status: 406, body: encode(t, e, goneStatus)},
			{name: "a list", contentType: typ, body: encode(t, e, podList(2))},
		} {
			a.name = typ + ": " + a.name
			all = append(all, a)
		}
	}
	all = append(all, answer{name: "table", contentType: "application/json;stream=watch", body: fmt.Appendf(nil, "{\"type\":\"ADDED\",\"object\":%s}\n", tableBody)})
	everyDecoder(t, func(t *testing.T, v Variant, o Options) {
		var current answer
		d := decoder(t, v.Name, o)
		config, typed, untyped := clientsOf(t, &current, d, o)
		lw := must(NewListWatch(config, d, podsResource, "", nil))(t)
		read := func(watches func(context.Context, metav1.ListOptions) (watch.Interface, error), exact bool) (events []watch.Event, _ error) {
			w, err := watches(t.Context(), metav1.ListOptions{Watch: true})
			if err != nil {
				return nil, err
			}
			defer w.Stop()
			for e := range w.ResultChan() {
				if exact && v.Guarantees[0].Strips != "" {
					if err := strip(e.Object); err != nil {
						t.Fatal(err)
					}
				}
				events = append(events, e)
			}
			return events, nil
		}
		for _, current = range all {
			watches := typed.CoreV1().Pods("").Watch
			if o.Unstructured {
				watches = untyped.Resource(podsResource).Watch
			}
			want, wantErr := read(watches, true)
			got, gotErr := read(lw.WatchWithContext, false)
			if messageOf(gotErr) != messageOf(wantErr) || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: watched %v, %v; client-go %v, %v", current.name, got, gotErr, want, wantErr)
			}
		}
	})
}
