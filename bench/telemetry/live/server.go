package live

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // handlers on http.DefaultServeMux
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var ErrAddress = errors.New("cannot listen") // returned for an address that the server cannot listen on

// Options of a server.
type Options struct {
	Addr     string       // host:port; port 0 selects a free one
	Registry *Registry    // has the served metrics; not nil
	Pprof    bool         // serves /debug/pprof on addresses other than the loopback too
	Warn     func(string) // receives errors while serving, one line each
}

const (
	headerTimeout = 5 * time.Second // bounds the time a client takes for its request header
	// Concurrent requests; further ones get 503. They take CPU from the measured pipeline.
	maxScrapes   = 2
	maxViewers   = 4
	sampleEvery  = time.Second     // interval of the page's samples
	writeTimeout = 5 * time.Second // bounds the time a viewer takes for a sample
)

// Server serves until it is closed:
//
//	/             the live page
//	/samples      server-sent events, one a second: a [Sample] in JSON
//	/metrics      OpenMetrics, Prometheus text, or protobuf with native histograms,
//	              by content negotiation
//	/healthz      200 while the process answers
//	/readyz       200 during a run, else 503
//	/debug/pprof  the Go runtime's pprof profiles, on loopback addresses or on request
type Server struct {
	listener net.Listener
	server   *http.Server
	ready    atomic.Bool
	ended    chan struct{}
}

// Start listens and serves. The error wraps [ErrAddress].
func Start(opts Options) (*Server, error) {
	return serve(opts.Addr, opts.Warn, func(s *Server, errorLog *log.Logger) (http.Handler, error) { return s.mux(opts, errorLog), nil })
}

// serve listens and serves the handler.
func serve(addr string, warn func(string), handler func(*Server, *log.Logger) (http.Handler, error)) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if warn == nil {
		warn = func(string) {}
	}
	s := &Server{listener: l, ended: make(chan struct{})}
	errorLog := log.New(warner(warn), "", 0)
	h, err := handler(s, errorLog)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.server = &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ErrorLog: errorLog}
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			warn(err.Error())
		}
	}()
	return s, nil
}

func (s *Server) mux(opts Options, errorLog *log.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, ErrorLog: errorLog, ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "no run is in progress", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	if a, ok := s.listener.Addr().(*net.TCPAddr); opts.Pprof || ok && a.IP.IsLoopback() {
		mux.Handle("GET /debug/pprof/", http.DefaultServeMux)
		mux.Handle("POST /debug/pprof/symbol", http.DefaultServeMux)
	}
	mux.Handle("GET /", pageHandler())
	mux.Handle("GET /samples", samplesHandler(opts.Registry, sampleEvery))
	return mux
}

// Ready sets whether a run is in progress.
func (s *Server) Ready(is bool) { s.ready.Store(is) }

// URL of the server, with the actual port.
func (s *Server) URL() string {
	a := s.listener.Addr().(*net.TCPAddr)
	host := a.IP.String()
	if a.IP.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(a.Port))
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

type warner func(string)

func (w warner) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}

//go:embed page
var page embed.FS

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func pageHandler() http.Handler { return pageOf(page, "page") }

// samplesHandler streams samples to each viewer until it disconnects.
func samplesHandler(r *Registry, every time.Duration) http.HandlerFunc {
	seats := make(chan struct{}, maxViewers)
	return func(w http.ResponseWriter, req *http.Request) {
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
		default:
			http.Error(w, fmt.Sprintf("the page already has %d viewers", maxViewers), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		out := http.NewResponseController(w)
		tick := time.NewTicker(every)
		defer tick.Stop()
		sampler := newSampler(r)
		for {
			data, err := json.Marshal(sampler.sample(time.Now()))
			if err != nil {
				return
			}
			// A connection without deadlines lets a slow viewer keep its seat.
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
				return
			}
			if err := out.Flush(); err != nil {
				return
			}
			select {
			case <-req.Context().Done():
				return
			case <-tick.C:
			}
		}
	}
}
