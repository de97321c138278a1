package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func hostile(t *testing.T) *Server {
	t.Helper()
	srv, err := Open(Options{Graceful: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return srv
}

// TestHostileBodies: a body of at most 3 MB that YAML expands is a client error, and so it is for a namespace that is
// being deleted, whatever its content type.
func TestHostileBodies(t *testing.T) {
	srv := hostile(t)
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: &a " + strings.Repeat("x", 1<<20) + "}\nb: [" + strings.Repeat("*a,", 300_000) + "]"
	for _, tc := range []struct{ method, path, content string }{
		{http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/yaml"},
		{http.MethodPatch, "/api/v1/namespaces/default/configmaps/a", "application/apply-patch+yaml"},
		{http.MethodDelete, "/api/v1/namespaces/default/configmaps", "application/yaml"},
	} {
		if code, answer := srv.ask(tc.method, tc.path, "fieldManager=x", tc.content, bomb); code != http.StatusBadRequest || !strings.Contains(answer, "aliases expand it") {
			t.Errorf("%s %s: %d: %.200s", tc.method, tc.content, code, answer)
		}
	}
	for _, call := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"ns"}}`},
		{"/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"held","finalizers":["example.com/x"]}}`},
	} {
		if code, answer := srv.ask(http.MethodPost, call[0], "", "application/json", call[1]); code != http.StatusCreated {
			t.Fatalf("%d: %s", code, answer)
		}
	}
	if code, answer := srv.ask(http.MethodDelete, "/api/v1/namespaces/ns", "", "", ""); code >= http.StatusBadRequest {
		t.Fatalf("%d: %s", code, answer)
	}
	if code, answer := srv.ask(http.MethodPost, "/api/v1/namespaces/ns/configmaps", "", "application/json", bomb); code != http.StatusForbidden {
		t.Errorf("%d: %.200s", code, answer)
	}
}

// TestSeats: a request waits while all seats are taken, and a watch does not.
func TestSeats(t *testing.T) {
	srv := hostile(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	answered := func(query string) bool {
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods"+query, nil).WithContext(gone))
		return w.Header().Get("Content-Type") != ""
	}
	for range cap(srv.seats) {
		srv.seats <- struct{}{}
	}
	if answered("") || !answered("?watch=1") {
		t.Error("without a seat a list is answered, or a watch is not")
	}
	<-srv.seats
	if code, answer := srv.ask(http.MethodGet, "/api/v1/pods", "", "", ""); code != http.StatusOK || len(srv.seats) != cap(srv.seats)-1 {
		t.Errorf("with a seat: %d %s; %d seats are taken", code, answer, len(srv.seats))
	}
}

// TestManyFindings: an object of 20,000 mistakes has an answer that a client reads.
func TestManyFindings(t *testing.T) {
	srv := hostile(t)
	var unknown, versions strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&unknown, `,"f%0100d":1`, i)
		versions.WriteString(`{"name":"v1","served":true,"schema":{"openAPIV3Schema":{"type":"object"}}},`)
	}
	r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/configmaps", strings.NewReader(`{"metadata":{"name":"a"}`+unknown.String()+"}"))
	w := httptest.NewRecorder()
	if srv.ServeHTTP(w, r); w.Code != http.StatusCreated || len(w.Header()["Warning"]) < 20 || len(strings.Join(w.Header()["Warning"], "")) > 2*maxWarnings {
		t.Errorf("%d with %d warnings", w.Code, len(w.Header()["Warning"]))
	}
	code, answer := srv.ask(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "", "application/json",
		`{"metadata":{"name":"foos.x.io"},"spec":{"group":"x.io","scope":"Namespaced","names":{"plural":"foos","singular":"foo","kind":"Foo"},"versions":[`+strings.TrimSuffix(versions.String(), ",")+`]}}`)
	if code != http.StatusUnprocessableEntity || len(answer) > 100_000 {
		t.Errorf("%d: %d bytes", code, len(answer))
	}
}

// FuzzHeaders: any content type, Accept header and token of a page has an answer that is no server error.
func FuzzHeaders(f *testing.F) {
	f.Add("application/json;stream=watch", "application/json;as=Table;v=v1;g=meta.k8s.io", "x", "gzip")
	f.Add("application/apply-patch+cbor", "*/*;q=0,application/cbor-seq", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLyJ9", "")
	f.Add("application/yaml", ",;;=", "e30", "identity;q=0")
	srv, err := New(pods(20), Options{})
	if err != nil {
		f.Fatal(err)
	}
	srv.Release(20)
	f.Fuzz(func(t *testing.T, content, accept, token, encoding string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		for method, body := range map[string]string{http.MethodGet: "", http.MethodPatch: "{}", http.MethodDelete: `{"kind":"DeleteOptions","apiVersion":"v1"}`} {
			r := httptest.NewRequest(method, "/api/v1/namespaces/ns-0/pods", strings.NewReader(body))
			if method == http.MethodPatch {
				r.URL.Path += "/x"
			}
			r.URL.RawQuery = url.Values{"limit": {"1"}, "continue": {token}, "dryRun": {"All"}}.Encode()
			r.Header = http.Header{"Content-Type": {content}, "Accept": {accept}, "Accept-Encoding": {encoding}, "Content-Encoding": {encoding}}
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, r)
			if w.Code >= http.StatusInternalServerError {
				t.Fatalf("%s: %d: %s", method, w.Code, w.Body)
			}
		}
	})
}
