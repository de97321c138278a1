// Package serve is the listener on which a run can be looked at:
//
//	/metrics      as OpenMetrics, as Prometheus text or as protobuf (with native
//	              histograms), as the client asks
//	/healthz      200 as long as the process answers
//	/readyz       200 from when the run has begun until it is over, else 503
//	/debug/pprof  the Go runtime's profiles, where the address is a loopback one or
//	              it was asked for
//
// Other paths are the caller's to add.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ErrAddress is wrapped by the error for an address that cannot be listened on.
var ErrAddress = errors.New("cannot listen")

// Options of a server.
type Options struct {
	Addr string

	Metrics prometheus.Gatherer

	Pprof bool

	Extra map[string]http.Handler

	Warn func(string)
}

// Server serves until it is closed.
type Server struct {
	listener net.Listener
	server   *http.Server
	ready    atomic.Bool
	ended    chan struct{}
}

// slow is how long a client may take to send its request's head.
const slow = 5 * time.Second

// scrapes is how many scrapes are answered at once; more get 503, so that nobody
// can keep the machine from what is measured.
const scrapes = 2

// Start listens. The error wraps [ErrAddress].
func Start(opts Options) (*Server, error) {
	l, err := net.Listen("tcp", opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	s := &Server{listener: l, ended: make(chan struct{})}
	s.server = &http.Server{
		Handler:           s.mux(opts),
		ReadHeaderTimeout: slow,
		ErrorLog:          log.New(warner(opts.Warn), "", 0),
	}
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			opts.Warn(err.Error())
		}
	}()
	return s, nil
}

func (s *Server) mux(opts Options) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Metrics, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: scrapes,
		ErrorLog: log.New(warner(opts.Warn), "", 0), ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.ready.Load() {
			answer(w, http.StatusOK, "ok")
		} else {
			answer(w, http.StatusServiceUnavailable, "no run is in progress")
		}
	})
	if opts.Pprof || s.loopback() {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	for pattern, h := range opts.Extra {
		mux.Handle(pattern, h)
	}
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text)
}

func (s *Server) loopback() bool {
	a, ok := s.listener.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

// Ready says whether a run is in progress.
func (s *Server) Ready(is bool) { s.ready.Store(is) }

// URL of the server, with the port that it listens on.
func (s *Server) URL() string {
	a := s.listener.Addr().(*net.TCPAddr)
	host := a.IP.String()
	if a.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(a.Port))
}

// Close ends the server. Answers that are under way, as that to a last scrape, may
// finish until ctx ends; those that go on for ever are cut off then.
func (s *Server) Close(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = s.server.Close()
	}
	<-s.ended
	return err
}

// warner makes a writer of a function.
type warner func(string)

func (w warner) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
