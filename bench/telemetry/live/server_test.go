package live

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/loadgen/apiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get returns the status, the content type and the body. It closes the connection.
func get(t *testing.T, url, accept string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Accept", accept)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), string(body)
}

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	if opts.Registry == nil {
		opts.Registry = New("test", "")
	}
	s, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
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
	r.Set(Labels{Variant: "ring"}).Observe(ReleasedHandled, 1e6)
	s := start(t, Options{Addr: "127.0.0.1:0", Registry: r})
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
	s := start(t, Options{Addr: "127.0.0.1:0"})
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
	if _, err := Start(Options{Addr: "[::]:0", Registry: New("test", "")}); !errors.Is(err, ErrAddress) || !errors.Is(err, apiserver.ErrOpenToAll) {
		t.Errorf("without the user's wish: %v", err)
	}
	home, all := start(t, Options{Addr: "127.0.0.1:0"}), start(t, Options{Addr: "[::]:0", Insecure: true})
	pods := start(t, Options{Addr: "[::]:0", Public: true})
	if len(home.Token()) < 26 || len(all.Token()) < 26 || pods.Token() != "" {
		t.Errorf("tokens %q, %q and %q", home.Token(), all.Token(), pods.Token())
	}
	figures := map[string]bool{"/metrics": true, "/healthz": true}
	for _, path := range []string{"/", "/page.js", "/metrics", "/healthz", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/symbol"} {
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
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.s.URL()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
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

// TestLink: the link lets one browser in, once, and leaves no secret in its address; another one is refused. A
// browser sends the cookie to other ports of the host: it is neither the token nor the other server's.
func TestLink(t *testing.T) {
	storms, err := StartStorm(StormOptions{Addr: "127.0.0.1:0", Status: storming(&player{}).Status})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = storms.Close(context.Background()) }()
	home, all := start(t, Options{Addr: "127.0.0.1:0"}), start(t, Options{Addr: "[::]:0", Insecure: true})
	for s, landing := range map[*Server]string{storms: "/", home: "/debug/pprof/", all: "/"} {
		type answer struct {
			code    int
			at      string      // after redirections
			first   http.Header // of the redirection
			cookies []*http.Cookie
		}
		ask := func(jar http.CookieJar, method, url string) (a answer) {
			t.Helper()
			client := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
			req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			a.code, a.at = res.StatusCode, res.Request.URL.String()
			if first := res.Request.Response; first != nil {
				a.first, a.cookies = first.Header, first.Cookies()
			}
			return a
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		other, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		bare, _, _ := strings.Cut(s.Link(), "?")
		for _, wrong := range []string{bare, bare + "?token=", bare + "?token=" + s.Token(), bare + "?token=" + s.link + "x"} {
			if a := ask(jar, http.MethodGet, wrong); a.code != http.StatusUnauthorized {
				t.Errorf("GET %s: %d", wrong, a.code)
			}
		}
		ask(jar, http.MethodHead, s.Link()) // A preview does not use it up.
		a := ask(jar, http.MethodGet, s.Link())
		if a.code != http.StatusOK || a.at != s.URL()+landing {
			t.Errorf("%s leads to %s: %d", s.Link(), a.at, a.code)
		}
		if len(a.cookies) != 1 || !a.cookies[0].HttpOnly || a.cookies[0].SameSite != http.SameSiteStrictMode ||
			a.cookies[0].Value == s.Token() || a.cookies[0].Value == s.link || a.first.Get("Cache-Control") != "no-store" {
			t.Errorf("%s sets %v", s.Link(), a.cookies)
		}
		if a := ask(jar, http.MethodGet, s.Link()); a.code != http.StatusOK || strings.Contains(a.at, "?") {
			t.Errorf("again from the same browser: %d at %s", a.code, a.at)
		}
		if a := ask(other, http.MethodGet, s.Link()); a.code != http.StatusUnauthorized {
			t.Errorf("from another browser: %d", a.code)
		}
		for _, neighbour := range []*Server{storms, home, all} {
			host := strings.Replace(neighbour.URL(), "localhost", "127.0.0.1", 1)
			if a := ask(jar, http.MethodGet, host+neighbour.landing); neighbour != s && a.code != http.StatusUnauthorized {
				t.Errorf("the cookie of %s at %s: %d", s.URL(), host, a.code)
			}
		}
	}
}

func TestBadAddress(t *testing.T) {
	s := start(t, Options{Addr: "127.0.0.1:0"})
	taken := strings.TrimPrefix(s.URL(), "http://")
	for _, addr := range []string{taken, "nonsense", "127.0.0.1:99999"} {
		if _, err := Start(Options{Addr: addr}); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want one that wraps %v", addr, err, ErrAddress)
		}
	}
}

// TestCloseEndsStreams: an endless response does not block Close.
func TestCloseEndsStreams(t *testing.T) {
	s := start(t, Options{Addr: "127.0.0.1:0"})
	defer http.DefaultClient.CloseIdleConnections()
	res, err := http.Get(s.URL() + "/updates")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}
