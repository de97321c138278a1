// Package telemetry makes a run observable while it is in progress and after it.
//
//  1. [Start] begins a [Session] with the requested outputs: metrics and a live page on a
//     listener ([Server]), traces and metrics by OTLP over HTTP, pprof profiles to Pyroscope.
//  2. [Session.Watch] wraps the workloads of a cell. A wrapped workload finds its
//     [Set] in the context ([From]); without a session there is none, and it costs nothing.
//  3. While a cell is played, the session reads queue depths in the background. With each
//     reading the pipeline updates its set.
//  4. [Session.Close] flushes all outputs for at most 10 s.
//
// A server that is unreachable, slow or answers garbage causes one warning; the run
// continues, and its clocks never wait for a server.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/wait"

	"watchlab/bench/lab"
	"watchlab/loadgen/manifest"
)

// Options of a session. The zero value requests only what the OTEL_* variables do.
type Options struct {
	Run, Commit string       // name of the run, revision of the program
	MetricsAddr string       // host:port of the listener; empty for none
	Insecure    bool         // the user allows plain HTTP beyond loopback
	Public      bool         // the listener serves metrics and probes only, on any address
	Pyroscope   string       // URL of a Pyroscope server; empty for none
	Warn        func(string) // receives one line for each kind of failure
	// Report writes the report of a run so far, for the live page; nil for no page.
	Report func(io.Writer, *lab.Outcome) error
}

// PyroscopeVar is read by Pyroscope's own clients. A manifest can set it for all pods.
const PyroscopeVar = "PYROSCOPE_SERVER_ADDRESS"

// Complete reads the environment and checks the options of a run, which may write pprof profiles itself. The error is a
// [*manifest.Error], whose field is a flag of watchlab run.
func (o *Options) Complete(profiles bool) error {
	if o.Pyroscope == "" && !profiles {
		o.Pyroscope = os.Getenv(PyroscopeVar)
	}
	switch {
	case o.Insecure && o.MetricsAddr == "":
		return manifest.Bad("insecure-listen", "needs --metrics-addr")
	case o.Pyroscope != "" && profiles:
		return manifest.Bad("pyroscope", "a process has one CPU profiler, and --profile takes it")
	}
	return nil
}

// RunName returns the label run: the results folder, else the experiment's name, its start and the
// process, as runs may start in the same second.
func RunName(name, dir string, began time.Time) string {
	if dir != "" {
		return filepath.Base(filepath.Clean(dir))
	}
	return fmt.Sprintf("%s-%s-%d", name, began.UTC().Format("20060102T150405"), os.Getpid())
}

const (
	lookEvery    = 250 * time.Millisecond // interval of reading queue depths
	reportEvery  = 2 * time.Second        // least time between two reports on the live page
	flushTimeout = 10 * time.Second       // bounds the flush at the end
	lookTimeout  = time.Second            // bounds the wait for a queue's depth at the end
	otlpServer   = "OTLP endpoint"        // its name in warnings
)

// Session of a run. The nil Session does nothing.
type Session struct {
	registry *Registry
	server   *Server
	exporter *exporter
	report   func(io.Writer, *lab.Outcome) error // nil for no page
	profiled bool                                // pprof profiles go to Pyroscope
	warnings *warnings
	outputs  map[string]func(context.Context) error // flushed at the end, by their names in warnings

	stop  context.CancelFunc // ends the background goroutine, which closes ended
	ended chan struct{}

	mu       sync.Mutex          // guards the fields below
	round    int                 // current round; 0 for the warm-up
	cells    map[string]*watched // by benchmark name
	reported time.Time           // last report on the live page
}

// Start begins a session; nil if nothing is requested. The error of an option or a variable is a [*manifest.Error], and
// wraps [ErrAddress], [ErrPyroscopeURL] or [ErrVariable].
func Start(ctx context.Context, opts Options) (_ *Session, err error) {
	s := &Session{
		registry: New(opts.Run, opts.Commit), warnings: &warnings{warn: opts.Warn, seen: map[string]bool{}},
		report: opts.Report, cells: map[string]*watched{}, outputs: map[string]func(context.Context) error{},
	}
	s.exporter, err = newExporter(ctx, opts.Run, opts.Commit, s.registry, s.warnings.reporter(otlpServer))
	if err != nil {
		return nil, &manifest.Error{Err: err}
	}
	if opts.MetricsAddr == "" && opts.Pyroscope == "" && len(s.exporter.shutdown) == 0 {
		return nil, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx, nil))
		}
	}()
	s.outputs[otlpServer] = s.exporter.close
	if opts.MetricsAddr != "" {
		if s.server, err = listen(opts, s.registry, s.warnings.reporter("metrics")); err != nil {
			return nil, manifest.BadField("metrics-addr", err)
		}
		s.server.Ready(true)
	}
	if opts.Pyroscope != "" {
		tags := map[string]string{"run": opts.Run, "commit": opts.Commit}
		p, err := startProfiler(opts.Pyroscope, tags, s.warnings.reporter("Pyroscope"))
		if err != nil {
			return nil, manifest.BadField("pyroscope", err)
		}
		s.profiled, s.outputs["Pyroscope"] = true, func(context.Context) error { return p.stop() }
	}
	s.exporter.startRun(ctx, opts.Run)
	background, stop := context.WithCancel(context.Background())
	s.stop, s.ended = stop, make(chan struct{})
	go func() {
		defer close(s.ended)
		wait.UntilWithContext(background, func(context.Context) {
			for _, set := range s.registry.Sets() {
				set.Look()
			}
		}, lookEvery)
	}()
	return s, nil
}

// Server is the listener's; nil if there is none.
func (s *Session) Server() *Server {
	if s == nil {
		return nil
	}
	return s.server
}

// Close ends the session of a run that returned runErr. It flushes for at most 10 s, and failures
// are warnings.
func (s *Session) Close(ctx context.Context, runErr error) {
	if s == nil {
		return
	}
	if err := s.close(ctx, runErr); err != nil {
		s.warnings.reporter("telemetry")(err)
	}
}

func (s *Session) close(ctx context.Context, runErr error) error {
	// An interrupted run is flushed too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if s.stop != nil {
		s.stop()
		select {
		case <-s.ended:
		case <-time.After(lookTimeout): // A queue may block for ever.
		}
	}
	if s.server != nil {
		s.server.Ready(false)
	}
	s.exporter.endRun(runErr)
	// All outputs flush in parallel, so that each has the whole time.
	var flushes sync.WaitGroup
	for name, flush := range s.outputs {
		flushes.Go(func() {
			if err := flush(ctx); err != nil {
				s.warnings.reporter(name)(err)
			}
		})
	}
	flushes.Wait()
	if s.server == nil {
		return nil
	}
	// A browser may keep its connection.
	ctx, cancel = context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.server.Close(ctx)
}

// warnings passes on the first error of each kind.
type warnings struct {
	mu   sync.Mutex
	warn func(string)
	seen map[string]bool
}

// reporter returns the function that takes errors of a kind, such as the name of a server.
func (w *warnings) reporter(kind string) func(error) {
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.seen[kind] && w.warn != nil {
			w.seen[kind] = true
			w.warn(fmt.Sprintf("%s: %s; the run continues, further errors are not shown", kind, printable(err.Error())))
		}
	}
}

const maxWarning = 240 // length of an error in a warning, in runes

// query is the query of a URL. Pyroscope's is longer than a warning.
var query = regexp.MustCompile(`(https?://[^\s"?]*)\?[^\s"]*`)

// printable reduces a server's answer to one line of printable characters, without the queries of URLs.
func printable(text string) string {
	text = strings.Join(slices.Compact(strings.Split(query.ReplaceAllString(text, "$1"), "\n")), " ")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return r == ' ' || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}), " ")
	if runes := []rune(text); len(runes) > maxWarning {
		text = string(runes[:maxWarning]) + "…"
	}
	return text
}
