package inflate_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"watchlab/impls/inflate"
)

// TestConfig: each variant reads what net/http reads, an event as soon as it is sent, over HTTP/1 and HTTP/2.
func TestConfig(t *testing.T) {
	events := []string{strings.Repeat("event ", 2000), "a", strings.Repeat("bookmark", 9)}
	next := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, flush := io.Writer(w), func() {}
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			gz := gzip.NewWriter(w)
			out, flush = gz, func() { _, _ = gz.Flush(), gz.Close(); gz.Reset(w) }
		}
		_ = http.NewResponseController(w).Flush()
		for _, e := range events {
			_, _ = io.WriteString(out, e)
			flush()
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, v := range inflate.Variants() {
		d, _ := v.New(inflate.Options{})
		for _, protos := range [][]string{{"http/1.1"}, nil} {
			config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: protos}}
			client, err := rest.HTTPClientFor(d.Config(config))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Uncompressed != (v.Name != "none") || resp.ContentLength != -1 || resp.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s: uncompressed %v, header %v", v.Name, resp.Uncompressed, resp.Header)
			}
			for _, e := range events {
				got := make([]byte, len(e))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != e {
					t.Fatalf("%s, %s: %q, %v", v.Name, resp.Proto, got, err)
				}
				next <- struct{}{}
			}
			rest, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil || len(rest) > 0 {
				t.Errorf("%s ends with %q, %v", v.Name, rest, err)
			}
		}
	}
}

// TestAsAsked: a caller that chooses an encoding gets it as it comes.
func TestAsAsked(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Accept-Encoding"))
	}))
	defer server.Close()
	for _, v := range inflate.Variants() {
		d, _ := v.New(inflate.Options{})
		client, err := rest.HTTPClientFor(d.Config(&rest.Config{Host: server.URL}))
		if err != nil {
			t.Fatal(err)
		}
		for header, want := range map[string]string{"Accept-Encoding": "br", "Range": ""} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(header, "br")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil || string(got) != want {
				t.Errorf("%s: %s: the server was asked for %q, %v", v.Name, header, got, err)
			}
		}
		plain := &rest.Config{DisableCompression: true}
		if d.Config(plain) != plain {
			t.Errorf("%s compresses against DisableCompression", v.Name)
		}
	}
}

// TestMembersAreFree: a member allocates nothing, whatever it has.
func TestMembersAreFree(t *testing.T) {
	var body bytes.Buffer
	for range 1000 {
		gz, _ := gzip.NewWriterLevel(&body, 1)
		_, _ = io.WriteString(gz, strings.Repeat("a pod and its status ", 300))
		_ = gz.Close()
	}
	d, _ := inflate.New("members", inflate.Options{})
	many := d.NewReader(&body)
	p := make([]byte, 64<<10)
	read := func() {
		if n, err := many.Read(p); n == 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	for range 50 {
		read()
	}
	if n := testing.AllocsPerRun(100, read); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}
