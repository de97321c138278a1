package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // handlers on http.DefaultServeMux
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"watchlab/loadgen/apiserver"
)

var ErrAddress = errors.New("cannot listen") // returned for an address that the server cannot listen on

const (
	maxConnections = 64 // of a server
	// Concurrent scrapes; further ones get 503. They take CPU from the measured pipeline.
	maxScrapes = 2

	reloadEvery = 2 * time.Second // interval of the page's reloads
)

// Server serves until it is closed:
//
//	/             the report of the rounds so far, reloaded during the run
//	/metrics      OpenMetrics, Prometheus text, or protobuf with native histograms,
//	              by content negotiation
//	/healthz      200 while the process answers
//	/readyz       200 during a run, else 503
//	/debug/pprof  the Go runtime's pprof profiles
//
// The token is a bearer token, or the password of any user, for which browsers ask. On loopback only /debug/pprof
// needs it, elsewhere all; a public server, which has metrics and probes only, needs none.
type Server struct {
	token    string // empty if nothing needs one
	listener net.Listener
	server   *http.Server
	log      *log.Logger // of errors while serving
	ready    atomic.Bool
	ended    chan struct{}
}

// listen serves the metrics of a registry. warn receives errors while serving. The error wraps [ErrAddress].
func listen(opts Options, r *Registry, warn func(error)) (*Server, error) {
	access := apiserver.Access{Token: apiserver.NewToken(), Insecure: opts.Insecure, Public: opts.Public}
	l, err := access.Listen(opts.MetricsAddr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	s := &Server{
		token: access.Token, listener: l,
		log: log.New(warner(warn), "", 0), ended: make(chan struct{}),
	}
	var h http.Handler = s.mux(r, opts.Public)
	switch {
	case opts.Public:
		s.token = ""
	case !apiserver.Loopback(l):
		h = s.admit(h)
	}
	s.server = apiserver.HTTPServer(s.listener, h, maxConnections)
	s.server.ErrorLog = s.log
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Print(err)
		}
	}()
	return s, nil
}

func (s *Server) mux(r *Registry, public bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorLog: s.log, ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "no run is in progress", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	if !public {
		mux.Handle("GET /debug/pprof/", s.admit(http.DefaultServeMux))
		mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler()) // The flags may hold passwords.
		mux.HandleFunc("GET /{$}", r.servePage)
	}
	return mux
}

// admit passes on requests with the token.
func (s *Server) admit(next http.Handler) http.Handler {
	checked := apiserver.RequireToken(s.token, next)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="watchlab"`)
		if _, password, ok := req.BasicAuth(); ok {
			req.Header.Set("Authorization", "Bearer "+password)
		}
		checked.ServeHTTP(w, req)
	})
}

// Token is the bearer token, or the password of any user; empty if nothing needs one.
func (s *Server) Token() string { return s.token }

// Ready sets whether a run is in progress.
func (s *Server) Ready(is bool) { s.ready.Store(is) }

// URL of the server, with the actual port.
func (s *Server) URL() string {
	at := s.listener.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
}

// Close lets requests finish until ctx ends, and then closes their connections.
func (s *Server) Close(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = s.server.Close()
	}
	<-s.ended
	return err
}

type warner func(error)

func (w warner) Write(p []byte) (int, error) {
	w(errors.New(string(p)))
	return len(p), nil
}

// pagePolicy is that of the report: one file with its own style and script.
const pagePolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (r *Registry) servePage(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	page, over := r.page, r.over
	r.asked = time.Now()
	r.mu.Unlock()
	head := w.Header()
	head.Set("Content-Security-Policy", pagePolicy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-cache")
	head.Set("Content-Type", "text/html; charset=utf-8")
	if !over {
		head.Set("Refresh", fmt.Sprint(reloadEvery.Seconds()))
	}
	if page == nil {
		page = []byte("<!doctype html>\n<title>watchlab</title>\n<p>Waiting for the first round.\n")
	}
	_, _ = w.Write(page) // The viewer may have gone.
}
