package plane

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
)

// created is a workload that creates Deployments.
const created = `
objects:
- copies: %d
  create: {at: 500ms, rate: %g}
  object:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, namespace: default}
    spec:
      replicas: 1
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec: {containers: [{name: web, image: "example.com/web:1"}]}
`

const answered = `
rules:
- after: deployments.apps ADDED
  expect: write to status of it
`

// latency plays the creation of Deployments to the manager. Each one has one reconcile with one write. It returns
// two means besides: from the intended time of a creation until it was visible, and from the arrival of the write to
// the end of its answer.
func latency(tb testing.TB, copies int, rate float64, work time.Duration, workers int, serve func(controller.Setup) (controller.Server, error)) (p *controller.Play, late, answer time.Duration) {
	tb.Helper()
	dir := tb.TempDir()
	workload, rules := filepath.Join(dir, "workload.yaml"), filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(workload, fmt.Appendf(nil, created, copies, rate), 0o644); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(rules, []byte(answered), 0o644); err != nil {
		tb.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	result, err := controller.Run(tb.Context(), controller.Spec{
		Workload: workload, Rules: rules, Plans: []string{controller.PlanNone}, Settle: metav1.Duration{Duration: 2 * time.Minute},
		Programs: []controller.Program{{Command: []string{
			self, "manager", "--metrics={metrics}", fmt.Sprint("--work=", work), fmt.Sprint("--workers=", workers),
		}}},
	}, controller.Options{Dir: filepath.Join(dir, "out"), Serve: serve, Notify: func(line string) { tb.Log(line) }})
	if err != nil {
		tb.Fatal(err)
	}
	p = &result.Plays[0]
	// Otherwise the two means are of other events.
	if l := p.Latencies; len(l) != 1 || l[0].Answered != copies || l[0].Unanswered != 0 || p.Figures[controller.UnitHandled] != float64(copies) {
		tb.Fatalf("%+v and %v reconciles, want %d of each", l, p.Figures[controller.UnitHandled], copies)
	}
	for c := range lines[record.Change](tb, filepath.Join(dir, "out", p.Folder, "changes.jsonl.gz")) {
		if c.Type == watch.Added && c.By == record.ByWorkload {
			late += (c.At - c.Intended) / time.Duration(copies)
		}
	}
	for a := range lines[record.Access](tb, filepath.Join(dir, "out", p.Folder, "requests.jsonl.gz")) {
		if a.Verb == "update" && a.Subresource == "status" && a.Resource.Resource == "deployments" {
			answer += a.Took / time.Duration(copies)
		}
	}
	return p, late, answer
}

// TestOwnMetrics counts the reconciles of a manager from its metrics: one for each event.
func TestOwnMetrics(t *testing.T) {
	p, _, _ := latency(t, 30, 100, time.Millisecond, 1, nil)
	if own := p.Figures[controller.UnitOwn]; !(own >= float64(time.Millisecond)) {
		t.Errorf("queue and reconcile took %v ns by the metrics, at least 1 ms by the program", own)
	}
}

// BenchmarkLatency compares the reconcile latency from outside with the metrics of controller-runtime. Both
// sides have the same events: each creation has one reconcile with one write.
//
//   - outside-ns: mean from the intended time of the creation to the arrival of the write
//   - inside-ns: mean of workqueue_queue_duration_seconds and that of controller_runtime_reconcile_time_seconds
//   - late-ns: the part of outside-ns before the event was visible: the mean delay of the creations
//   - answer-ns: the part of inside-ns after the arrival of the write: the server's time for it
//   - transit-ns: outside-ns - late-ns - (inside-ns - answer-ns), what is left of the part that both sides have: the
//     way of the event from the server to the queue, and that of the write and its answer between the two
//   - difference-ns and difference-%: outside-ns less inside-ns, and its share of inside-ns
//
// So outside-ns is late-ns + transit-ns + inside-ns - answer-ns. Only transit-ns compares like with like. work is the
// time before the write. At 1,000 creations a second events wait in the queue.
func BenchmarkLatency(b *testing.B) {
	for _, plane := range []string{"simulated", "real"} {
		for _, c := range []struct {
			work    time.Duration
			rate    float64
			workers int
		}{{0, 50, 1}, {20 * time.Millisecond, 50, 4}, {20 * time.Millisecond, 1000, 1}} {
			b.Run(fmt.Sprintf("impl=%s/work=%v/rate=%g/workers=%d", plane, c.work, c.rate, c.workers), func(b *testing.B) {
				run := serve
				if plane == "simulated" {
					run = nil
				}
				var outside, inside, behind, answered float64
				n := 0.0
				for b.Loop() {
					p, late, answer := latency(b, 250, c.rate, c.work, c.workers, run)
					outside += p.Figures[controller.UnitMean]
					inside += p.Figures[controller.UnitOwn]
					behind += float64(late)
					answered += float64(answer)
					n++
				}
				b.ReportMetric(outside/n, "outside-ns")
				b.ReportMetric(inside/n, "inside-ns")
				b.ReportMetric(behind/n, "late-ns")
				b.ReportMetric(answered/n, "answer-ns")
				b.ReportMetric((outside-behind-inside+answered)/n, "transit-ns")
				b.ReportMetric((outside-inside)/n, "difference-ns")
				b.ReportMetric(100*math.Abs(outside-inside)/inside, "difference-%")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
