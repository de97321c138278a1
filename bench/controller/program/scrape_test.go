package program_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"watchlab/bench/controller/program"
)

const exposed = `# TYPE workqueue_depth gauge
workqueue_depth{priority="0",name="widget"} 3
# TYPE workqueue_adds_total counter
workqueue_adds_total{name="a \"b\" \\"} 12
workqueue_adds_total{name="c"} 8
# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_bucket{name="widget",le="0.1"} 4
workqueue_queue_duration_seconds_bucket{name="widget",le="1e+06"} 5
workqueue_queue_duration_seconds_bucket{name="widget",le="+Inf"} 6
workqueue_queue_duration_seconds_sum{name="widget"} 2.5
workqueue_queue_duration_seconds_count{name="widget"} 6
workqueue_queue_duration_seconds_bucket{name="idle",le="+Inf"} 2
workqueue_queue_duration_seconds_sum{name="idle"} 0.5
workqueue_queue_duration_seconds_count{name="idle"} 2
# TYPE workqueue_work_duration_seconds summary
workqueue_work_duration_seconds{quantile="0.5"} 1
workqueue_work_duration_seconds_sum 9
workqueue_work_duration_seconds_count 4
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.5e+07
go_goroutines 40
go_memstats_heap_inuse_bytes 7
go_gc_duration_seconds_count 7
http_requests_total 9
`

func TestParse(t *testing.T) {
	got, err := program.Parse([]byte(exposed))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"workqueue_depth":                        3,
		"workqueue_adds_total":                   20,
		"workqueue_queue_duration_seconds_sum":   3,
		"workqueue_queue_duration_seconds_count": 8,
		"workqueue_work_duration_seconds_sum":    9,
		"workqueue_work_duration_seconds_count":  4,
		"go_goroutines":                          40,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := program.Parse([]byte("workqueue_depth{")); err == nil || !strings.HasPrefix(err.Error(), "metrics: text format parsing error in line 1") {
		t.Errorf("error %v", err)
	}
}

func TestScraper(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprint(w, exposed)
		case "/large":
			_, _ = w.Write(make([]byte, 33<<20))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	plain := httptest.NewServer(h)
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h(w, r)
	}))
	defer secure.Close()
	address := func(s *httptest.Server) string { _, at, _ := strings.Cut(s.URL, ":"); return at }
	for target, want := range map[string]string{
		plain.URL + "/metrics": "<nil>", plain.URL + "/none": "404 Not Found", plain.URL + "/large": "more than 32 MiB",
		address(plain) + "/metrics": "<nil>", address(secure) + "/metrics": "<nil>", address(secure) + "/none": "404 Not Found",
	} {
		scraper, err := program.NewScraper(target, "secret")
		if err != nil {
			t.Fatal(err)
		}
		values, err := scraper.Scrape(t.Context())
		scraper.Close()
		if got := fmt.Sprint(err); !strings.HasSuffix(got, want) || (err == nil) != (values["go_goroutines"] == 40) {
			t.Errorf("%s: %v, %v goroutines", target, err, values["go_goroutines"])
		}
	}
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://127.0.0.1/metrics", "http://", "http://[", "\x00"} {
		if _, err := program.NewScraper(bad, ""); err == nil || !strings.HasPrefix(err.Error(), "metrics: ") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}
