package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// pods returns a deterministic storm of n pod events: pods in two namespaces are created
// and deleted, gain and lose a label, and move between nodes.
func pods(n int) *storm.Storm {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	s := &storm.Storm{
		Name:     "pods",
		Resource: v1.SchemeGroupVersion.WithResource("pods"),
		Kind:     v1.SchemeGroupVersion.WithKind("Pod"),
	}
	index := map[string]int32{}
	live := map[string]*v1.Pod{}
	for i := range n {
		seq := uint64(i + 1)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace:       fmt.Sprintf("ns-%d", rng.IntN(2)),
			Name:            fmt.Sprintf("pod-%d", rng.IntN(12)),
			ResourceVersion: strconv.FormatUint(seq, 10),
			Labels:          map[string]string{"app": fmt.Sprintf("a%d", rng.IntN(2))},
			// These characters need HTML escaping.
			Annotations: map[string]string{"note": "<b>&\u2028\"\\ü"},
		}}
		p.Spec.NodeName = fmt.Sprintf("node-%d", rng.IntN(2))
		key := storm.ObjectKey(p.Namespace, p.Name)
		if _, ok := index[key]; !ok {
			index[key] = int32(len(index))
		}
		kind := watch.Added
		if was := live[key]; was != nil {
			kind = watch.Modified
			if rng.IntN(4) == 0 {
				kind = watch.Deleted
				p.Labels, p.Spec = was.Labels, was.Spec
			}
		} else if s.Initial == i && i < n/4 {
			s.Initial++
		}
		live[key] = p
		if kind == watch.Deleted {
			live[key] = nil
		}
		s.Events = append(s.Events, storm.Event{
			Type: kind, Seq: seq, At: time.Duration(i) * time.Millisecond, Key: key, KeyIndex: index[key], Object: p,
		})
	}
	s.Keys = len(index)
	return s
}

// bulky returns a storm larger than the socket buffers.
func bulky() *storm.Storm {
	s := pods(2500)
	filler := strings.Repeat("x", 8<<10)
	for i := range s.Events {
		s.Events[i].Object.(*v1.Pod).Annotations["filler"] = filler
	}
	return s
}

// testServer is a started server and a client of it.
type testServer struct {
	*Server
	url    string
	client *http.Client
	config *rest.Config
}

// start starts a server of a storm.
func start(t testing.TB, s *storm.Storm, opts Options) *testServer {
	t.Helper()
	return open(t, opts, s)
}

// open starts a server of storms.
func open(t testing.TB, opts Options, storms ...*storm.Storm) *testServer {
	t.Helper()
	var prepared []*Prepared
	for _, s := range storms {
		p, err := Prepare(s, wire.JSON, false)
		if err != nil {
			t.Fatal(err)
		}
		prepared = append(prepared, p)
	}
	srv, err := Open(opts, prepared...)
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return &testServer{
		Server: srv,
		url:    url,
		client: &http.Client{Transport: transport},
		config: &rest.Config{Host: url, Transport: transport, QPS: -1},
	}
}

// do sends a request and returns the code and the body of the answer.
func (s *testServer) do(t testing.TB, method, path string, header ...string) (code int, body []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

// open starts a watch and returns a function that reads the next frame, or nil at the end.
func (s *testServer) open(t testing.TB, path string) func() []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: %s: %s", path, res.Status, body)
	}
	r := bufio.NewReader(res.Body)
	return func() []byte {
		t.Helper()
		line, err := r.ReadBytes('\n')
		if err != nil {
			if len(line) > 0 || !errors.Is(err, io.EOF) {
				t.Fatalf("%s: %v after %q", path, err, line)
			}
			return nil
		}
		return line
	}
}

// ask serves a request without a connection.
func (s *Server) ask(method, path, query, content, body string) (code int, answer string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/", strings.NewReader(body))
	r.URL = &url.URL{Path: path, RawQuery: query}
	if content != "" {
		r.Header.Set("Content-Type", content)
	}
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// frames returns the JSON frames of the storm's events after from, up to to.
func (s *Server) frames(t testing.TB, from, to uint64) []byte {
	t.Helper()
	var all []byte
	for from < to {
		data, upto, err := s.storms[0].log.Frames(s.storms[0].encoder, wire.FormOf(wire.JSON, wire.Object), false, from, to)
		if err != nil {
			t.Fatal(err)
		}
		all, from = append(all, data...), upto
	}
	return all
}

// seen holds the compared parts of an event.
type seen struct {
	Type    watch.EventType
	Key     string
	Version string
}

func decodeFrame(t testing.TB, frame []byte) (seen, *v1.Pod) {
	t.Helper()
	var e struct {
		Type   watch.EventType
		Object v1.Pod
	}
	if err := json.Unmarshal(frame, &e); err != nil {
		t.Fatalf("%v in frame %q", err, frame)
	}
	return seen{e.Type, storm.ObjectKey(e.Object.Namespace, e.Object.Name), e.Object.ResourceVersion}, &e.Object
}

// defineCRD creates a CustomResourceDefinition from a manifest.
func (s *Server) defineCRD(t testing.TB, manifest string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(manifest), u); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(u); err != nil {
		t.Fatal(err)
	}
}

// opened returns the number of watches so far.
func (s *Server) opened() (n int) {
	s.watching.mu.Lock()
	defer s.watching.mu.Unlock()
	return len(s.watching.all) + s.watching.ended
}
