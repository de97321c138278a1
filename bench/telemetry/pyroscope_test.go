package telemetry

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/google/pprof/profile"

	"watchlab/bench/lab"
	labels "watchlab/bench/pprof"
)

// pyroscopeServer decodes uploads to /ingest.
type pyroscopeServer struct {
	*httptest.Server
	mu     sync.Mutex
	names  []string
	types  map[string]bool
	labels map[string]map[string]bool
}

func newPyroscope(t *testing.T) *pyroscopeServer {
	r := &pyroscopeServer{types: map[string]bool{}, labels: map[string]map[string]bool{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/ingest" {
			t.Errorf("path %s", req.URL.Path)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.names = append(r.names, req.URL.Query().Get("name"))
		file, _, err := req.FormFile("profile")
		if err != nil {
			t.Error(err)
			return
		}
		p, err := profile.Parse(file)
		if err != nil {
			t.Error(err)
			return
		}
		for _, s := range p.SampleType {
			r.types[s.Type] = true
		}
		for _, s := range p.Sample {
			for k, vs := range s.Label {
				if r.labels[k] == nil {
					r.labels[k] = map[string]bool{}
				}
				for _, v := range vs {
					r.labels[k][v] = true
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

var sink uint64

// work uses 0.1 s of CPU at least, and thus several samples, in two goroutines that contend for a lock. It goes
// on until a mutex profile has a contention, but not for ever.
func work(ctx context.Context) {
	labels.Do(ctx, "", func(ctx context.Context) {
		labels.Do(ctx, "handle", func(context.Context) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for n := range 10_000 {
						if n >= 400 && (runtime.SetMutexProfileFraction(-1) == 0 || pprof.Lookup("mutex").Count() > 0) {
							return
						}
						mu.Lock()
						for i := range uint64(300_000) {
							sink += i * i
						}
						runtime.Gosched() // The other goroutine waits for the lock.
						mu.Unlock()
					}
				})
			}
			wg.Wait()
		})
	})
}

// TestProfiler: pprof profiles of all kinds arrive with the run's tags, and CPU samples
// with the labels of their stage.
func TestProfiler(t *testing.T) {
	r := newPyroscope(t)
	p, err := startProfiler(r.URL, map[string]string{"run": "test"}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	work(labels.With(t.Context(), "deltafifo", lab.Labels{{Key: "impl", Value: "ring"}, {Key: "pipeline", Value: "informer"}, {Key: "storm", Value: "gang"}, {Key: "rate", Value: "1000"}}))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.names {
		if !strings.HasPrefix(n, "watchlab{") || !strings.Contains(n, "run=test") {
			t.Errorf("name %q", n)
		}
	}
	for _, want := range []string{"cpu", "alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "contentions", "delay", "goroutine"} {
		if !r.types[want] {
			t.Errorf("no samples of %s, but of %v", want, r.types)
		}
	}
	for k, v := range map[string]string{"family": "deltafifo", "variant": "ring", "storm": "gang", "pipeline": "informer", "rate": "1000", "stage": "handle"} {
		if !r.labels[k][v] {
			t.Errorf("no sample has the label %s=%s, but %v", k, v, r.labels)
		}
	}
	if n := runtime.SetMutexProfileFraction(-1); n != 0 {
		t.Errorf("mutexes are still profiled, one in %d", n)
	}
}

// TestGarbage: an endless error is truncated.
func TestGarbage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusTeapot)
		for range 1000 {
			if _, err := io.WriteString(w, strings.Repeat("nonsense ", 1000)); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	var mu sync.Mutex
	longest := 0
	p, err := startProfiler(s.URL, nil, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, len(err.Error()))
	})
	if err != nil {
		t.Fatal(err)
	}
	work(t.Context())
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if longest == 0 || longest > 2*maxAnswer {
		t.Errorf("the longest warning has %d bytes", longest)
	}
}
