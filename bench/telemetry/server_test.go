package telemetry

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"watchlab/bench/lab"
	"watchlab/loadgen/apiserver"
)

// get returns the status, the content type and the body. It closes the connection.
func get(t *testing.T, url, accept string) (int, string, string) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	req.Close = true
	req.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body := must(io.ReadAll(res.Body))(t)
	return res.StatusCode, res.Header.Get("Content-Type"), string(body)
}

func serve(t *testing.T, opts Options, r *Registry) *Server {
	t.Helper()
	s := must(listen(opts, r, func(error) {}))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// TestFormats: the server negotiates the format.
func TestFormats(t *testing.T) {
	r := New("test", "")
	r.Set(LabelsOf("", lab.Labels{{Key: "impl", Value: "ring"}})).Observe(ReleasedHandled, 1e6)
	s := serve(t, Options{MetricsAddr: "127.0.0.1:0"}, r)
	for accept, want := range map[string]string{
		"": "text/plain",
		"application/openmetrics-text;version=1.0.0":                                                                 "application/openmetrics-text",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,*/*;q=0.1": "application/vnd.google.protobuf",
	} {
		status, kind, body := get(t, s.URL()+"/metrics", accept)
		if status != http.StatusOK || !strings.HasPrefix(kind, want) || !strings.Contains(body, "watchlab_end_to_end_latency_seconds") {
			t.Errorf("%q: status %d, %s, %d bytes", accept, status, kind, len(body))
		}
		if strings.Contains(kind, "openmetrics") != strings.HasSuffix(body, "# EOF\n") {
			t.Errorf("%q: the end is %q", accept, body[max(0, len(body)-20):])
		}
	}
}

func TestReadiness(t *testing.T) {
	s := serve(t, Options{MetricsAddr: "127.0.0.1:0"}, New("test", ""))
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusServiceUnavailable} {
		if got, _, _ := get(t, s.URL()+"/readyz", ""); got != want {
			t.Errorf("readyz: %d, want %d", got, want)
		}
		if got, _, _ := get(t, s.URL()+"/healthz", ""); got != http.StatusOK {
			t.Errorf("healthz: %d", got)
		}
		s.Ready(want == http.StatusServiceUnavailable)
	}
}

// TestWho: on loopback pprof needs the token. Other addresses need the user's wish, and then all but probes for
// pods needs the token.
func TestWho(t *testing.T) {
	if _, err := listen(Options{MetricsAddr: "[::]:0"}, New("test", ""), nil); !errors.Is(err, ErrAddress) || !errors.Is(err, apiserver.ErrOpenToAll) {
		t.Errorf("without the user's wish: %v", err)
	}
	home, all := serve(t, Options{MetricsAddr: "127.0.0.1:0"}, New("test", "")), serve(t, Options{MetricsAddr: "[::]:0", Insecure: true}, New("test", ""))
	pods := serve(t, Options{MetricsAddr: "[::]:0", Public: true}, New("test", ""))
	if len(home.Token()) < 26 || len(all.Token()) < 26 || pods.Token() != "" {
		t.Errorf("tokens %q, %q and %q", home.Token(), all.Token(), pods.Token())
	}
	figures := map[string]bool{"/metrics": true, "/healthz": true}
	for _, path := range []string{"/", "/metrics", "/healthz", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/symbol"} {
		public, open := http.StatusNotFound, http.StatusOK
		if figures[path] {
			public = http.StatusOK
		}
		if strings.HasPrefix(path, "/debug/") {
			open = http.StatusUnauthorized
		}
		for _, tc := range []struct {
			s              *Server
			user, password string
			want           int
		}{
			{home, "", "", open},
			{home, "watchlab", all.Token(), open},
			{home, "watchlab", home.Token(), http.StatusOK},
			{all, "", "", http.StatusUnauthorized},
			{all, "watchlab", "wrong", http.StatusUnauthorized},
			{all, "watchlab", all.Token(), http.StatusOK},
			{pods, "", "", public},
		} {
			req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, tc.s.URL()+path, nil))(t)
			req.Close = true
			if tc.user != "" {
				req.SetBasicAuth(tc.user, tc.password)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			// The end comes after the handler has returned: until then it counts as a scrape.
			_, err = io.Copy(io.Discard, res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != tc.want {
				t.Errorf("%s of %s with password %q: %d, %v, want %d", path, tc.s.URL(), tc.password, res.StatusCode, err, tc.want)
			}
			if ask := res.Header.Get("WWW-Authenticate"); tc.want == http.StatusUnauthorized && ask == "" {
				t.Errorf("%s of %s asks for %q", path, tc.s.URL(), ask)
			}
		}
	}
	if got, _, _ := get(t, strings.Replace(home.URL(), "://", "://any:"+home.Token()+"@", 1)+"/debug/pprof/cmdline", ""); got != http.StatusNotFound {
		t.Errorf("the flags are shown: %d", got)
	}
}

func TestBadAddress(t *testing.T) {
	s := serve(t, Options{MetricsAddr: "127.0.0.1:0"}, New("test", ""))
	taken := strings.TrimPrefix(s.URL(), "http://")
	for _, addr := range []string{taken, "nonsense", "127.0.0.1:99999"} {
		if _, err := listen(Options{MetricsAddr: addr}, New("test", ""), nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want one that wraps %v", addr, err, ErrAddress)
		}
	}
}

// TestPage: the page is the report so far, which the browser reloads until the run is over.
func TestPage(t *testing.T) {
	r := New("test", "")
	s := serve(t, Options{MetricsAddr: "127.0.0.1:0"}, r)
	if r.Watched() {
		t.Error("somebody watches before the first request")
	}
	for _, tc := range []struct {
		want    string
		reloads bool
		then    func()
	}{
		{"Waiting for the first round.", true, func() { r.Show([]byte("ring leads"), false) }},
		{"ring leads", true, func() { r.Show([]byte("ring handles more"), true) }},
		{"ring handles more", false, func() {}},
	} {
		w := httptest.NewRecorder()
		s.server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.URL()+"/", nil))
		head := w.Header()
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), tc.want) || head.Get("Content-Security-Policy") != pagePolicy || (head.Get("Refresh") != "") != tc.reloads {
			t.Errorf("%d %v %s, want %q", w.Code, head, w.Body, tc.want)
		}
		tc.then()
	}
	if !r.Watched() {
		t.Error("nobody watches")
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
