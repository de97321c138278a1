package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"watchlab/bench/telemetry/expose"
	"watchlab/bench/telemetry/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver keeps what it is sent, by series, as text.
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

// fields reads a message: each of its fields, in order.
func fields(t *testing.T, b []byte, each func(n protowire.Number, raw []byte, bits uint64)) {
	t.Helper()
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		b = b[size:]
		var raw []byte
		var bits uint64
		switch kind {
		case protowire.BytesType:
			raw, size = protowire.ConsumeBytes(b)
		case protowire.Fixed64Type:
			bits, size = protowire.ConsumeFixed64(b)
		case protowire.VarintType:
			bits, size = protowire.ConsumeVarint(b)
		}
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		b = b[size:]
		each(n, raw, bits)
	}
}

func decode(t *testing.T, msg []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	pair := func(b []byte) string {
		var p [3]string
		fields(t, b, func(n protowire.Number, raw []byte, _ uint64) { p[n] = string(raw) })
		return p[1] + "=" + p[2]
	}
	fields(t, msg, func(_ protowire.Number, raw []byte, _ uint64) {
		var labels []string
		value := ""
		fields(t, raw, func(n protowire.Number, raw []byte, _ uint64) {
			switch n {
			case 1:
				labels = append(labels, pair(raw))
			case 2:
				fields(t, raw, func(n protowire.Number, _ []byte, bits uint64) {
					if n == 1 {
						value = fmt.Sprint(math.Float64frombits(bits))
					} else if age := time.Since(time.UnixMilli(int64(bits))); age < 0 || age > time.Minute {
						t.Errorf("a sample is %v old", age)
					}
				})
			case 3:
				fields(t, raw, func(n protowire.Number, raw []byte, bits uint64) {
					switch n {
					case 1:
						value += " # " + pair(raw)
					case 2:
						value += fmt.Sprint(" ", math.Float64frombits(bits))
					}
				})
			case 4:
				var h writev2.Histogram
				if err := proto.Unmarshal(raw, &h); err != nil {
					t.Fatal(err)
				}
				value = fmt.Sprintf("native %d of schema %d, %d zero, %v %v", h.GetCountInt(), h.Schema, h.GetZeroCountInt(), h.PositiveSpans, h.PositiveDeltas)
			}
		})
		for i := 1; i < len(labels); i++ {
			if labels[i-1] >= labels[i] {
				t.Errorf("labels are not sorted: %q", labels)
			}
		}
		out[strings.Join(labels, ",")] = value
	})
	return out
}

func registry() *expose.Registry {
	r := expose.New("test", "abc")
	s := r.Set(probe.Labels{Variant: "ring"})
	s.Sampler(func(int) *probe.Sampling {
		return &probe.Sampling{Every: 2, IDs: func(uint64) (string, string) { return "t", "s" }}
	})
	s.Begin(1)
	p := s.Probe()
	p.Count(probe.Released, probe.Added, 42)
	p.Value(probe.BatchSize, 3)
	p.ObserveEvent(probe.ReleasedHandled, time.Second, 2)
	p.Close()
	return r
}

func push(t *testing.T, url string, from prometheus.Gatherer) error {
	t.Helper()
	p, err := New(url, "watchlab", "here")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return p.Push(t.Context(), from)
}

// TestPush: what is gathered arrives, once, under the names that scraping gives.
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
		"__name__=watchlab_batch_size,instance=here,job=watchlab,run=test,variant=ring":                                             "native 1 of schema 3, 0 zero, [offset:13 length:1] [1]",
		"__name__=watchlab_end_to_end_latency_seconds_bucket,from=released,instance=here,job=watchlab,le=1.0,run=test,variant=ring": "1 # span_id=s # trace_id=t 1",
	} {
		got := strings.ReplaceAll(r.got[name], "  ", " ")
		if name == "" || got != want && !strings.Contains(want, "trace_id") || strings.Contains(want, "trace_id") && !(strings.Contains(got, "trace_id=t") && strings.HasPrefix(got, "1 ")) {
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

// TestParts: more series than one request takes come in several.
func TestParts(t *testing.T) {
	r := newReceiver(t)
	reg := prometheus.NewRegistry()
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "g"}, []string{"n"})
	reg.MustRegister(vec)
	for n := range 2*perRequest + 1 {
		vec.WithLabelValues(fmt.Sprint(n)).Set(float64(n))
	}
	if err := push(t, r.URL+"/", reg); err != nil {
		t.Fatal(err)
	}
	if len(r.got) != 2*perRequest+1 || r.asked != 3 {
		t.Errorf("%d series in %d requests", len(r.got), r.asked)
	}
}

// TestNoNatives: a receiver that refuses native histograms has all the rest.
func TestNoNatives(t *testing.T) {
	r := newReceiver(t)
	r.refuse = func(native bool) int {
		if native {
			return http.StatusBadRequest
		}
		return 0
	}
	err := push(t, r.URL, registry())
	if !errors.Is(err, ErrNative) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*longest {
		t.Errorf("error %v", err)
	}
	if len(r.got) < 100 {
		t.Errorf("%d series", len(r.got))
	}
}

// TestTriesAgain: what a receiver can't take just now comes again; what it will
// never take doesn't.
func TestTriesAgain(t *testing.T) {
	defer func(before time.Duration) { retry.Min = before }(retry.Min)
	retry.Min = time.Millisecond
	for status, want := range map[int]int{http.StatusServiceUnavailable: 4, http.StatusUnauthorized: 1} {
		r := newReceiver(t)
		r.refuse = func(bool) int { return status }
		if err := push(t, r.URL, registry()); err == nil || errors.Is(err, ErrNative) {
			t.Errorf("%d: error %v", status, err)
		}
		if r.asked != want {
			t.Errorf("%d: asked %d times, want %d", status, r.asked, want)
		}
	}
}

// TestCancelled: nobody waits for a receiver longer than the context says.
func TestCancelled(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer s.Close()
	defer close(hang)
	p, err := New(s.URL, "watchlab", "here")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Push(ctx, registry()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestBadURL(t *testing.T) {
	for _, u := range []string{"", "localhost:9090", "ftp://x", "http://", "http://a b", "%"} {
		if _, err := New(u, "", ""); !errors.Is(err, ErrURL) {
			t.Errorf("%q: %v, want one that wraps %v", u, err, ErrURL)
		}
	}
}
