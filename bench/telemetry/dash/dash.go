// Package dash is the live page of a run: small charts that move while a storm is
// played, served by the command itself. It needs nothing from the network.
//
//	/          the page
//	/samples   server-sent events, one a second: a [Sample] in JSON
//
// The figures are those of the metric registry, as they changed within the second.
package dash

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"watchlab/bench/telemetry/expose"
)

const (
	// beat is how often a sample is sent.
	beat = time.Second
	// viewers at once; more are sent away, so that nobody can keep the machine
	// from what is measured.
	viewers = 4
	// patience is how long a viewer may take to take a sample.
	patience = 5 * time.Second
)

//go:embed page
var page embed.FS

// policy lets the page have what comes from here, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page of a registry.
func Handler(r *expose.Registry) http.Handler { return handler(r, beat) }

func handler(r *expose.Registry, beat time.Duration) http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is built in
	}
	mux := http.NewServeMux()
	static := http.FileServerFS(files)
	mux.Handle("GET /", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		static.ServeHTTP(w, req)
	}))
	mux.Handle("GET /samples", &stream{registry: r, beat: beat, seats: make(chan struct{}, viewers)})
	return mux
}

// stream sends samples.
type stream struct {
	registry *expose.Registry
	beat     time.Duration
	seats    chan struct{}
}

func (s *stream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	select {
	case s.seats <- struct{}{}:
		defer func() { <-s.seats }()
	default:
		http.Error(w, fmt.Sprintf("%d others are looking already", viewers), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	tick := time.NewTicker(s.beat)
	defer tick.Stop()
	look := newSampler(s.registry)
	for {
		data, err := json.Marshal(look.sample(time.Now()))
		if err != nil {
			return
		}
		// Where there is no deadline to be had, a slow viewer keeps its seat.
		_ = out.SetWriteDeadline(time.Now().Add(patience))
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
