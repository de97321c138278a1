package apiserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSlowClients: a connection whose handshake, headers or body drip, that says nothing, or that does not read is
// closed at the bound. Meanwhile others are served. A client without the token takes no seat.
func TestSlowClients(t *testing.T) {
	const big, post = "GET /api/v1/namespaces/default/configmaps/big HTTP/1.1\r\nHost: localhost\r\n", "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
	const token = "Authorization: Bearer token\r\n"
	for name, tc := range map[string]struct {
		tls         bool
		first, drip string
		silent      bool // does not read
		closed      time.Duration
	}{
		"headers drip":           {false, "GET /version HTTP/1.1\r\nA: ", "a", false, headerTimeout},
		"says nothing":           {false, "", "", false, headerTimeout},
		"nothing more":           {false, big + token + "\r\n", "", false, idleTimeout},
		"body drips":             {false, post + token + "\r\n{", " ", false, readTimeout},
		"body drips, no token":   {false, post + "\r\n{", " ", false, readTimeout},
		"does not read":          {false, big + token + "\r\n", "", true, writeTimeout},
		"handshake drips":        {true, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a", false, headerTimeout},
		"says nothing, with TLS": {true, "", "", false, headerTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, l := slowly(t, tc.tls)
				done := make(chan struct{})
				served := make(chan int)
				go func() { served <- others(t, l, tc.tls, done) }()
				began := time.Now()
				c, err := l.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan time.Duration, 2)
				if !tc.silent {
					go func() {
						_, _ = io.Copy(io.Discard, c) // until the server closes it
						ended <- time.Since(began)
						_ = c.Close()
					}()
				}
				var writer sync.WaitGroup
				writer.Go(func() {
					_, err := io.WriteString(c, tc.first)
					for err == nil && tc.drip != "" {
						time.Sleep(time.Second)
						_, err = io.WriteString(c, tc.drip)
					}
					if !tc.silent {
						return
					}
					time.Sleep(time.Second)
					for len(srv.seats) > 0 { // A read would take what the server waits to write.
						time.Sleep(time.Second)
					}
					_, _ = io.Copy(io.Discard, c)
					ended <- time.Since(began)
				})
				time.Sleep(2500 * time.Millisecond) // The others ask at whole seconds.
				if busy := len(srv.seats) > 0; busy && !strings.Contains(tc.first, token) {
					t.Error("a client without the token has a seat")
				}
				if got := <-ended; got < tc.closed || got > tc.closed+5*time.Second {
					t.Errorf("closed after %v, want %v", got, tc.closed)
				}
				close(done)
				writer.Wait()
				if n := <-served; n < int(tc.closed/time.Second) {
					t.Errorf("others got %d answers in %v", n, tc.closed)
				}
				if err := errors.Join(c.Close(), srv.Close()); err != nil || len(srv.seats) > 0 {
					t.Errorf("%v, %d seats are taken", err, len(srv.seats))
				}
			})
		})
	}
}

// TestIdleWatch: a watch without events outlives the bounds of requests.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, l := slowly(t, false)
		client, end := clientOf(l, false)
		defer end()
		req, err := newRequest(t.Context(), http.MethodGet, "/api/v1/namespaces?watch=1&resourceVersion=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * max(readTimeout, writeTimeout, idleTimeout))
		if code, answer := srv.ask(http.MethodPost, "/api/v1/namespaces", "", "application/json", `{"metadata":{"name":"late"}}`); code != http.StatusCreated {
			t.Fatal(answer)
		}
		frames := json.NewDecoder(res.Body)
		for name := ""; name != "late"; {
			var frame struct{ Object metav1.PartialObjectMetadata }
			if err := frames.Decode(&frame); err != nil {
				t.Fatal(err)
			}
			name = frame.Object.Name
		}
		if err := errors.Join(res.Body.Close(), srv.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowStreams: a stream of HTTP/2 whose body drips, or that is not read, is reset at the bound. Other streams of
// the same connection are served.
func TestSlowStreams(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		bound        time.Duration
	}{
		"body drips":    {http.MethodPost, "/api/v1/namespaces", readTimeout},
		"does not read": {http.MethodGet, "/api/v1/namespaces/default/configmaps/big", writeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, l := slowly(t, true)
				client, end := clientOf(l, true)
				began := time.Now()
				var body io.Reader
				if tc.method == http.MethodPost {
					r, w := io.Pipe()
					var writer sync.WaitGroup
					writer.Go(func() {
						for _, err := io.WriteString(w, " "); err == nil; _, err = io.WriteString(w, " ") {
							time.Sleep(time.Second)
						}
					})
					defer writer.Wait()
					defer func() { _ = w.Close() }()
					body = r
				}
				slow := make(chan error, 1)
				free := make(chan struct{})
				go func() {
					slow <- func() error {
						req, err := newRequest(t.Context(), tc.method, tc.path, body)
						if err != nil {
							return err
						}
						res, err := client.Do(req)
						if err != nil {
							return nil // The stream was reset.
						}
						defer func() { _ = res.Body.Close() }()
						<-free
						data, err := io.ReadAll(res.Body)
						if res.StatusCode == http.StatusOK && err == nil || res.StatusCode >= http.StatusInternalServerError {
							return fmt.Errorf("%s with %d bytes", res.Status, len(data))
						}
						return nil
					}()
				}()
				n := 0
				for time.Since(began) < time.Second || len(srv.seats) > 0 && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
					n += answered(t, client)
				}
				if got := time.Since(began); got < tc.bound || got > tc.bound+5*time.Second || n < int(tc.bound/time.Second) {
					t.Errorf("the seat is free after %v, want %v; others got %d answers", got, tc.bound, n)
				}
				close(free)
				if err := <-slow; err != nil {
					t.Error(err)
				}
				end()
				if err := srv.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowly serves a configmap of 1 MB to clients with a token, on pipes.
func slowly(t *testing.T, encrypted bool) (*Server, *pipes) {
	t.Helper()
	srv, err := Open(Options{Wrap: func(h http.Handler) http.Handler { return RequireToken("token", h) }})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := srv.ask(http.MethodPost, "/api/v1/namespaces/default/configmaps", "", "application/json",
		`{"metadata":{"name":"big"},"data":{"a":"`+strings.Repeat("x", 1<<20)+`"}}`); code != http.StatusCreated {
		t.Fatal(answer)
	}
	l := newPipes()
	var config *tls.Config
	if encrypted {
		id, err := NewIdentity(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		config = id.ServerConfig()
	}
	if _, err := srv.Serve(l, config); err != nil {
		t.Fatal(err)
	}
	return srv, l
}

// clientOf returns a client that keeps one connection, of HTTP/2 if encrypted.
func clientOf(l *pipes, encrypted bool) (client *http.Client, end func()) {
	transport := &http.Transport{
		DisableCompression: true, // A compressed answer would fit into the window of a stream.
		DialContext:        l.dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: encrypted,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 16},
	}
	client = &http.Client{Transport: transport}
	if encrypted {
		client.Transport = secured{transport}
	}
	return client, transport.CloseIdleConnections
}

// secured sends requests over TLS.
type secured struct{ *http.Transport }

func (s secured) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Scheme = "https"
	return s.Transport.RoundTrip(req)
}

func newRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err == nil {
		req.Header.Set("Authorization", "Bearer token")
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

// answered returns 1 for an answer.
func answered(t *testing.T, client *http.Client) int {
	req, err := newRequest(t.Context(), http.MethodGet, "/api/v1/namespaces/default", nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
		t.Error(fmt.Errorf("%s, %w", res.Status, err))
		return 0
	}
	return 1
}

// others sends a request a second until done, and returns the number of answers.
func others(t *testing.T, l *pipes, encrypted bool, done <-chan struct{}) (n int) {
	client, end := clientOf(l, encrypted)
	defer end()
	for {
		n += answered(t, client)
		select {
		case <-done:
			return n
		case <-time.After(time.Second):
		}
	}
}
