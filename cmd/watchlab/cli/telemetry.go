package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/telemetry"
	"watchlab/bench/telemetry/live"
)

// telemetryFlags say who is to be told of a run while it goes on.
type telemetryFlags struct {
	addr      string
	pprof     bool
	push      string
	pyroscope string
}

func (f *telemetryFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.addr, "metrics-addr", "", "host:port to listen on while the run goes on: /metrics for Prometheus, a live page at /, /healthz, /readyz and, on loopback, /debug/pprof; port 0 is any that is free (default: none)")
	fl.BoolVar(&f.pprof, "metrics-pprof", false, "/debug/pprof is there on an address that isn't loopback, too")
	fl.StringVar(&f.push, "push-metrics", "", "URL of a Prometheus remote-write receiver that gets the metrics when the run is over, for Jobs that may end between two scrapes")
	fl.StringVar(&f.pyroscope, "pyroscope", "", "URL of a Pyroscope server that gets profiles while the run goes on, which cost: see the README (default: $"+pyroscopeVar+", which --profile overrides)")
}

// pyroscopeVar is the variable by which Pyroscope's own clients find the server, so
// that a manifest can tell all pods of it.
const pyroscopeVar = "PYROSCOPE_SERVER_ADDRESS"

// check refuses what can't go together.
func (f *telemetryFlags) check(p *plan) error {
	if f.pyroscope == "" && len(p.profiles) == 0 {
		f.pyroscope = os.Getenv(pyroscopeVar)
	}
	switch {
	case f.pprof && f.addr == "":
		return badFlag("metrics-pprof", errors.New("needs --metrics-addr"))
	case f.pyroscope != "" && len(p.profiles) > 0:
		return badFlag("pyroscope", errors.New("a process has one CPU profiler, and --profile takes it"))
	}
	return nil
}

// start begins a session, which is nil where nobody is to be told.
func (f *telemetryFlags) start(ctx context.Context, run string, stderr io.Writer) (*telemetry.Session, error) {
	s, err := telemetry.Start(ctx, telemetry.Options{
		Run: run, Commit: cmp.Or(build().Commit, "unknown"), MetricsAddr: f.addr, Pprof: f.pprof, Push: f.push, Pyroscope: f.pyroscope,
		Warn: func(text string) { fmt.Fprintf(stderr, "watchlab: %s\n", text) },
	})
	switch {
	case errors.Is(err, live.ErrAddress):
		return nil, badFlag("metrics-addr", err)
	case errors.Is(err, telemetry.ErrPushURL):
		return nil, badFlag("push-metrics", err)
	case errors.Is(err, telemetry.ErrPyroscopeURL):
		return nil, badFlag("pyroscope", err)
	case errors.Is(err, telemetry.ErrVariable):
		return nil, usageError{err}
	case err != nil:
		return nil, err
	}
	if url := s.URL(); url != "" {
		fmt.Fprintf(stderr, "watchlab: %s shows the run, %s/metrics is for Prometheus\n", url, url)
	}
	return s, nil
}

// runName names a run in metrics: as its results folder, else by what it is and
// when it began.
func runName(name, dir string, began time.Time) string {
	if dir != "" {
		return filepath.Base(filepath.Clean(dir))
	}
	return name + "-" + began.UTC().Format("20060102T150405")
}

const dashAddr = "127.0.0.1:9465"

func newDash(args []string) *cobra.Command {
	f := runFlags{}
	cmd := &cobra.Command{
		Use:   "dash",
		Short: "Run, and show it live in a browser",
		Long: `dash plays what run would, and serves a page with small charts that move while it
does: throughput, latency, queue depth, generator lag, batches and staleness of each
variant. When the run is over the page stays, until Ctrl-C. It needs nothing from
the network.

It takes the flags of run; run --metrics-addr serves the same page and ends with the
run.`,
		Example: `  # Everything that is built in
  watchlab dash

  # Two delta queues in an informer, in the storm's own time
  watchlab dash --family deltafifo --impl clientgo-realfifo-batch,ring --pipeline informer \
    --storm gang --scale 0.1 --pace trace --metrics-addr 127.0.0.1:8080`,
		Args: noArgs,
		RunE: plays(args, func(cmd *cobra.Command) (*plan, error) {
			if !cmd.Flags().Changed("metrics-addr") {
				f.telemetry.addr = dashAddr
			}
			p, err := f.plan(cmd)
			if err == nil {
				p.stays = true
			}
			return p, err
		}),
	}
	f.addAll(cmd)
	cmd.Flags().Lookup("metrics-addr").Usage = strings.Replace(cmd.Flags().Lookup("metrics-addr").Usage, "(default: none)", "(default: "+dashAddr+")", 1)
	return cmd
}
