package dashboards

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/telemetry/metric"
)

// storms holds the arguments of the runs: each pipeline, paced and unpaced, with faults
// on the simulated server. Together they produce all metrics of the dashboards.
var storms = [][]string{
	{"--family", "deltafifo", "--impl", "clientgo-realfifo-batch,ring", "--pipeline", "queue", "--storm", "recorded-gang", "--pace", "max,5000", "--lag-budget", "10s"},
	{"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond", "--pipeline", "informer", "--source", "apiserver", "--faults", "disconnect:every=1s,count=20", "--storm", "recorded-gang", "--pace", "max,500", "--lag-budget", "10s"},
	{"--family", "merge", "--impl", "reference,cond", "--pipeline", "kubelet", "--storm", "recorded-nodeloss", "--pace", "max,200", "--lag-budget", "10s"},
}

// lasting is the budget of each run. The test ends the runs when they have figures of all cells.
const lasting = "10m"

// TestRun checks that all queries of dashboards and rules return data during real runs
// that a real Prometheus scrapes.
func TestRun(t *testing.T) {
	programs.Installed(t, "prometheus")
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			if testing.Short() && form.native {
				t.Skip("short: TestDashboards has this form, with known values")
			}
			var targets []string
			for range storms {
				targets = append(targets, programs.Address(t))
			}
			p := startPrometheus(t, form, targets...)
			from := time.Now()
			for i, args := range storms {
				playing(t, targets[i], args...)
			}

			programs.Eventually(t, "finished cells", func() error {
				for _, m := range []metric.Metric{metric.EventsPerSecond, metric.LatencyQuantile} {
					got, err := p.instant(t.Context(), m.Name, window{to: time.Now().Add(-4 * scrape)})
					if err != nil {
						return err
					}
					variants := map[string]map[string]bool{} // the paced cells of all variants have latencies
					for _, g := range got {
						instance := g.Metric["instance"]
						if variants[instance] == nil {
							variants[instance] = map[string]bool{}
						}
						variants[instance][strings.TrimSuffix(g.Metric[metric.Variant], "-again")] = true
					}
					for i, instance := range targets {
						if n := len(variants[instance]); n < 2 {
							return fmt.Errorf("%s of %d variants of run %d", m.Name, n, i)
						}
					}
				}
				return nil
			})
			w := window{from, time.Now()}
			for _, d := range load(t) {
				for _, instance := range targets {
					run := runAt(t, p, instance, w)
					t.Run(d.UID+"/"+run, func(t *testing.T) { everything(t, p, d, w, map[string]string{"run": run}) })
				}
			}
			t.Run("rules", func(t *testing.T) {
				for _, r := range ruleStates(t, p) {
					if r.Type != "recording" {
						continue
					}
					got, err := p.instant(t.Context(), r.Name, w)
					if err != nil {
						t.Error(err)
					} else if !slices.ContainsFunc(got, series.drawable) {
						t.Errorf("%s has recorded nothing", r.Name)
					}
				}
			})
			t.Run("alerts", func(t *testing.T) {
				// The alert must name the injected faults, and only the run with faults.
				got, err := p.series(t.Context(), `ALERTS{alertname="WatchlabWatchErrors"}`, w)
				if err != nil {
					t.Fatal(err)
				}
				if len(got) == 0 {
					t.Error("faults, and no alert")
				}
				for _, s := range got {
					if s.Metric["instance"] != targets[1] || s.Metric[metric.Fault] == "" {
						t.Errorf("an alert for %v", s.Metric)
					}
				}
			})
			t.Run("cardinality", func(t *testing.T) { bounded(t, p, w, cellsOf(t, p, w), len(storms), form) })
		})
	}
}

// runAt returns the name of the run at an address.
func runAt(t *testing.T, p *prometheus, instance string, w window) string {
	t.Helper()
	got, err := p.series(t.Context(), fmt.Sprintf("%s{instance=%q}", metric.StartTime.Name, instance), w)
	if err != nil || len(got) != 1 {
		t.Fatalf("runs at %s: %v, %v", instance, got, err)
	}
	return got[0].Metric[metric.Run]
}

// playing starts a run that serves its metrics on address.
func playing(t *testing.T, address string, args ...string) {
	t.Helper()
	args = append([]string{"run", "--ignore-host", "--budget", lasting, "--metrics-addr", address}, args...)
	run := programs.Start(t, exec.Command(programs.Watchlab(t), args...), 0, 130)
	run.Ready(t, func() error { return ok("http://" + address + "/readyz") })
}

// cellsOf returns the number of cells: distinct sets of the common labels.
func cellsOf(t *testing.T, p *prometheus, w window) int {
	t.Helper()
	sets, err := p.labelSets(t.Context(), metric.Phase.Name, w)
	if err != nil {
		t.Fatal(err)
	}
	distinct := map[string]bool{}
	for _, set := range sets {
		var key string
		for _, l := range append(metric.CommonLabels(), "instance") {
			key += set[l] + "\x00"
		}
		distinct[key] = true
	}
	return len(distinct)
}
