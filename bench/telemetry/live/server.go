package live

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // handlers on http.DefaultServeMux
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"watchlab/bench/chart"
	"watchlab/loadgen/apiserver"
)

var ErrAddress = errors.New("cannot listen") // returned for an address that the server cannot listen on

// Options of a server.
type Options struct {
	Addr     string       // host:port; port 0 selects a free one
	Registry *Registry    // has the served metrics; not nil
	Insecure bool         // the user allows plain HTTP beyond loopback; requests need a token there
	Public   bool         // serves metrics and probes only, on any address
	Warn     func(string) // receives errors while serving, one line each; not nil
}

const (
	maxConnections = 64 // of a server
	// Concurrent requests; further ones get 503. They take CPU from the measured pipeline.
	maxScrapes   = 2
	maxViewers   = 4
	updateEvery  = time.Second     // interval of the page's updates
	writeTimeout = 5 * time.Second // bounds the time a viewer takes for an update
)

// Server serves until it is closed:
//
//	/             the live page
//	/updates      server-sent events, one a second: the changed parts of the page
//	/report.html  the report, after the run
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
	closing  chan struct{} // closed when Close begins
	close    sync.Once
}

// Start listens and serves. The error wraps [ErrAddress].
func Start(opts Options) (*Server, error) {
	access := apiserver.Access{Token: apiserver.NewToken(), Insecure: opts.Insecure, Public: opts.Public}
	l, err := access.Listen(opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	s := &Server{
		token: access.Token, listener: l,
		log: log.New(warner(opts.Warn), "", 0), ended: make(chan struct{}), closing: make(chan struct{}),
	}
	var h http.Handler = s.mux(opts)
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

func (s *Server) mux(opts Options) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Registry, promhttp.HandlerOpts{
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
	if !opts.Public {
		mux.Handle("GET /debug/pprof/", s.admit(http.DefaultServeMux))
		mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler()) // The flags may hold passwords.
		mux.Handle("GET /", pageHandler(opts.Registry, updateEvery, s.closing))
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

// Close sends open pages their last update, lets requests finish until ctx ends, and then closes their connections.
func (s *Server) Close(ctx context.Context) error {
	s.close.Do(func() { close(s.closing) })
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

// reportPolicy is that of the report: one file with its own style and script.
const reportPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageHandler serves the page: its files, its updates and, after the run, the report.
func pageHandler(r *Registry, every time.Duration, closing <-chan struct{}) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	static, mux := http.FileServerFS(files), http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, req *http.Request) {
		secure(w, contentPolicy)
		static.ServeHTTP(w, req)
	})
	mux.HandleFunc("GET /chart.css", func(w http.ResponseWriter, _ *http.Request) {
		secure(w, contentPolicy)
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = io.WriteString(w, chart.CSS())
	})
	mux.HandleFunc("GET /updates", func(w http.ResponseWriter, req *http.Request) {
		if r.viewers.Add(1) > maxViewers {
			r.viewers.Add(-1)
			http.Error(w, fmt.Sprintf("the page already has %d viewers", maxViewers), http.StatusServiceUnavailable)
			return
		}
		defer r.viewers.Add(-1)
		stream(w, req, r, every, closing)
	})
	mux.HandleFunc("GET /report.html", func(w http.ResponseWriter, req *http.Request) {
		var report func(io.Writer) error
		r.Show(func(s *State) { report = s.Report })
		if report == nil {
			http.NotFound(w, req)
			return
		}
		secure(w, reportPolicy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = report(w) // The viewer may have gone.
	})
	return mux
}

func secure(w http.ResponseWriter, policy string) {
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache")
}

// stream sends a message at once, and then one at each tick, until the viewer disconnects. When the
// server closes, it sends a last one.
func stream(w http.ResponseWriter, req *http.Request, r *Registry, every time.Duration, closing <-chan struct{}) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // The stream has no end.
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := false; ; {
		m, err := r.message()
		if err != nil {
			return
		}
		data, err := json.Marshal(m)
		if err != nil {
			return
		}
		// A connection without deadlines lets a slow viewer keep its seat.
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return
		}
		if err := out.Flush(); err != nil || last {
			return
		}
		select {
		case <-req.Context().Done():
			return
		case <-closing:
			last = true
		case <-tick.C:
		}
	}
}
