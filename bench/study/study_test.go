package study_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/bench/study"
)

var update = flag.Bool("update", false, "write the golden files anew")

// rounds are the rounds of a cell whose events/s are given; notes are the same in
// each.
func rounds(perSecond []float64, notes ...cell.Note) []lab.Round {
	var out []lab.Round
	for i, v := range perSecond {
		out = append(out, lab.Round{Round: i + 1, Result: cell.Result{
			EventsIn: 1000, DeltasOut: 1000, DeltasPerEvent: 1, EventsPerSecond: v,
			Elapsed: time.Duration(1000 / v * 1e9), BytesPerEvent: 64, Notes: notes,
		}})
	}
	return out
}

// around are five rounds that lie within two percent of a median.
func around(v float64) []float64 {
	return []float64{v * 0.99, v, v * 1.01, v * 0.995, v * 1.005}
}

// cellOf is a valid cell with labels given as key=value.
func cellOf(labels string, perSecond []float64, notes ...cell.Note) lab.CellResult {
	c := lab.CellResult{Name: "DeltaFIFO", Class: "order total", Verdict: lab.Verdict{Status: lab.Valid}, Rounds: rounds(perSecond, notes...)}
	for _, l := range strings.Fields(labels) {
		key, value, _ := strings.Cut(l, "=")
		c.Labels = append(c.Labels, lab.Label{Key: key, Value: value})
	}
	c.Baseline = strings.HasPrefix(c.Label("impl"), "clientgo-")
	return c
}

func outcome(cells ...lab.CellResult) *lab.Outcome {
	began := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	ended := began.Add(90 * time.Second)
	return &lab.Outcome{
		Name: "surface", Started: began, Ended: &ended, Rounds: 5,
		Comparisons: []lab.ComparisonResult{{Family: "deltafifo", Title: "fakes", Cells: cells}},
		Env: lab.Env{
			CPU: "A processor", Cores: 2, GOMAXPROCS: 2, GoVersion: "go1.26.8", GOOS: "linux", GOARCH: "amd64",
			Args: []string{"surface", "--x", "batch-size=1,10"}, Build: lab.Build{Commit: "abcdef"},
		},
	}
}

func question(t *testing.T, name string) study.Question {
	t.Helper()
	qs, err := study.Choose([]string{name})
	if err != nil || len(qs) != 1 {
		t.Fatal(qs, err)
	}
	return qs[0]
}

// says fails unless some line of the answer holds all parts.
func says(t *testing.T, answer study.Answer, parts ...string) {
	t.Helper()
	lines := slices.Concat(answer.Short, answer.More)
	for _, line := range lines {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return
		}
	}
	t.Errorf("no line says %q in\n%s", parts, strings.Join(lines, "\n"))
}

func TestBatchSize(t *testing.T) {
	o := outcome(
		cellOf("impl=clientgo-realfifo-batch readers=4 rate=max", around(1000)),
		cellOf("impl=ring batch=1 readers=4 rate=max", around(2000)),
		cellOf("impl=ring batch=100 readers=4 rate=max", around(8010)),
		cellOf("impl=ring batch=1000 readers=4 rate=max", around(8000)),
		cellOf("impl=ring batch=1 readers=0 rate=max", around(5000)),
		cellOf("impl=ring batch=100 readers=0 rate=max", around(9000)),
		cellOf("impl=ring batch=1000 readers=0 rate=max", around(10000)),
	)
	q := question(t, "batch-size")
	answer := q.Answer(study.Found{"readers": o})
	says(t, answer, "ring, 4 readers: fastest in batches of 100", "batches of 1 that is 4.0", "(p=0.008)", "beside clientgo-realfifo-batch it is 8.0")
	says(t, answer, "ring, 0 readers: fastest in batches of 1000", "batches of 1 that is 2.00 times (p=0.008)")
	// 100 is told from the best without readers; 1000 isn't told from 100 with them.
	says(t, answer, "Over all numbers of readers, 1000 is the smallest batch that was nowhere told to be slower")
	// Other figures, other answer: nothing is written down beforehand.
	turned := q.Answer(study.Found{"readers": outcome(
		cellOf("impl=ring batch=1 readers=4 rate=max", around(9000)),
		cellOf("impl=ring batch=1000 readers=4 rate=max", around(8000)),
	)})
	says(t, turned, "ring, 4 readers: fastest in batches of 1, ")
	says(t, turned, "1 is the smallest batch")
	few := q.Answer(study.Found{"readers": outcome(
		cellOf("impl=ring batch=1 readers=4 rate=max", around(9000)[:3]),
		cellOf("impl=ring batch=1000 readers=4 rate=max", around(8000)[:3]),
	)})
	says(t, few, "Too few rounds to tell which batch is enough over all numbers of readers.")
	none := q.Answer(study.Found{"readers": outcome(
		cellOf("impl=ring batch=1 readers=0 rate=max", around(9000)),
		cellOf("impl=ring batch=1000 readers=0 rate=max", around(8000)),
		cellOf("impl=ring batch=1 readers=4 rate=max", around(8000)),
		cellOf("impl=ring batch=1000 readers=4 rate=max", around(9000)),
	)})
	says(t, none, "No batch is the best, or next to it, over all numbers of readers.")
}

func TestDifferencesAreTold(t *testing.T) {
	answer := question(t, "telemetry").Answer(study.Found{"stamps": outcome(
		cellOf("impl=ring stamps=none producers=1 rate=max", around(10e6)),
		cellOf("impl=ring stamps=sampled producers=1 rate=max", []float64{10.1e6, 9.9e6, 10e6, 10.02e6, 9.97e6}),
		cellOf("impl=ring stamps=all producers=1 rate=max", around(5e6)),
		cellOf("impl=cond stamps=none producers=1 rate=max", around(10e6)[:1]),
		cellOf("impl=cond stamps=all producers=1 rate=max", around(5e6)[:1]),
	)})
	says(t, answer, "ring, 1 producer: 100.0ns an event without stamps", "sampled: no difference that could be told from chance", "would have been seen", "all: +100 ns, 2.00 times (p=0.008)")
	says(t, answer, "cond, 1 producer", "all: 2.00 times (too few rounds to tell it from chance)")
}

func TestHotKeys(t *testing.T) {
	short, long := cell.Note{Unit: "hand-overs", Value: 500}, cell.Note{Unit: "hand-overs", Value: 2}
	answer := question(t, "hot-keys").Answer(study.Found{"skew": outcome(
		cellOf("impl=clientgo-realfifo-batch skew=uniform rate=max", around(1e6), long),
		cellOf("impl=clientgo-realfifo-batch skew=zipf:1.5 rate=max", around(1e5), short),
		cellOf("impl=ring skew=uniform batch=1000 rate=max", around(8e6), long),
		cellOf("impl=ring skew=zipf:1.5 batch=1000 rate=max", around(8e6), short),
		cellOf("impl=ring skew=zipf:1.5 batch=10 rate=max", around(1e6), short),
	)})
	says(t, answer, "clientgo-realfifo-batch: 1.000M events/s where all keys are alike, 500 events a hand-over; zipf:1.5: 0.10 times (p=0.008), 2 events a hand-over")
	says(t, answer, "ring (batches of up to 1000)", "zipf:1.5: no difference")
	says(t, answer, "With keys by zipf:1.5, ring beside clientgo-realfifo-batch: 80.0 times")
}

func TestCoalescing(t *testing.T) {
	kept := func(bytes, drain, calls float64) []cell.Note {
		return []cell.Note{{Unit: "B/queued-event", Value: bytes}, {Unit: "drain-ns/event", Value: drain}, {Unit: "hand-overs", Value: calls}}
	}
	answer := question(t, "coalescing").Answer(study.Found{"stalled": outcome(
		cellOf("impl=clientgo-deltafifo delivery=per-key rate=max", around(1e6), kept(100, 50, 10)...),
		cellOf("impl=clientgo-realfifo-batch delivery=in-order rate=max", around(1e6), kept(250, 500, 200)...),
	)})
	says(t, answer, "clientgo-deltafifo, per-key: 100.0B for each event that waits, 50.00ns an event to drain, 1 deltas handed over for each event, 100 events a hand-over.")
	says(t, answer, "From clientgo-deltafifo to clientgo-realfifo-batch, whose guarantees differ: memory for each event that waits 2.50 times", "calls of the handler 20.0 times")
}

func TestReadersBoundsAndRelist(t *testing.T) {
	answer := question(t, "readers").Answer(study.Found{
		"throughput": outcome(
			cellOf("impl=clientgo-realfifo-batch readers=0 handler=0 rate=max", around(1e6)),
			cellOf("impl=clientgo-realfifo-batch readers=4 handler=0 rate=max", around(1e4)),
			cellOf("impl=ring readers=0 handler=0 rate=max", around(2e6)),
			cellOf("impl=ring readers=4 handler=0 rate=max", around(1e5)),
		),
		"staleness": outcome(cellOf("impl=ring rate=1000", around(1000), cell.Note{Unit: "list-staleness-p99-events", Value: 7}, cell.Note{Unit: "staleness-p99-events", Value: 3})),
	})
	says(t, answer, "ring, a handler that costs nothing: 2.000M events/s without readers; 4 readers: 0.05 times")
	says(t, answer, "With 4 readers and a handler that costs nothing, ring beside clientgo-realfifo-batch: 10.0 times")
	says(t, answer, "ring at 1000 events/s: 99 % of the lists were at most 7 events behind, 99 % of the worker's look-ups 3 events")

	answer = question(t, "backpressure").Answer(study.Found{"capacity": outcome(
		cellOf("impl=ring capacity=0 rate=max", around(2e6)), cellOf("impl=ring capacity=64 rate=max", around(1e6)),
		cellOf("impl=clientgo-realfifo-batch capacity=0 rate=max", around(1e6)),
	)})
	says(t, answer, "ring, room for 64, beside no bound: events/s 0.50 times (p=0.008)")
	if len(answer.More) != 1 {
		t.Errorf("upstream's has no bound to tell of: %q", answer)
	}
	says(t, answer, "The most events/s, 2.000M, were those of ring with no bound.")

	memory := func(v float64, base string) lab.CellResult {
		c := cellOf("impl="+base+" delivery=in-order rate=max", around(1e6))
		for i := range c.Rounds {
			c.Rounds[i].Result.Memory = &cell.Memory{HeapBytes: 1 << 20, PeakHeapBytes: 1<<20 + uint64(v)}
		}
		return c
	}
	answer = question(t, "relist").Answer(study.Found{"replace": outcome(memory(4<<20, "clientgo-realfifo-batch"), memory(1<<20, "ring"))})
	says(t, answer, "ring, in-order: the heap grew by 1.000MiB")
	says(t, answer, "In-order, the growth of the heap of ring beside that of clientgo-realfifo-batch: 0.25 times")
}

// TestUnequal: no ratio is taken between classes.
func TestUnequal(t *testing.T) {
	other := cellOf("impl=ring readers=4 handler=0 rate=max", around(1e5))
	other.Class = "order per-key"
	answer := question(t, "readers").Answer(study.Found{"throughput": outcome(
		cellOf("impl=clientgo-realfifo-batch readers=0 handler=0 rate=max", around(1e4)),
		cellOf("impl=clientgo-realfifo-batch readers=4 handler=0 rate=max", around(1e4)), other,
	)})
	if len(answer.More) == 0 {
		t.Errorf("nothing is told: %+v", answer)
	}
	for _, line := range append(answer.Short, answer.More...) {
		if strings.Contains(line, "beside clientgo") {
			t.Error(line)
		}
	}
}

func TestKneesAndScalings(t *testing.T) {
	o := outcome()
	point := []stats.KneePoint{{Rate: 1, Rounds: 3}}
	o.Knees = []stats.Knee{
		{Impl: "ring", Held: 40000, Failed: 44000, Limit: "latency", Points: point},
		{Impl: "cond", Failed: 2000, Limit: "generator", Points: point},
		{Impl: "slow", Failed: 2000, Limit: "latency", Points: point},
		{Impl: "sharded", Held: 9000, Failed: 9900, Limit: "generator", Points: point},
		{Impl: "channel", Held: 200000, Limit: "search", Points: point},
		{Impl: "unplayed", Limit: "time"},
	}
	answer := question(t, "knee").Answer(study.Found{"p99": o})
	says(t, answer, "ring: 40000 events/s; 44000 were too many (limit: latency).")
	says(t, answer, "slow: not even 2000 events/s (limit: latency).")
	says(t, answer, "cond: not known, as the generator couldn't keep 2000 events/s, the lowest rate.")
	says(t, answer, "sharded: 9000 events/s or more; 9900 the generator couldn't keep.")
	says(t, answer, "channel: 200000 events/s, and more was not tried (limit: search).")
	says(t, answer, "unplayed: no rate was played to the end.")

	o = outcome(
		cellOf("impl=clientgo-deltafifo producers=8 rate=max", around(100)),
		cellOf("impl=ring producers=8 rate=max", around(200)),
	)
	o.Scalings = []stats.Scaling{
		{Impl: "ring", Over: "producers", Points: []stats.ScalePoint{{N: 1, EventsPerSecond: around(100)}, {N: 8, EventsPerSecond: around(200)}},
			Fit: &stats.USL{Sigma: stats.Estimate{Value: 0.3, Lo: 0.2, Hi: 0.4}, Peak: 20, RMSE: 0.05}},
		{Impl: "cond", Over: "producers", Points: []stats.ScalePoint{{N: 1, EventsPerSecond: around(100)}}, Why: "too few points"},
	}
	answer = question(t, "producers").Answer(study.Found{"producers": o})
	says(t, answer, "ring: from 1 to 8 producers: 2.00 times (p=0.008); contention 0.300 (0.200 to 0.400)", "highest at 20 by extrapolation")
	says(t, answer, "cond", "no law is fitted: too few points")
	says(t, answer, "With 8 producers, ring is the fastest: 200.0 events/s.")
	says(t, answer, "With 8 producers, ring beside clientgo-deltafifo: 2.00 times (p=0.008).")
}

// TestNothingFound: where there are no figures, no question answers anything.
func TestNothingFound(t *testing.T) {
	bad := cellOf("impl=ring readers=0 handler=0 batch=1 skew=uniform stamps=none producers=1 capacity=0 delivery=in-order rate=max", nil)
	bad.Verdict = lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "event 7"}
	for _, q := range study.Questions() {
		for name, found := range map[string]study.Found{"not played": {}, "lost": {q.Parts[0].Name: outcome(bad)}} {
			answer := q.Answer(found)
			if len(answer.Short) != 1 || len(answer.More) != 0 || !strings.HasPrefix(answer.Short[0], "There are no figures to answer it by: ") {
				t.Errorf("%s, %s: %q", q.Name, name, answer)
			}
			if name == "lost" && !strings.Contains(answer.Short[0], "invalid: lost") {
				t.Errorf("%s: the reason is missing: %q", q.Name, answer)
			}
		}
	}
}

func TestQuestions(t *testing.T) {
	seen := map[string]bool{}
	for _, q := range study.Questions() {
		if seen[q.Name] || !strings.HasSuffix(q.Asks, "?") || q.About == "" || len(q.Parts) == 0 || q.Weight() <= 0 {
			t.Errorf("%+v", q)
		}
		seen[q.Name] = true
		parts := map[string]bool{}
		for _, p := range q.Parts {
			if parts[p.Name] || p.Shows == "" || p.Weight <= 0 || len(p.Columns) == 0 || len(p.Args) == 0 ||
				slices.Contains(p.Args, "--out") || slices.Contains(p.Args, "--budget") {
				t.Errorf("%s: %+v", q.Name, p)
			}
			parts[p.Name] = true
		}
	}
	if _, err := study.Choose([]string{"nobody"}); !errors.Is(err, study.ErrUnknownQuestion) || !strings.Contains(fmt.Sprint(err), "relist") {
		t.Errorf("%v", err)
	}
	if qs, err := study.Choose([]string{"knee", "relist"}); err != nil || len(qs) != 2 || qs[0].Name != "relist" {
		t.Errorf("%v %v", qs, err)
	}
}

// TestPages compares whole pages with golden files.
func TestPages(t *testing.T) {
	again := cellOf("impl=ring-again batch=1 readers=0 rate=max", around(5100))
	again.Repeats = "DeltaFIFO/impl=ring/batch=1/readers=0/rate=max"
	lost := cellOf("impl=cond batch=1 readers=0 rate=max", nil)
	lost.Verdict = lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "event 7 (a|b)"}
	o := outcome(
		cellOf("impl=clientgo-realfifo-batch readers=0 rate=max", around(1000), cell.Note{Unit: "reads/s", Value: 12}),
		cellOf("impl=ring batch=1 readers=0 rate=max", around(5000)),
		cellOf("impl=ring batch=1000 readers=0 rate=max", around(10000)[:4]),
		lost, again,
	)
	q := question(t, "batch-size")
	found := study.Found{"readers": o}
	var page, index bytes.Buffer
	if err := study.Page(&page, q, found); err != nil {
		t.Fatal(err)
	}
	if err := study.Index(&index, "watchlab study --budget 1m", []study.Entry{{q, found}, {question(t, "knee"), nil}}); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"page.md": page.String(), "index.md": index.String()} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs; got\n%s", file, got)
		}
	}
}
