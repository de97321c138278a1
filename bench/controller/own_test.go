package controller

import (
	"os"
	"path/filepath"
	"testing"

	"watchlab/bench/controller/record"
)

// TestOwn sums the metrics of replicas from their first scrapes on. A restarted program begins anew.
func TestOwn(t *testing.T) {
	scrape := func(client string, started, n float64, names ...string) record.Scrape {
		s := record.Scrape{Client: client, Values: map[string]float64{"process_start_time_seconds": started}}
		for _, name := range names {
			s.Values[name+"_count"], s.Values[name+"_sum"] = n, 2*n
		}
		return s
	}
	const queued, worked, reconciled = "workqueue_queue_duration_seconds", "workqueue_work_duration_seconds", "controller_runtime_reconcile_time_seconds"
	for name, c := range map[string]struct {
		scrapes     []record.Scrape
		queue, work float64
	}{
		"none":               {},
		"no metrics":         {[]record.Scrape{scrape("a", 1, 0), scrape("a", 1, 0)}, 0, 0},
		"client-go":          {[]record.Scrape{scrape("a", 1, 3, queued, worked), scrape("a", 1, 10, queued, worked)}, 7, 7},
		"controller-runtime": {[]record.Scrape{scrape("a", 1, 0), scrape("a", 1, 4, queued, worked, reconciled)}, 4, 4},
		"replicas": {[]record.Scrape{
			scrape("a", 1, 1, queued, worked), scrape("b", 1, 2, queued, worked), scrape("a", 1, 5, queued, worked), scrape("b", 1, 9, queued, worked),
		}, 11, 11},
		"restart": {[]record.Scrape{
			scrape("a", 1, 1, queued, worked), scrape("a", 1, 6, queued, worked), scrape("a", 2, 8, queued, worked), scrape("a", 2, 9, queued, worked),
		}, 14, 14},
	} {
		queue, work := own(c.scrapes)
		if queue.count != c.queue || work.count != c.work || queue.sum != 2*c.queue || work.sum != 2*c.work {
			t.Errorf("%s: queue %+v, work %+v, want %v and %v", name, queue, work, c.queue, c.work)
		}
	}
}

// TestLoggedErrors counts the errors of common loggers, and not what mentions an error.
func TestLoggedErrors(t *testing.T) {
	dir := t.TempDir()
	log := `I1127 20:15:34.1 1 main.go:1] "started" err=nil
E1127 20:15:34.1 1 main.go:2] "Reconciler error"
{"level":"error","ts":"2026-11-27T20:15:34Z","msg":"Reconciler error"}
{"time":"2026-11-27T20:15:34Z","level":"ERROR","msg":"no such kind"}
{"level":"info","msg":"no error"}
2026-11-27T20:15:34Z	ERROR	setup	unable to start
2026-11-27T20:15:34Z	INFO	setup	level of errors
time="2026-11-27T20:15:34Z" level=error msg="failed"
`
	if err := os.WriteFile(filepath.Join(dir, "controller-0.log"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	s := session{dir: dir, clients: []string{"controller-0", "controller-1"}}
	if n := s.loggedErrors(); n != 5 {
		t.Errorf("%d errors, want 5", n)
	}
}
