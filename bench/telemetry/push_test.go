package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"

	"watchlab/bench/telemetry/live"
)

// receiver of remote writes. It keeps the series as text.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    map[string]string
	refuse func(native bool) int
	asked  int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{got: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
			return
		}
		if req.Header.Get("X-Prometheus-Remote-Write-Version") != "0.1.0" || req.Header.Get("Content-Encoding") != "snappy" || req.URL.Path != "/api/v1/write" {
			t.Errorf("%s %v", req.URL, req.Header)
		}
		msg, err := snappy.Decode(nil, body)
		if err != nil {
			t.Error(err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked++
		series := decode(t, msg)
		native := false
		for _, v := range series {
			native = native || strings.HasPrefix(v, "native")
		}
		if r.refuse != nil {
			if status := r.refuse(native); status != 0 {
				http.Error(w, "no\nthank you "+strings.Repeat("x", 10_000), status)
				return
			}
		}
		for k, v := range series {
			if _, ok := r.got[k]; ok {
				t.Errorf("%s was sent twice", k)
			}
			r.got[k] = v
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

// decode returns the value of each series, by its labels.
func decode(t *testing.T, msg []byte) map[string]string {
	t.Helper()
	var req prompb.WriteRequest
	if err := req.Unmarshal(msg); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, series := range req.Timeseries {
		var labels, value []string
		for _, l := range series.Labels {
			labels = append(labels, l.Name+"="+l.Value)
		}
		for i := 1; i < len(labels); i++ {
			if labels[i-1] >= labels[i] {
				t.Errorf("labels are not sorted: %q", labels)
			}
		}
		for _, s := range series.Samples {
			value = append(value, fmt.Sprint(s.Value))
			if age := time.Since(time.UnixMilli(s.Timestamp)); age < 0 || age > time.Minute {
				t.Errorf("a sample is %v old", age)
			}
		}
		for _, h := range series.Histograms {
			value = append(value, fmt.Sprintf("native %d of schema %d, %d zero, %v %v", h.GetCountInt(), h.Schema, h.GetZeroCountInt(), h.PositiveSpans, h.PositiveDeltas))
		}
		for _, x := range series.Exemplars {
			slices.SortFunc(x.Labels, func(a, b prompb.Label) int { return strings.Compare(a.Name, b.Name) })
			value = append(value, fmt.Sprintf("# %v %v", x.Labels, x.Value))
		}
		out[strings.Join(labels, ",")] = strings.Join(value, " ")
	}
	return out
}

func registry() *live.Registry {
	r := live.New("test", "abc")
	s := r.Set(live.Labels{Variant: "ring"})
	s.Sampler(func(int) *live.Sampling {
		return &live.Sampling{Every: 2, IDs: func(uint64) (string, string) { return "t", "s" }}
	})
	s.Begin(1)
	s.Update(func(f *live.Figures) {
		f.Count(live.Released, live.Added, 42)
		f.Observe(live.BatchSize, 3)
		f.ObserveEvent(live.ReleasedHandled, 1e9, 2)
	})
	return r
}

func push(t *testing.T, url string, from prometheus.Gatherer) error {
	t.Helper()
	p, err := newPusher(url, "watchlab", "here")
	if err != nil {
		t.Fatal(err)
	}
	defer p.client.CloseIdleConnections()
	return p.push(t.Context(), from)
}

// TestPush: each series arrives once, under the name that a scrape gives.
func TestPush(t *testing.T) {
	r := newReceiver(t)
	if err := push(t, r.URL, registry()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"__name__=watchlab_events_total,instance=here,job=watchlab,run=test,stage=released,type=ADDED,variant=ring":                 "42",
		"__name__=watchlab_batch_size_bucket,instance=here,job=watchlab,le=2.0,run=test,variant=ring":                               "0",
		"__name__=watchlab_batch_size_bucket,instance=here,job=watchlab,le=4.0,run=test,variant=ring":                               "1",
		"__name__=watchlab_batch_size_bucket,instance=here,job=watchlab,le=+Inf,run=test,variant=ring":                              "1",
		"__name__=watchlab_batch_size_sum,instance=here,job=watchlab,run=test,variant=ring":                                         "3",
		"__name__=watchlab_batch_size_count,instance=here,job=watchlab,run=test,variant=ring":                                       "1",
		"__name__=watchlab_batch_size,instance=here,job=watchlab,run=test,variant=ring":                                             "native 1 of schema 3, 0 zero, [{13 1 {} [] 0}] [1]",
		"__name__=watchlab_end_to_end_latency_seconds_bucket,from=released,instance=here,job=watchlab,le=1.0,run=test,variant=ring": "1 # [{span_id s {} [] 0} {trace_id t {} [] 0}] 1",
	} {
		if got := r.got[name]; got != want {
			t.Errorf("%s\nis   %q\nwant %q", name, got, want)
		}
	}
	runtimes := 0
	for name := range r.got {
		if strings.HasPrefix(name, "__name__=go_") {
			runtimes++
		}
	}
	if runtimes < 30 {
		t.Errorf("%d series of the Go runtime", runtimes)
	}
}

// TestParts: a push of many series uses several requests.
func TestParts(t *testing.T) {
	r := newReceiver(t)
	reg := prometheus.NewRegistry()
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"n"})
	reg.MustRegister(vec)
	for n := range 2*seriesPerRequest + 1 {
		vec.WithLabelValues(fmt.Sprint(n)).Set(float64(n))
	}
	if err := push(t, r.URL+"/", reg); err != nil {
		t.Fatal(err)
	}
	if len(r.got) != 2*seriesPerRequest+1 || r.asked != 3 {
		t.Errorf("%d series in %d requests", len(r.got), r.asked)
	}
}

// TestNoNatives: a receiver that refuses native histograms gets all other series.
func TestNoNatives(t *testing.T) {
	r := newReceiver(t)
	r.refuse = func(native bool) int {
		if native {
			return http.StatusBadRequest
		}
		return 0
	}
	err := push(t, r.URL, registry())
	if !errors.Is(err, errNative) || len(err.Error()) > 2*maxAnswer {
		t.Errorf("error %v", err)
	}
	if len(r.got) < 100 {
		t.Errorf("%d series", len(r.got))
	}
}

// TestRetry: the pusher repeats a request after a temporary error only.
func TestRetry(t *testing.T) {
	defer func(before time.Duration) { pushRetry.Min = before }(pushRetry.Min)
	pushRetry.Min = time.Millisecond
	for status, want := range map[int]int{http.StatusServiceUnavailable: 4, http.StatusUnauthorized: 1} {
		r := newReceiver(t)
		r.refuse = func(bool) int { return status }
		if err := push(t, r.URL, registry()); err == nil || errors.Is(err, errNative) {
			t.Errorf("%d: error %v", status, err)
		}
		if r.asked != want {
			t.Errorf("%d: asked %d times, want %d", status, r.asked, want)
		}
	}
}

// TestCancelled: push returns when its context ends.
func TestCancelled(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer s.Close()
	defer close(hang)
	p, err := newPusher(s.URL, "watchlab", "here")
	if err != nil {
		t.Fatal(err)
	}
	defer p.client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.push(ctx, registry()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestBadURL(t *testing.T) {
	for _, u := range []string{"", "localhost:9090", "ftp://x", "http://", "http://a b", "%"} {
		if _, err := newPusher(u, "", ""); !errors.Is(err, ErrPushURL) {
			t.Errorf("%q: %v, want one that wraps %v", u, err, ErrPushURL)
		}
		if _, err := startProfiler(u, nil, nil); !errors.Is(err, ErrPyroscopeURL) {
			t.Errorf("%q: %v, want one that wraps %v", u, err, ErrPyroscopeURL)
		}
	}
}
