package informer

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/decode"
)

// answers is a server of three pods in one encoding, whatever a client asks for. It refuses WatchList.
// When wrong is closed it ends all watches, and answers lists with something that is no list of pods.
type answers struct {
	encoding decode.Encoding
	body     []byte
	wrong    chan struct{}
	refused  chan struct{} // one message for each wrong answer
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch q := r.URL.Query(); {
	case q.Get("sendInitialEvents") != "":
		http.Error(w, "no WatchList", http.StatusUnprocessableEntity)
	case q.Get("watch") != "":
		w.Header().Set("Content-Type", a.encoding.MediaType())
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-a.wrong:
		case <-r.Context().Done():
		}
	default:
		body := a.body
		select {
		case <-a.wrong:
			w.Header().Set("Content-Type", "application/json;as=Table;v=v1;g=meta.k8s.io")
			body = []byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"columnDefinitions":[],"rows":[]}`)
			select {
			case a.refused <- struct{}{}:
			default:
			}
		default:
			w.Header().Set("Content-Type", a.encoding.MediaType())
		}
		_, _ = w.Write(body)
	}
}

// TestAnswers: an informer of ForResource and of ForManager has the objects of a server that answers in
// another encoding than the informer asks for, and keeps them if a later answer is no list.
func TestAnswers(t *testing.T) {
	list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, name := range []string{"a", "b", "c"} {
		list.Items = append(list.Items, v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: "5"}})
	}
	for _, served := range decode.Encodings() {
		d, err := decode.New("clientgo-"+string(served), decode.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		if err := d.Info().Serializer.Encode(list, &body); err != nil {
			t.Fatal(err)
		}
		for _, asked := range []decode.Options{{Encoding: decode.Protobuf}, {Encoding: decode.JSON}} {
			for name, build := range map[string]func(*rest.Config, Options) (cache.SharedIndexInformer, error){
				"ForResource": func(c *rest.Config, o Options) (cache.SharedIndexInformer, error) {
					return ForResource(c, v1.SchemeGroupVersion.WithResource("pods"), &v1.Pod{}, o)
				},
				"ForManager": func(c *rest.Config, o Options) (cache.SharedIndexInformer, error) {
					c, build, err := ForManager(c, o)
					if err != nil {
						return nil, err
					}
					clients, err := kubernetes.NewForConfig(c)
					if err != nil {
						return nil, err
					}
					lw := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", "", fields.Everything())
					return build(lw, &v1.Pod{}, 0, nil), nil
				},
			} {
				t.Run(fmt.Sprintf("%s/asked=%s/served=%s", name, asked.Encoding, served), func(t *testing.T) {
					t.Parallel()
					server := &answers{encoding: served, body: body.Bytes(), wrong: make(chan struct{}), refused: make(chan struct{})}
					s := httptest.NewServer(server)
					defer s.Close()
					pods, err := build(&rest.Config{Host: s.URL, QPS: -1}, Options{Decode: "shared", Decoder: asked})
					if err != nil {
						t.Fatal(err)
					}
					ctx := t.Context()
					ended := make(chan struct{})
					stop := make(chan struct{})
					go func() { pods.Run(stop); close(ended) }()
					defer func() { close(stop); <-ended }()
					if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
						t.Fatal("not synced")
					}
					has := func() []string { keys := pods.GetStore().ListKeys(); slices.Sort(keys); return keys }
					want := []string{"default/a", "default/b", "default/c"}
					if got := has(); !slices.Equal(got, want) {
						t.Errorf("the store has %q", got)
					}
					if served != decode.JSON || asked.Encoding != decode.Protobuf {
						return // a Reflector waits a second before each list
					}
					close(server.wrong)
					for i := range 2 { // with the second request the informer has read the first answer
						select {
						case <-server.refused:
						case <-time.After(2 * time.Minute):
							t.Fatalf("no request %d after the watch has ended", i)
						}
					}
					if got := has(); !slices.Equal(got, want) {
						t.Errorf("after an answer that is no list the store has %q", got)
					}
				})
			}
		}
	}
}
