package apiserver

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// gzipped sends a request that accepts gzip and returns the answer as it is on the wire.
func (s *testServer) gzipped(t *testing.T, path, accept string) (http.Header, io.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", accept)
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res.Header, res.Body
}

// TestCompressedWatch: of a watch that begins with the state, the initial events and their bookmark are one member,
// and each later event is one. Together they are the frames of a plain watch; so they are behind a handler that has
// to see frames.
func TestCompressedWatch(t *testing.T) {
	s := pods(200)
	last := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-0", Name: "last", ResourceVersion: "201", Labels: map[string]string{"app": "a0"}}}
	last.Spec.NodeName = "node-0"
	s.Events = append(s.Events, storm.Event{Type: watch.Added, Seq: 201, At: s.Events[199].At, Key: "ns-0/last", KeyIndex: int32(s.Keys), Object: last})
	s.Keys++
	for _, wraps := range []bool{false, true} {
		for _, path := range []string{"pods?", "namespaces/ns-0/pods?", "pods?labelSelector=app%3Da0&", "pods?fieldSelector=spec.nodeName%3Dnode-0&"} {
			t.Run(fmt.Sprintf("%s wrapped=%v", path, wraps), func(t *testing.T) {
				var opts Options
				if wraps {
					opts.Wrap = func(h http.Handler) http.Handler {
						return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapper{w}, r) })
					}
				}
				srv := start(t, s, opts)
				path := "/api/v1/" + path + "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
				next := srv.open(t, path)
				h, body := srv.gzipped(t, path, "deflate, gzip")
				if h.Get("Content-Encoding") != "gzip" || h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Type") != wire.ContentJSON {
					t.Fatalf("headers %v", h)
				}
				members := membersOf(t, body)
				want := []string{""}
				for !strings.Contains(want[0], metav1.InitialEventsAnnotationKey) {
					want[0] += string(next())
				}
				got := []string{members()} // read before an event: the state does not wait for one
				srv.Release(201)
				for !strings.Contains(want[len(want)-1], `"last"`) {
					want = append(want, string(next()))
				}
				for !strings.Contains(got[len(got)-1], `"last"`) {
					got = append(got, members())
				}
				if wraps {
					got, want = []string{got[0], strings.Join(got[1:], "")}, []string{want[0], strings.Join(want[1:], "")}
				}
				if len(want) < 2 || !slices.Equal(got, want) {
					t.Errorf("%d members %q, want %d %q", len(got), got, len(want), want)
				}
			})
		}
	}
}

// unwrapper hides the server's own writer.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// membersOf returns a function that reads the next member.
func membersOf(t *testing.T, body io.Reader) func() string {
	b := bufio.NewReader(body)
	z := &gzip.Reader{}
	return func() string {
		t.Helper()
		if err := z.Reset(b); err != nil {
			t.Fatal(err)
		}
		z.Multistream(false)
		member, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return string(member)
	}
}

// TestCompressedAnswer: an answer above 128 kB is one member for a client that accepts gzip; other answers and watches
// that do not begin with the state are plain.
func TestCompressedAnswer(t *testing.T) {
	large := pods(200)
	for i := range large.Events {
		large.Events[i].Object.(*v1.Pod).Annotations["filler"] = strings.Repeat("x", 20<<10)
	}
	srv := start(t, large, Options{})
	srv.Release(200)
	for _, tc := range []struct {
		path, accept string
		want         bool
	}{
		{"/api/v1/pods", "gzip", true},
		{"/api/v1/pods", "br , gzip", true},
		{"/api/v1/pods", "gzip;q=1", false}, // A real server reads no weights.
		{"/api/v1/pods", "identity", false},
		{"/api/v1/pods?limit=6", "gzip", false},
		{"/api/v1/pods?limit=7", "gzip", true},
		{"/api/v1/namespaces", "gzip", false},
		{"/api/v1/pods?watch=true&resourceVersion=0&timeoutSeconds=1", "gzip", false},
		{"/api/v1/pods?watch=true&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=1", "gzip", false},
		{"/api/v1/pods?watch=true&sendInitialEvents=true&allowWatchBookmarks=true", "gzip", false}, // is refused
		{"/api/v1/pods/none", "gzip", false},
		{"/version?watch=true&allowWatchBookmarks=true", "gzip", false},
		{"/api/v1/namespaces/ns-0?watch=true&allowWatchBookmarks=true", "gzip", false},
	} {
		_, want := srv.do(t, http.MethodGet, tc.path)
		h, body := srv.gzipped(t, tc.path, tc.accept)
		if on := h.Get("Content-Encoding") == "gzip"; on != tc.want || on != (h.Get("Vary") == "Accept-Encoding") {
			t.Errorf("%s for %q: %v", tc.path, tc.accept, h)
			continue
		}
		got := ""
		if tc.want {
			got = membersOf(t, body)()
		} else if b, err := io.ReadAll(body); err == nil {
			got = string(b)
		}
		if got != string(want) {
			t.Errorf("%s for %q: %d bytes, want %d", tc.path, tc.accept, len(got), len(want))
		}
	}
}
