package telemetry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/pprof/profile"
)

// TestPyroscope checks the uploads to /ingest: pprof profiles of all kinds. CPU samples
// must have the labels variant and stage.
func TestPyroscope(t *testing.T) {
	var mu sync.Mutex
	types, labels, names := map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/ingest" {
			http.NotFound(w, r)
			return
		}
		file, _, err := r.FormFile("profile")
		if err != nil {
			t.Error(err)
			return
		}
		p, err := profile.Parse(file)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		names[r.URL.Query().Get("name")] = true
		for _, st := range p.SampleType {
			types[st.Type] = true
		}
		for _, sample := range p.Sample {
			for k, vs := range sample.Label {
				if labels[k] == nil {
					labels[k] = map[string]bool{}
				}
				for _, v := range vs {
					labels[k][v] = true
				}
			}
		}
	}))
	defer s.Close()
	_, stderr := run(t, nil, "--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring", "--pipeline", "informer",
		"--storm", "recorded-nodeloss", "--rounds", "3", "--pyroscope", s.URL)
	if strings.Contains(stderr, "Pyroscope") {
		t.Errorf("warned: %s", stderr)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"cpu", "alloc_objects", "alloc_space", "inuse_objects", "inuse_space", "contentions", "delay", "goroutine"} {
		if !types[want] {
			t.Errorf("no samples of %s among %v", want, types)
		}
	}
	for key, want := range map[string][]string{
		"family": {"deltafifo"}, "variant": {"clientgo-realfifo-batch", "ring"}, "storm": {"recorded-nodeloss"}, "pipeline": {"informer"},
		"stage": {"source", "store", "work"},
	} {
		for _, v := range want {
			if !labels[key][v] {
				t.Errorf("no sample has %s=%s: %v", key, v, labels[key])
			}
		}
	}
	for n := range names {
		if !strings.HasPrefix(n, "watchlab{") || !strings.Contains(n, "run=") {
			t.Errorf("name %q", n)
		}
	}
}
