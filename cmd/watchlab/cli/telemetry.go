package cli

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"watchlab/bench/report"
	"watchlab/bench/telemetry"
)

type telemetryFlags struct{ telemetry.Options }

func (f *telemetryFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.MetricsAddr, "metrics-addr", "", "host:port of /metrics and the live page (default none)")
	fl.BoolVar(&f.Insecure, "insecure-listen", false, "plain HTTP with a token beyond loopback (default false)")
	f.addPyroscope(cmd)
}

func (f *telemetryFlags) addPyroscope(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Pyroscope, "pyroscope", "", "Pyroscope URL for pprof profiles (default: $"+telemetry.PyroscopeVar+")")
}

// start starts a session; nil if no output is requested.
func (f *telemetryFlags) start(ctx context.Context, run string, stderr io.Writer) (*telemetry.Session, error) {
	opts := f.Options
	opts.Run, opts.Commit, opts.Report = run, cmp.Or(build().Commit, "unknown"), report.HTML
	opts.Warn = func(text string) { warn(stderr, "%s", text) }
	s, err := telemetry.Start(ctx, opts)
	if err != nil {
		return nil, badField(err)
	}
	if server := s.Server(); server != nil {
		page := server.URL() + " shows the run, "
		if f.Public {
			page = ""
		}
		warn(stderr, "%s%s/metrics is for Prometheus", page, server.URL())
		if token := server.Token(); token != "" {
			warn(stderr, "bearer token, or password of any user: %s", token)
		}
	}
	return s, nil
}
