// Package telemetry lets a run be looked at while it goes on, and after it. A
// [Session] has what was asked for of:
//
//   - metrics on a listener (packages expose and serve);
//   - a live page on the same listener (package dash);
//   - metrics pushed to a Prometheus at the end (package push);
//   - traces and metrics to an OpenTelemetry collector (package otlp);
//   - profiles to a Pyroscope server (package pyro).
//
// [Session.Watch] makes the cells of a comparison tell what happens; their workloads
// find whom to tell in their context ([probe.From], [expose.UpstreamFrom]). Without a
// session nobody is told and nothing is paid.
//
// Whatever is asked to listen is never waited for while a clock runs. That a server
// is down, slow or answers garbage is said once, and the run goes on.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"watchlab/bench/telemetry/dash"
	"watchlab/bench/telemetry/expose"
	"watchlab/bench/telemetry/otlp"
	"watchlab/bench/telemetry/probe"
	"watchlab/bench/telemetry/push"
	"watchlab/bench/telemetry/pyro"
	"watchlab/bench/telemetry/serve"
)

// Options of a session. The zero value asks for nothing but what the OTEL_*
// variables do.
type Options struct {
	Run, Commit string

	MetricsAddr string

	Pprof bool

	Push string

	Pyroscope string

	Warn func(string)
}

// How long things may take, and how often they are done.
const (
	// folding is how often what probes told is taken in, looking how often queues
	// are asked for their depth.
	folding = 20 * time.Millisecond
	looking = 250 * time.Millisecond
	// settling is how long a queue that is being asked has to answer at the end.
	settling = time.Second
	// closing is how long a server has at the end to take what is left.
	closing = 10 * time.Second
)

// Session is what is told of a run.
type Session struct {
	registry *expose.Registry
	server   *serve.Server
	pusher   *push.Pusher
	exporter *otlp.Exporter
	profiler *pyro.Profiler
	run      *otlp.Run
	warnings *warnings

	stop    context.CancelFunc
	running sync.WaitGroup

	mu sync.Mutex

	round int
	cells map[string]*watched
}

// Start begins a session; nil where nothing is asked for. The error wraps
// [serve.ErrAddress], [push.ErrURL], [pyro.ErrURL] or [otlp.ErrVariable]; then
// nothing is left running.
func Start(ctx context.Context, opts Options) (_ *Session, err error) {
	s := &Session{
		registry: expose.New(opts.Run, opts.Commit), warnings: newWarnings(opts.Warn), cells: map[string]*watched{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx, nil))
		}
	}()
	s.exporter, err = otlp.New(ctx, otlp.Options{
		Run: opts.Run, Commit: opts.Commit, Metrics: s.registry,
		Warn: func(err error) { s.warnings.say("OpenTelemetry", err) },
	})
	if err != nil {
		return nil, err
	}
	if opts.MetricsAddr == "" && opts.Push == "" && opts.Pyroscope == "" && s.exporter == nil {
		return nil, nil
	}
	if opts.Push != "" {
		host, _ := os.Hostname()
		if s.pusher, err = push.New(opts.Push, "watchlab", cmp.Or(host, "unknown")); err != nil {
			return nil, err
		}
	}
	if opts.MetricsAddr != "" {
		if s.server, err = serve.Start(serve.Options{
			Addr: opts.MetricsAddr, Metrics: s.registry, Pprof: opts.Pprof,
			Extra: map[string]http.Handler{"GET /": dash.Handler(s.registry)},
			Warn:  func(text string) { s.warnings.say("metrics", errors.New(text)) },
		}); err != nil {
			return nil, err
		}
		s.server.Ready(true)
	}
	if opts.Pyroscope != "" {
		if s.profiler, err = pyro.Start(pyro.Options{
			URL: opts.Pyroscope, Tags: map[string]string{"run": opts.Run, "commit": opts.Commit},
			Warn: func(err error) { s.warnings.say("Pyroscope", err) },
		}); err != nil {
			return nil, err
		}
	}
	s.run = s.exporter.StartRun(ctx, opts.Run)
	s.start()
	return s, nil
}

// start takes in what probes tell, now and then, until the session is closed.
// Queues are asked by a goroutine of their own, as one may keep it waiting.
func (s *Session) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	every := func(d time.Duration, each func(*probe.Set)) {
		s.running.Go(func() {
			t := time.NewTicker(d)
			defer t.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-t.C:
					for _, set := range s.registry.Sets() {
						each(set)
					}
				}
			}
		})
	}
	every(folding, (*probe.Set).Fold)
	every(looking, (*probe.Set).Look)
}

// URL of the listener; empty where there is none.
func (s *Session) URL() string {
	if s == nil || s.server == nil {
		return ""
	}
	return s.server.URL()
}

// Registry has the session's metrics; nil for the nil Session.
func (s *Session) Registry() *expose.Registry {
	if s == nil {
		return nil
	}
	return s.registry
}

// Close ends the session of a run that ended with an error, or nil: it pushes and
// exports what is left, which a server that is slow may keep for ten seconds. What
// fails then is told as a warning. The nil Session does nothing.
func (s *Session) Close(ctx context.Context, runErr error) {
	if s == nil {
		return
	}
	if err := s.close(ctx, runErr); err != nil {
		s.warnings.say("telemetry", err)
	}
}

func (s *Session) close(ctx context.Context, runErr error) error {
	// A run that is interrupted is told of as well.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	if s.stop != nil {
		s.stop()
		s.settle()
	}
	if s.server != nil {
		s.server.Ready(false)
	}
	s.run.End(runErr)
	// What takes long goes side by side: each has the whole time.
	var all sync.WaitGroup
	all.Go(func() {
		if s.pusher == nil {
			return
		}
		defer s.pusher.Close()
		if err := s.pusher.Push(ctx, s.registry); err != nil {
			s.warnings.say("remote write", err)
		}
	})
	all.Go(func() {
		if err := s.exporter.Close(ctx); err != nil {
			s.warnings.say("OpenTelemetry", err)
		}
	})
	all.Go(func() {
		if err := s.profiler.Stop(); err != nil {
			s.warnings.say("Pyroscope", err)
		}
	})
	all.Wait()
	if s.server == nil {
		return nil
	}
	// Streams of the live page have no end of their own.
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.server.Close(short)
}

// settle waits for what looks at queues. One that is stuck may keep its asker for
// ever, which is no reason to keep the command.
func (s *Session) settle() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(settling):
	}
}

// warnings are told once each.
type warnings struct {
	mu   sync.Mutex
	warn func(string)
	said map[string]bool
}

func newWarnings(warn func(string)) *warnings {
	if warn == nil {
		warn = func(string) {}
	}
	return &warnings{warn: warn, said: map[string]bool{}}
}

// say tells the first error of each kind, in one line.
func (w *warnings) say(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[what] {
		return
	}
	w.said[what] = true
	w.warn(fmt.Sprintf("%s: %s; the run goes on, and this is said once", what, legible(err.Error())))
}

// longest is how much of what a server answered is repeated.
const longest = 240

// legible folds a text into one line of what can be shown, and cuts it.
func legible(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return ' '
	}, text)
	text = oneLine(text)
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "…"
	}
	return text
}
