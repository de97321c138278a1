package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/report"
	"watchlab/bench/telemetry"
)

type telemetryFlags struct {
	addr, pyroscope  string
	insecure, public bool // public is for pods
}

func (f *telemetryFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.addr, "metrics-addr", "", "host:port of /metrics and the live page (default none)")
	fl.BoolVar(&f.insecure, "insecure-listen", false, "plain HTTP with a token beyond loopback (default false)")
	f.addPyroscope(cmd)
}

func (f *telemetryFlags) addPyroscope(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.pyroscope, "pyroscope", "", "Pyroscope URL for pprof profiles (default: $"+pyroscopeVar+")")
}

// pyroscopeVar is read by Pyroscope's own clients. A manifest can set it for all pods.
const pyroscopeVar = "PYROSCOPE_SERVER_ADDRESS"

func (f *telemetryFlags) check(profiles bool) error {
	if f.pyroscope == "" && !profiles {
		f.pyroscope = os.Getenv(pyroscopeVar)
	}
	switch {
	case f.insecure && f.addr == "":
		return badFlag("insecure-listen", errors.New("needs --metrics-addr"))
	case f.pyroscope != "" && profiles:
		return badFlag("pyroscope", errors.New("a process has one CPU profiler, and --profile takes it"))
	}
	return nil
}

// start starts a session; nil if no output is requested.
func (f *telemetryFlags) start(ctx context.Context, run string, stderr io.Writer) (*telemetry.Session, error) {
	s, err := telemetry.Start(ctx, telemetry.Options{
		Run: run, Commit: cmp.Or(build().Commit, "unknown"), MetricsAddr: f.addr, Insecure: f.insecure, Public: f.public, Pyroscope: f.pyroscope,
		Warn: func(text string) { warn(stderr, "%s", text) }, Report: report.HTML,
	})
	switch {
	case errors.Is(err, telemetry.ErrAddress):
		return nil, badFlag("metrics-addr", err)
	case errors.Is(err, telemetry.ErrPyroscopeURL):
		return nil, badFlag("pyroscope", err)
	case errors.Is(err, telemetry.ErrVariable):
		return nil, usageError{err}
	case err != nil:
		return nil, err
	}
	if server := s.Server(); server != nil {
		warn(stderr, choose(f.public, "%[1]s/metrics is for Prometheus", "%[1]s shows the run, %[1]s/metrics is for Prometheus"), server.URL())
		if token := server.Token(); token != "" {
			warn(stderr, "bearer token, or password of any user: %s", token)
		}
	}
	return s, nil
}

// runName returns the label run: the results folder, else the experiment's name, its start and the
// process, as runs may start in the same second.
func runName(name, dir string, began time.Time) string {
	if dir != "" {
		return filepath.Base(filepath.Clean(dir))
	}
	return fmt.Sprintf("%s-%s-%d", name, began.UTC().Format("20060102T150405"), os.Getpid())
}
