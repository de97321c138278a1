package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"watchlab/bench/telemetry/expose"
	"watchlab/bench/telemetry/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get returns the status, the content type and the body. The connection is not
// kept.
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
	if opts.Metrics == nil {
		opts.Metrics = prometheus.NewRegistry()
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

// TestFormats: a client gets the format that it asks for; only protobuf has native
// histograms.
func TestFormats(t *testing.T) {
	r := expose.New("test", "")
	p := r.Set(probe.Labels{Variant: "ring"}).Probe()
	p.Observe(probe.ReleasedHandled, time.Millisecond)
	p.Close()
	s := start(t, Options{Addr: "127.0.0.1:0", Metrics: r})
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

// TestPprof: profiles tell much of a process, so that they are on loopback alone
// unless they are asked for.
func TestPprof(t *testing.T) {
	for _, test := range []struct {
		addr  string
		pprof bool
		want  int
	}{
		{"127.0.0.1:0", false, http.StatusOK},
		{"[::]:0", false, http.StatusNotFound},
		{"[::]:0", true, http.StatusOK},
	} {
		s := start(t, Options{Addr: test.addr, Pprof: test.pprof})
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
			if got, _, _ := get(t, s.URL()+path, ""); got != test.want {
				t.Errorf("%s, asked for %v: %s is %d, want %d", test.addr, test.pprof, path, got, test.want)
			}
		}
	}
}

func TestBadAddress(t *testing.T) {
	s := start(t, Options{Addr: "127.0.0.1:0"})
	taken := strings.TrimPrefix(s.URL(), "http://")
	for _, addr := range []string{taken, "nonsense", "127.0.0.1:99999"} {
		if _, err := Start(Options{Addr: addr, Metrics: prometheus.NewRegistry()}); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v, want one that wraps %v", addr, err, ErrAddress)
		}
	}
}

// TestCloseCutsOff: what is served for ever doesn't keep the server from
// closing.
func TestCloseCutsOff(t *testing.T) {
	begun := make(chan struct{})
	s, err := Start(Options{Addr: "127.0.0.1:0", Metrics: prometheus.NewRegistry(), Extra: map[string]http.Handler{
		"GET /ever": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		res, err := http.Get(s.URL() + "/ever")
		if err == nil {
			_ = res.Body.Close()
		}
	}()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	<-asked
	http.DefaultClient.CloseIdleConnections()
}
