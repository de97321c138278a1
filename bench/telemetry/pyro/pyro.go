// Package pyro sends profiles to a Pyroscope server while a run goes on: CPU,
// allocations, memory in use, mutexes, blocking and goroutines. Samples carry the
// labels of package profile (family, variant, storm, stage) where the runtime keeps
// labels, which is for the CPU and goroutines, so that a stage of one variant can be
// looked at by itself.
//
// Profiling costs: 100 samples of the CPU a second, every tenth contended lock, a
// blocking of 10 µs or more, and a garbage collection every 15 s. Figures of a run
// with it are not to be compared with figures of one without.
package pyro

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/grafana/pyroscope-go"

	"watchlab/bench/telemetry/internal/capped"
)

// ErrURL is wrapped by the error for what is no address of a server.
var ErrURL = errors.New("no URL of a Pyroscope server")

const (
	// mutexFraction: one in so many contended locks is sampled.
	mutexFraction = 10
	// blockRate: what blocks for so long is sampled, of what blocks for less a
	// share.
	blockRate = 10 * time.Microsecond
	// patience is how long the server may take for one upload.
	patience = 5 * time.Second
	// answer is how much of what the server says is read.
	answer = 4 << 10
)

// Options of a profiler.
type Options struct {
	URL string

	Tags map[string]string

	Every time.Duration

	Warn func(error)
}

// Profiler profiles the process.
type Profiler struct {
	profiler *pyroscope.Profiler
	client   *http.Client
	mutex    int
}

// Start profiles the process from now on. Only one CPU profile can be taken of a
// process at a time. The error wraps [ErrURL].
func Start(opts Options) (*Profiler, error) {
	u, err := url.Parse(opts.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("%w: %q (as in http://localhost:4040)", ErrURL, opts.URL)
	}
	if opts.Warn == nil {
		opts.Warn = func(error) {}
	}
	client := &http.Client{
		Transport:     capped.New(answer),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       patience,
	}
	p := &Profiler{client: client, mutex: runtime.SetMutexProfileFraction(mutexFraction)}
	runtime.SetBlockProfileRate(int(blockRate))
	p.profiler, err = pyroscope.Start(pyroscope.Config{
		ApplicationName: "watchlab",
		ServerAddress:   opts.URL,
		Tags:            opts.Tags,
		UploadRate:      opts.Every,
		Logger:          logger{opts.Warn},
		HTTPClient:      client,
		ProfileTypes: []pyroscope.ProfileType{
			pyroscope.ProfileCPU,
			pyroscope.ProfileAllocObjects, pyroscope.ProfileAllocSpace,
			pyroscope.ProfileInuseObjects, pyroscope.ProfileInuseSpace,
			pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
			pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration,
			pyroscope.ProfileGoroutines,
		},
	})
	if err != nil {
		p.restore()
		return nil, err
	}
	return p, nil
}

// Stop sends what is left, and ends. A server that doesn't answer keeps it for some
// seconds. The nil Profiler does nothing.
func (p *Profiler) Stop() error {
	if p == nil {
		return nil
	}
	// Stop alone would leave out all but the CPU.
	p.profiler.Flush(true)
	err := p.profiler.Stop()
	p.restore()
	p.client.CloseIdleConnections()
	return err
}

func (p *Profiler) restore() {
	runtime.SetMutexProfileFraction(p.mutex)
	runtime.SetBlockProfileRate(0)
}

// logger passes on what Pyroscope's client says of failures.
type logger struct{ warn func(error) }

func (logger) Infof(string, ...any)  {}
func (logger) Debugf(string, ...any) {}

func (l logger) Errorf(format string, args ...any) { l.warn(fmt.Errorf(format, args...)) }
