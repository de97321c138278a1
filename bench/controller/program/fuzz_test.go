package program_test

import (
	"testing"
	"time"

	"watchlab/bench/controller/program"
)

// FuzzScrape: metrics are read or refused.
func FuzzScrape(f *testing.F) {
	for _, s := range []string{
		"# TYPE workqueue_queue_duration_seconds histogram\nworkqueue_queue_duration_seconds_bucket{name=\"a\\\"b\",le=\"1\"} 3\nworkqueue_queue_duration_seconds_bucket{le=\"+Inf\"} 4\nworkqueue_queue_duration_seconds_sum 9\nworkqueue_queue_duration_seconds_count 4\n",
		"workqueue_depth{name=\"x\"} NaN\n", "process_cpu_seconds_total 1e999\n", "workqueue_x{le=\"\n", "# TYPE workqueue_a summary\nworkqueue_a{quantile=\"0.5\"} 1\nworkqueue_a_count 1\n", "\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		values, err := program.Parse(body)
		if err == nil && len(values) > len(body) {
			t.Errorf("%d values of %d bytes", len(values), len(body))
		}
	})
}
