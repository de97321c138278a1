package live

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"watchlab/bench/telemetry/metric"
)

// TestSample: rates and quantiles cover the time between two samples; unknown ones are null.
func TestSample(t *testing.T) {
	r := New("test", "")
	r.Progress(3, 0.5)
	set := r.Set(labels)
	set.Update(func(f *Figures) {
		f.Count(Released, Added, 1000)
		f.Observe(IntendedHandled, 1e9)
	})
	sampler := newSampler(r)
	t0 := time.UnixMilli(1_800_000_000_000)
	first := sampler.sample(t0)
	if v := first.Variants[0]; v.Released != nil || v.P99 != nil || first.Seconds != 0 {
		t.Errorf("the first sample has rates: %+v", v)
	}
	set.Depth(func() int { return 7 }, 10)
	set.Look()
	set.Update(func(f *Figures) {
		f.Phase, f.Verdict = metric.Measure, Verdict{Status: "invalid", Cause: "generator"}
		f.Count(Released, Modified, 300)
		f.Count(Enqueued, Modified, 300)
		f.Count(Handled, Modified, 200)
		f.Count(Popped, Modified, 150)
		for range 100 {
			f.Observe(IntendedHandled, 1e6)
			f.Observe(BatchSize, 4)
		}
	})
	second := sampler.sample(t0.Add(2 * time.Second))
	v := second.Variants[0]
	if v.Group != "deltafifo · in-order · informer · gang · memory · protobuf · shared · snapshot · sharded" || v.Name != "ring" || v.Rate != "1000" || v.Phase != "measure" || v.Verdict != "invalid: generator" || v.Depth != 7 || v.Bytes != 70 {
		t.Errorf("%+v", v)
	}
	for name, got := range map[string]struct {
		v        *float64
		from, to float64
	}{
		"released": {v.Released, 150, 150}, "handled": {v.Handled, 100, 100}, "per event": {v.PerEvent, 0.5, 0.5},
		"p50": {v.P50, 0.001, 0.0011}, "p99": {v.P99, 0.001, 0.0011}, "batch": {v.Batch, 4, 4},
	} {
		if got.v == nil || *got.v < got.from || *got.v > got.to {
			t.Errorf("%s is %v, want %v to %v", name, got.v, got.from, got.to)
		}
	}
	if v.Lag != nil || v.Staleness != nil {
		t.Errorf("lag %v, staleness %v", v.Lag, v.Staleness)
	}
	if second.Run != "test" || second.Progress != 0.5 || second.Heap == 0 || second.Gorout == 0 {
		t.Errorf("%+v", second)
	}
	// A queue that drains has no ratio above that of the storm, and a latency from the release is none.
	set.Update(func(f *Figures) {
		f.Count(Popped, Modified, 150)
		f.Observe(ReleasedHandled, 1e9)
	})
	if v := sampler.sample(t0.Add(3 * time.Second)).Variants[0]; v.P50 != nil || *v.Released != 0 || *v.PerEvent != 1 {
		t.Errorf("%+v", v)
	}
	unpaced := labels
	unpaced.Rate = "max"
	r.Set(unpaced)
	if v := sampler.sample(t0.Add(4 * time.Second)).Variants; len(v) != 2 || v[1].Rate != "max" || v[1].PerEvent != nil {
		t.Errorf("%+v", v)
	}
}

// TestStream: each of four viewers gets samples until it disconnects; a fifth is refused.
func TestStream(t *testing.T) {
	r := New("test", "")
	s := httptest.NewServer(samplesHandler(r, time.Millisecond))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for range maxViewers {
		res, err := http.Get(s.URL + "/samples")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("content type %q", got)
		}
		lines := bufio.NewScanner(res.Body)
		for n := 0; n < 3 && lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var sample Sample
			if err := json.Unmarshal([]byte(data), &sample); err != nil || sample.Run != "test" {
				t.Fatalf("%q: %v", data, err)
			}
			n++
		}
	}
	refused, err := http.Get(s.URL + "/samples")
	if err != nil {
		t.Fatal(err)
	}
	if _ = refused.Body.Close(); refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the fifth viewer gets %d", refused.StatusCode)
	}
}

// TestPage: the page refers to no other server, and its script uses only existing ids and fields.
func TestPage(t *testing.T) {
	s := httptest.NewServer(pageHandler())
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	get := func(path string) string {
		res, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Security-Policy") != contentPolicy {
			t.Fatalf("%s: %d %v %v", path, res.StatusCode, res.Header, err)
		}
		return string(body)
	}
	html, script, style := get("/"), get("/page.js"), get("/page.css")
	get("/icon.svg")
	for name, text := range map[string]string{"html": html, "script": script, "style": style} {
		for _, bad := range regexp.MustCompile(`(?i)https?://[^"'\s)]+|@import|eval\(|innerHTML|style="`).FindAllString(text, -1) {
			if bad != "http://www.w3.org/2000/svg" {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
	for _, m := range regexp.MustCompile(`\$\("([a-z]+)"\)`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(html, `id="`+m[1]+`"`) {
			t.Errorf("the page has no id %q", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\b[vs]\.([a-zA-Z0-9]+)\b`).FindAllStringSubmatch(script, -1) {
		known, err := json.Marshal(Sample{Variants: []Variant{{}}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(known), `"`+m[1]+`"`) && m[1] != "toPrecision" && m[1] != "length" {
			t.Errorf("samples have no %q", m[1])
		}
	}
}
