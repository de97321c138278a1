package apiserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestRoundTrip writes a kubeconfig. client-go uses it to reach a TLS server by address
// and by name. The server refuses a client without the token.
func TestRoundTrip(t *testing.T) {
	id, err := NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token := NewToken()
	server := httptest.NewUnstartedServer(RequireToken(token, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, req.Proto)
	})))
	server.TLS = id.ServerConfig()
	server.StartTLS()
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if err := WriteKubeconfig(path, Kubeconfig{Server: "https://" + net.JoinHostPort(host, port), CA: id.CA, Token: token}, false); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the kubeconfig has mode %v", info.Mode())
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if body, code := ask(t, config); code != http.StatusOK || body != "HTTP/2.0" {
			t.Errorf("%s: %d %s", host, code, body)
		}
		config.BearerToken = "another"
		if _, code := ask(t, config); code != http.StatusUnauthorized {
			t.Errorf("%s with another token: %d", host, code)
		}
	}
}

func ask(t *testing.T, config *rest.Config) (string, int) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := wrapped.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), resp.StatusCode
}

func TestIdentity(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	id, err := NewIdentity(now, "10.1.2.3", "lab.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(id.CA) {
		t.Fatal("the CA is no PEM")
	}
	leaf, err := x509.ParseCertificate(id.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true, "10.1.2.3": true, "lab.example.com": true, "10.1.2.4": false, "example.com": false} {
		_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now})
		if (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, at := range []time.Time{now.Add(-2 * time.Hour), now.Add(lifetime + time.Hour)} {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "localhost", Roots: roots, CurrentTime: at}); err == nil {
			t.Errorf("the certificate is valid at %v", at)
		}
	}
	other, err := NewIdentity(now)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := x509.ParseCertificate(other.Certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err == nil {
		t.Error("another server's certificate is trusted")
	}
	if id.ServerConfig().MinVersion < tls.VersionTLS12 {
		t.Error("old TLS is taken")
	}
}

// TestRequireTokens: a token names its client; without one the answer is a real server's.
func TestRequireTokens(t *testing.T) {
	client := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "client "+ClientOf(r.Context()))
	})
	const unauthorized = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}` + "\n"
	two := map[string]string{"one": "first", "two": "second"}
	for _, tc := range []struct {
		handler      http.Handler
		header, want string
	}{
		{RequireTokens(two, client), "Bearer one", "client first"},
		{RequireTokens(two, client), "bearer  two ", "client second"},
		{RequireTokens(two, client), "Bearer three", unauthorized},
		{RequireTokens(two, client), "Bearer onetwo", unauthorized},
		{RequireTokens(two, client), "Bearer One", unauthorized},
		{RequireTokens(two, client), "Bearer ", unauthorized},
		{RequireTokens(two, client), "Bearer", unauthorized},
		{RequireTokens(two, client), "Basic one", unauthorized},
		{RequireTokens(two, client), "one", unauthorized},
		{RequireTokens(two, client), "", unauthorized},
		{RequireToken("secret", client), "Bearer secret", "client "},
		{RequireToken("secret", client), "Bearer secre", unauthorized},
		{RequireToken("", client), "", "client "},
	} {
		req := httptest.NewRequest(http.MethodGet, "/api", nil)
		req.Header.Set("Authorization", tc.header)
		rec := httptest.NewRecorder()
		if tc.handler.ServeHTTP(rec, req); rec.Body.String() != tc.want || (rec.Code == http.StatusUnauthorized) != (tc.want == unauthorized) {
			t.Errorf("%q: %d %s, want %s", tc.header, rec.Code, rec.Body, tc.want)
		}
	}
}

// TestAccountTokens: the server accepts the token of a service account, and a review knows each token for its audience.
func TestAccountTokens(t *testing.T) {
	srv, err := Open(Options{Wrap: func(h http.Handler) http.Handler { return RequireTokens(map[string]string{"secret": "me"}, h) }})
	if err != nil {
		t.Fatal(err)
	}
	post := func(token, path, body string) (answer string) {
		t.Helper()
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		srv.handler.ServeHTTP(rec, req)
		return rec.Body.String()
	}
	post("secret", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"a"}}`)
	issue := func(spec string) string {
		var got authenticationv1.TokenRequest
		if err := json.Unmarshal([]byte(post("secret", "/api/v1/namespaces/default/serviceaccounts/a/token", spec)), &got); err != nil {
			t.Fatal(err)
		}
		return got.Status.Token
	}
	own, other := issue(`{}`), issue(`{"spec":{"audiences":["other"]}}`)
	const self, reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews", "/apis/authentication.k8s.io/v1/tokenreviews"
	for _, tc := range []struct{ token, path, body, want string }{
		{"secret", self, `{}`, `"username":"me"`},
		{own, self, `{}`, `"username":"system:serviceaccount:default:a"`},
		{other, self, `{}`, "Unauthorized"},
		{own + "x", self, `{}`, "Unauthorized"},
		{"secret", reviews, `{"spec":{"token":"secret"}}`, `"authenticated":true,"user":{"username":"me"`},
		{own, reviews, `{"spec":{"token":"secret"}}`, `"authenticated":true,"user":{"username":"me"`},
		{"secret", reviews, `{"spec":{"token":"` + own + `"}}`, `"groups":["system:serviceaccounts","system:serviceaccounts:default","system:authenticated"]`},
		{"secret", reviews, `{"spec":{"token":"` + other + `"}}`, "invalid bearer token"},
		{"secret", reviews, `{"spec":{"token":"` + other + `","audiences":["other","more"]}}`, `"audiences":["other"]`},
		{"secret", reviews, `{"spec":{"token":"` + own[:len(own)-4] + `"}}`, "invalid bearer token"},
	} {
		if got := post(tc.token, tc.path, tc.body); !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: %s, want %s", tc.path, tc.body, got, tc.want)
		}
	}
}

func TestNewToken(t *testing.T) {
	a, b := NewToken(), NewToken()
	if a == b || len(a) < 26 || strings.ContainsAny(a, " \n+/=") {
		t.Errorf("tokens %q and %q", a, b)
	}
}

// TestListen: beyond loopback a listener needs a token, and TLS or the user's wish.
func TestListen(t *testing.T) {
	for _, tc := range []struct {
		address string
		access  Access
		open    bool
	}{
		{"127.0.0.1:0", Access{}, true},
		{"127.8.8.8:0", Access{}, true},
		{"localhost:0", Access{}, true},
		{":0", Access{}, false},
		{"0.0.0.0:0", Access{}, false},
		{"0.0.0.0:0", Access{TLS: true}, false},
		{"0.0.0.0:0", Access{Insecure: true}, false},
		{"0.0.0.0:0", Access{Token: "token"}, false},
		{"[::]:0", Access{Token: "token"}, false},
		{"0.0.0.0:0", Access{Token: "token", TLS: true}, true},
		{"0.0.0.0:0", Access{Token: "token", Insecure: true}, true},
		{"0.0.0.0:0", Access{Public: true}, true},
	} {
		l, err := tc.access.Listen(tc.address)
		if (err == nil) != tc.open || err != nil && !errors.Is(err, ErrOpenToAll) {
			t.Errorf("%s for %+v: %v", tc.address, tc.access, err)
		}
		if err == nil {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := (Access{}).Listen("nowhere"); err == nil {
		t.Error("an address without a port is accepted")
	}
}

// listenerAt is a listener that has an address and accepts nothing.
type listenerAt struct {
	net.Listener
	ip net.IP
}

func (l listenerAt) Addr() net.Addr { return &net.TCPAddr{IP: l.ip, Port: 1234} }

// TestOtherSites: what a browser sends for the page of another web site does not reach a server.
func TestOtherSites(t *testing.T) {
	passed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	home, all := HTTPServer(listenerAt{ip: net.IPv4(127, 0, 0, 1)}, passed, 0), HTTPServer(listenerAt{ip: net.IPv4zero}, passed, 0)
	for _, tc := range []struct {
		server *http.Server
		method string
		host   string
		header [2]string
		code   int
	}{
		{home, http.MethodGet, "127.0.0.1:1234", [2]string{}, http.StatusTeapot},
		{home, http.MethodGet, "localhost", [2]string{}, http.StatusTeapot},
		{home, http.MethodGet, "[::1]:1234", [2]string{}, http.StatusTeapot},
		{home, http.MethodGet, "rebound.example.com:1234", [2]string{}, http.StatusForbidden},
		{home, http.MethodGet, "localhost.example.com", [2]string{}, http.StatusForbidden},
		{home, http.MethodGet, "10.0.0.1:1234", [2]string{}, http.StatusForbidden},
		{home, http.MethodGet, "127.0.0.1@example.com", [2]string{}, http.StatusForbidden},
		{home, http.MethodGet, "", [2]string{}, http.StatusForbidden},
		{home, http.MethodPost, "127.0.0.1:1234", [2]string{"Origin", "http://127.0.0.1:1234"}, http.StatusTeapot},
		{home, http.MethodPost, "127.0.0.1:1234", [2]string{"Origin", "http://example.com"}, http.StatusForbidden},
		{home, http.MethodPost, "127.0.0.1:1234", [2]string{"Origin", "http://127.0.0.1:99"}, http.StatusForbidden},
		{home, http.MethodDelete, "127.0.0.1:1234", [2]string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		// Beyond loopback a token decides, which another site does not have.
		{all, http.MethodGet, "lab.example.com:1234", [2]string{}, http.StatusTeapot},
		{all, http.MethodPost, "lab.example.com:1234", [2]string{"Origin", "http://example.com"}, http.StatusForbidden},
	} {
		req := httptest.NewRequest(tc.method, "/", nil)
		req.Host = tc.host
		if tc.header[0] != "" {
			req.Header.Set(tc.header[0], tc.header[1])
		}
		w := httptest.NewRecorder()
		if tc.server.Handler.ServeHTTP(w, req); w.Code != tc.code {
			t.Errorf("%s for %q with %v: %d, want %d", tc.method, tc.host, tc.header, w.Code, tc.code)
		}
	}
}

// TestRequestBounds: a server refuses long headers, long bodies and too many connections.
func TestRequestBounds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := start(t, pods(40), Options{})
	res, err := s.client.Post(s.url+"/api/v1/namespaces", "application/json", strings.NewReader(strings.Repeat(" ", maxBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body: %s, %v", res.Status, err)
	}
	address := strings.TrimPrefix(s.url, "http://")
	send := func(text string) string {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(c).ReadString('\n') // of the answer; none is no error here
		return line
	}
	if got := send("GET /version HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n"); !strings.Contains(got, " 431 ") {
		t.Errorf("a long header: %q", got)
	}

	l, err := Access{}.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	few := HTTPServer(l, http.NotFoundHandler(), 1)
	served := make(chan error, 1)
	go func() { served <- few.Serve(l) }()
	defer func() {
		if err := few.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	address = l.Addr().String()
	first, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	request := "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if _, err := io.WriteString(first, request); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(first).ReadString('\n'); err != nil || !strings.Contains(line, " 404 ") {
		t.Errorf("the first connection: %q, %v", line, err)
	}
	if got := send(request); got != "" {
		t.Errorf("the second connection: %q", got)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	for got := ""; got == ""; got = send(request) {
		if ctx.Err() != nil {
			t.Fatal("no connection after the first one")
		}
	}
}

// TestForeignFile keeps the files of other programs.
func TestForeignFile(t *testing.T) {
	dir := t.TempDir()
	k := Kubeconfig{Server: "https://127.0.0.1:1"}
	foreign := filepath.Join(dir, "config")
	if err := os.WriteFile(foreign, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(foreign, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{foreign, link} {
		if err := WriteKubeconfig(path, k, false); !errors.Is(err, ErrForeignFile) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if data, err := os.ReadFile(foreign); err != nil || string(data) != "mine" {
		t.Errorf("it holds %q, %v", data, err)
	}
	if err := WriteKubeconfig(foreign, k, true); err != nil {
		t.Errorf("with overwrite: %v", err)
	}
	if info, err := os.Stat(foreign); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("overwritten: %v, %v", info.Mode(), err)
	}
	if err := WriteKubeconfig(dir, k, true); err == nil {
		t.Error("a folder is overwritten")
	}
	if err := WriteKubeconfig(filepath.Join(dir, "no", "such"), k, false); err == nil {
		t.Error("a missing folder is created")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("files remain: %v", entries)
	}
}
