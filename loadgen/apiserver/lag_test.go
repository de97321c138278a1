package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// await waits until a condition holds.
func await(ctx context.Context, t *testing.T, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, ctx.Err())
		}
		runtime.Gosched()
	}
}

// TestLags: a client that does not read falls behind, over HTTP/1.1 and HTTP/2, and catches up when it reads.
func TestLags(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := bulky()
			srv, err := New(s, Options{Wrap: func(next http.Handler) http.Handler {
				return RequireTokens(map[string]string{"token": "slow"}, next)
			}})
			if err != nil {
				t.Fatal(err)
			}
			transport := &http.Transport{DisableCompression: true}
			url := serveOver(t, srv, transport, protocol, srv.Start)
			if lags := srv.Lags(); len(lags) != 0 {
				t.Errorf("without a watch: %+v", lags)
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/pods?watch=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer token")
			res, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			if res.Proto != protocol {
				t.Errorf("protocol %s", res.Proto)
			}
			await(ctx, t, "a watch", func() bool { return len(srv.Lags()) == 1 })
			want := Lag{Client: "slow", Resource: v1.SchemeGroupVersion.WithResource("pods")}
			if got := srv.Lags()[0]; got.Client != want.Client || got.Resource != want.Resource || got.Events != 0 {
				t.Errorf("before the storm: %+v, want %+v", got, want)
			}
			srv.Release(uint64(len(s.Events)))
			if got := srv.Lags()[0]; got.Events <= 0 || got.Events > len(s.Events) {
				t.Errorf("while the client does not read: %+v", got)
			}
			r := bufio.NewReaderSize(res.Body, 64<<10) // longer than a frame
			for range s.Events {
				if _, err := r.ReadSlice('\n'); err != nil {
					t.Fatal(err)
				}
			}
			await(ctx, t, "no lag", func() bool { return srv.Lags()[0].Events == 0 })
			cancel()
			for len(srv.Lags()) > 0 {
				runtime.Gosched()
			}
		})
	}
}

// TestLagsOfWatches: each open watch has its own lag. Events that its selectors or its resource leave out are no lag.
func TestLagsOfWatches(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := start(t, bulky(), Options{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(WithClient(r.Context(), r.URL.Query().Get("resourceVersion"))))
		})
	}})
	for i, path := range []string{
		"/api/v1/pods?watch=1&resourceVersion=0",
		"/api/v1/pods?watch=1&resourceVersion=1&labelSelector=none%3Dsuch",
		"/api/v1/configmaps?watch=1",
	} {
		s.open(t, path)
		await(ctx, t, "a watch", func() bool { return len(s.Lags()) == i+1 })
	}
	s.Release(2500)
	pods := v1.SchemeGroupVersion.WithResource("pods")
	await(ctx, t, "no lag of the watch that selects nothing", func() bool { return s.Lags()[1].Events == 0 })
	all := s.Lags()
	if l := all[0]; l.Client != "0" || l.Resource != pods || l.Events <= 0 {
		t.Errorf("the watch of all pods, which is not read: %+v", l)
	}
	if l := all[1]; l.Client != "1" || l.Resource != pods {
		t.Errorf("the watch that selects nothing: %+v", l)
	}
	if l := all[2]; l.Resource != v1.SchemeGroupVersion.WithResource("configmaps") || l.Events != 0 {
		t.Errorf("the watch of another resource: %+v", l)
	}
}

// serveOver serves by TLS for HTTP/2.0, else by plain, until the end of the test.
func serveOver(t *testing.T, srv *Server, transport *http.Transport, protocol string, plain func() (string, error)) string {
	t.Helper()
	if protocol == "HTTP/2.0" {
		plain = func() (string, error) { return serveTLS(srv, transport) }
	}
	url, err := plain()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return url
}

// serveTLS serves with TLS to a transport that knows the certificate.
func serveTLS(srv *Server, transport *http.Transport) (url string, err error) {
	id, err := NewIdentity(time.Now())
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(id.CA)
	transport.TLSClientConfig, transport.ForceAttemptHTTP2 = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, true
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return srv.Serve(l, id.ServerConfig())
}
