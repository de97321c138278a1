package telemetry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/grafana/pyroscope-go"
)

// ErrPyroscopeURL is returned for an invalid URL of a Pyroscope server.
var ErrPyroscopeURL = errors.New("no URL of a Pyroscope server")

const (
	mutexFraction = 10                    // one of so many contended locks is sampled
	blockRate     = 10 * time.Microsecond // blocking from this time is sampled, and a share of shorter
	serverTimeout = 5 * time.Second       // bounds one request to the server
	maxAnswer     = 4 << 10               // number of bytes of the server's answer that are read
)

// profiler uploads pprof profiles of the process to a Pyroscope server. Samples of CPU and
// goroutines carry the labels of package profile: family, variant, pipeline, storm, rate, stage.
//
// Profiling costs 100 CPU samples a second, one in ten contended locks, blocking of 10 µs or more,
// and a garbage collection every 15 s: such a run does not compare to one without.
type profiler struct {
	*pyroscope.Profiler
	client *http.Client
	mutex  int // the previous mutex fraction
}

// startProfiler: a process has one CPU profile at a time. The error wraps [ErrPyroscopeURL].
func startProfiler(server string, tags map[string]string, warn func(error)) (*profiler, error) {
	if u, err := url.Parse(server); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w, such as http://localhost:4040", ErrPyroscopeURL) // server may hold a password.
	}
	client := &http.Client{
		Transport: cappedTransport{&http.Transport{Proxy: http.ProxyFromEnvironment}}, Timeout: serverTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p := &profiler{client: client, mutex: runtime.SetMutexProfileFraction(mutexFraction)}
	runtime.SetBlockProfileRate(int(blockRate))
	var err error
	p.Profiler, err = pyroscope.Start(pyroscope.Config{
		ApplicationName: "watchlab",
		ServerAddress:   server,
		Tags:            tags,
		Logger:          pyroscopeLogger{warn},
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

// stop uploads the remaining profiles. An unreachable server delays it by some seconds.
func (p *profiler) stop() error {
	p.Flush(true) // Stop alone uploads the CPU profile only.
	err := p.Stop()
	p.restore()
	p.client.CloseIdleConnections()
	return err
}

func (p *profiler) restore() {
	runtime.SetMutexProfileFraction(p.mutex)
	runtime.SetBlockProfileRate(0)
}

type pyroscopeLogger struct{ warn func(error) }

func (pyroscopeLogger) Infof(string, ...any)  {}
func (pyroscopeLogger) Debugf(string, ...any) {}

func (l pyroscopeLogger) Errorf(format string, args ...any) { l.warn(fmt.Errorf(format, args...)) }

// cappedTransport truncates answers, which the client reads whole. Its connections are its own, so
// that CloseIdleConnections closes no others.
type cappedTransport struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (t cappedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}
