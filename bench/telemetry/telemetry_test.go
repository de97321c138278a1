package telemetry

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pprof"
	"watchlab/bench/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// play is a workload that records a few events.
type play struct {
	t     *testing.T
	check error
	// during is called in the middle of Run.
	during func(ctx context.Context)
}

const played = 100

func (p *play) Setup(ctx context.Context) error {
	From(ctx).Begin(played)
	return nil
}

func (p *play) Run(ctx context.Context, rec *cell.Recorder) error {
	rec.Begin()
	set := From(ctx)
	for range played {
		set.Count(Handled, Modified, 1)
		set.Observe(IntendedHandled, int64(time.Millisecond))
	}
	if p.during != nil {
		p.during(ctx)
	}
	rec.End()
	rec.Count(played, played)
	for n := range played {
		rec.Lag(0, 0)
		rec.Latency("intended→handled", time.Duration(n+1)*time.Millisecond)
	}
	return nil
}

func (p *play) Check() error    { return p.check }
func (p *play) Teardown() error { return nil }

func comparison(cells ...lab.Cell) []lab.Comparison {
	return []lab.Comparison{{Family: "deltafifo", Title: "test", Cells: cells}}
}

func cellOf(variant string, p *play) lab.Cell {
	return lab.Cell{
		Name: "Test", Labels: []lab.Label{{Key: "impl", Value: variant}, {Key: "storm", Value: "gang"}, {Key: "rate", Value: "1000"}},
		New: func() (lab.Workload, error) { return p, nil },
	}
}

// runLab plays comparisons as the command does.
func runLab(t *testing.T, s *Session, comparisons []lab.Comparison, rounds int) *lab.Outcome {
	t.Helper()
	o, err := lab.Run(t.Context(), comparisons, lab.Options{Rounds: rounds, NoAA: true, IgnoreHost: true, Progress: s.Progress(nil), Watch: s.Watch})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func scrape(t *testing.T, s *Session) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Server().URL()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// value returns the first sample of a metric with all the labels; "" for none.
func value(text, name string, labels ...string) string {
lines:
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name+"{")
		if !ok {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue lines
			}
		}
		return strings.TrimSpace(rest[strings.LastIndex(rest, "}")+1:])
	}
	return ""
}

// TestRun: a scrape during a run shows its phase and counts, and a scrape after it the
// figures of finished cells.
func TestRun(t *testing.T) {
	s, err := Start(t.Context(), Options{Run: "test", Commit: "abc", MetricsAddr: "127.0.0.1:0", Warn: func(text string) { t.Error(text) }})
	if err != nil {
		t.Fatal(err)
	}
	var during []string
	ring := &play{t: t, during: func(context.Context) { during = append(during, scrape(t, s)) }}
	lost := &play{t: t, check: lab.ErrLost}
	s.Objectives([]stats.Objective{{Unit: stats.UnitP99, Most: 2 * time.Millisecond}})
	cells := comparison(cellOf("ring", ring), cellOf("cond", lost))
	cells[0].Cells[0].Baseline = true
	o := runLab(t, s, cells, 3)
	after := scrape(t, s)
	for _, name := range []string{"watchlab_cpu_seconds_per_event", "watchlab_played_seconds_total"} {
		if v, err := strconv.ParseFloat(value(after, name, `variant="ring"`), 64); err != nil || v <= 0 {
			t.Errorf("%s is %v (%v), want more than 0", name, v, err)
		}
	}
	s.Close(t.Context(), nil)

	for round, text := range during[:4] {
		phase := Measure
		if round == 0 {
			phase = WarmUp
		}
		for name, test := range map[string][]string{
			"watchlab_phase":                             {"1", `variant="ring"`, `phase="` + phase + `"`},
			"watchlab_events_total":                      {[]string{"100", "200", "300", "400"}[round], `variant="ring"`, `stage="handled"`, `type="MODIFIED"`, `storm="gang"`, `run="test"`},
			"watchlab_end_to_end_latency_seconds_count":  {[]string{"100", "200", "300", "400"}[round], `variant="ring"`, `from="intended"`},
			"watchlab_cells":                             {"2"},
			"watchlab_end_to_end_latency_seconds_bucket": {[]string{"100", "200", "300", "400"}[round], `variant="ring"`, `le="+Inf"`},
		} {
			if got := value(text, name, test[1:]...); got != test[0] {
				t.Errorf("round %d: %s%v is %q, want %s", round, name, test[1:], got, test[0])
			}
		}
	}
	for _, test := range [][]string{
		{"watchlab_phase", "1", `variant="ring"`, `phase="idle"`},
		{"watchlab_rounds_total", "3", `variant="ring"`},
		{"watchlab_rounds_total", "0", `variant="cond"`},
		{"watchlab_verdict", "1", `variant="cond"`, `status="invalid"`, `cause="lost"`},
		{"watchlab_baseline", "1", `variant="ring"`},
		{"watchlab_baseline", "0", `variant="cond"`},
		{"watchlab_objective_seconds", "0.002", `limit="p99"`},
		{"watchlab_events_per_second", "", `variant="cond"`},
		{"watchlab_latency_quantile_seconds", "0.1", `variant="ring"`, `quantile="1"`, `rate="1000"`, `commit="abc"`},
		{"watchlab_run_progress_ratio", "1"},
	} {
		if got := value(after, test[0], test[2:]...); got != test[1] {
			t.Errorf("at the end: %s%v is %q, want %q", test[0], test[2:], got, test[1])
		}
	}
	var perSecond []float64
	for _, r := range o.Comparisons[0].Cells[0].Rounds {
		perSecond = append(perSecond, r.Result.EventsPerSecond)
	}
	got, err := strconv.ParseFloat(value(after, "watchlab_events_per_second", `variant="ring"`), 64)
	if want := stats.Median(perSecond); err != nil || len(perSecond) != 3 || got != want {
		t.Errorf("%v events/s, want the median of %v", got, perSecond)
	}
}

// TestAgain: the two cells of an A/A pair have their own series, and a run with a budget shows its
// progress.
func TestAgain(t *testing.T) {
	s, err := Start(t.Context(), Options{Run: "test", Commit: "abc", MetricsAddr: "127.0.0.1:0", Warn: func(text string) { t.Error(text) }})
	if err != nil {
		t.Fatal(err)
	}
	cells := comparison(cellOf("ring", &play{t: t}), cellOf("cond", &play{t: t}))
	o, err := lab.Run(t.Context(), cells, lab.Options{Budget: 20 * time.Millisecond, IgnoreHost: true, Progress: s.Progress(nil), Watch: s.Watch})
	if err != nil {
		t.Fatal(err)
	}
	s.Over(o)
	text := scrape(t, s)
	s.Close(t.Context(), nil)
	for i, variant := range []string{"ring", "cond", "ring-again"} {
		plays := len(o.Comparisons[0].Cells[i].Rounds)
		if i < 2 {
			plays++ // the warm-up, which the pair shares
		}
		want := strconv.Itoa(played * plays)
		if got := value(text, "watchlab_events_total", `variant="`+variant+`"`, `stage="handled"`, `type="MODIFIED"`); got != want {
			t.Errorf("%s handled %q events, want %s", variant, got, want)
		}
	}
	for name, want := range map[string]string{"watchlab_cells": "3", "watchlab_run_progress_ratio": "1"} {
		if got := value(text, name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
}

// TestRates: the cells of a variant at several rates have their own series. All rates that a search
// tries have one, so that the number of series is bounded; the figures of finished cells have the rate.
func TestRates(t *testing.T) {
	s, err := Start(t.Context(), Options{Run: "test", Commit: "abc", MetricsAddr: "127.0.0.1:0", Warn: func(text string) { t.Error(text) }})
	if err != nil {
		t.Fatal(err)
	}
	at := func(rate string) lab.Cell {
		c := cellOf("ring", &play{t: t})
		c.Labels = append(c.Labels[:2:2], lab.Label{Key: "rate", Value: rate})
		return c
	}
	comparisons := comparison(at("max"), at("1000"))
	searched := []lab.Cell{at("1500"), at("1250")}
	comparisons[0].NextCells = func([]lab.CellResult) (more []lab.Cell, _ error) {
		more, searched = searched, nil
		return more, nil
	}
	runLab(t, s, comparisons, 1)
	text := scrape(t, s)
	s.Close(t.Context(), nil)
	for rate, want := range map[string]string{"max": "200", "1000": "100", SearchedRate: "200", "1500": "", "1250": ""} {
		if got := value(text, "watchlab_events_total", `variant="ring"`, `rate="`+rate+`"`, `stage="handled"`); got != want {
			t.Errorf("%q events at rate %s, want %q", got, rate, want)
		}
	}
	for _, rate := range []string{"max", "1000", "1500", "1250"} {
		if value(text, "watchlab_events_per_second", `rate="`+rate+`"`) == "" {
			t.Errorf("no figure at rate %s", rate)
		}
		if got := value(text, "watchlab_latency_quantile_seconds", `rate="`+rate+`"`); (got == "") != (rate == "max") {
			t.Errorf("a latency of %q at rate %s", got, rate)
		}
	}
}

// TestStuckQueue: a queue whose Len blocks forever blocks neither scrapes nor Close.
func TestStuckQueue(t *testing.T) {
	s, err := Start(t.Context(), Options{Run: "test", MetricsAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	asked, stuck := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	set := s.registry.Set(LabelsOf("", lab.Labels{{Key: "impl", Value: "stuck"}}))
	set.Depth(func() (int, *int) {
		once()
		<-stuck
		return 0, nil
	})
	<-asked
	if value(scrape(t, s), "watchlab_queue_depth", `variant="stuck"`) != "0" {
		t.Error("the scrape lacks it")
	}
	s.Close(t.Context(), nil)
	close(stuck)
}

// TestNothingRequested: without options and variables there is no session, and the
// comparisons are unchanged.
func TestNothingRequested(t *testing.T) {
	s, err := Start(t.Context(), Options{})
	if s != nil || err != nil {
		t.Fatalf("%v, %v", s, err)
	}
	runLab(t, s, comparison(cellOf("ring", &play{t: t, during: func(ctx context.Context) {
		if From(ctx) != nil || pprof.Labelled(ctx) {
			t.Error("the context has telemetry")
		}
	}})), 1)
	s.Close(t.Context(), nil)
	if s.Server() != nil {
		t.Error("the nil session has a URL")
	}
}

// TestFailingServers: an unreachable server, or one that answers garbage, causes one
// warning and no other verdict, and Close returns.
func TestFailingServers(t *testing.T) {
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("\x00garbage\n", 10_000))
	}))
	defer garbage.Close()
	for name, url := range map[string]string{"down": "http://127.0.0.1:1", "garbage": garbage.URL} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
			t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			var mu sync.Mutex
			var warnings []string
			s, err := Start(t.Context(), Options{Run: "test", Pyroscope: url, Warn: func(text string) {
				mu.Lock()
				defer mu.Unlock()
				warnings = append(warnings, text)
			}})
			if err != nil {
				t.Fatal(err)
			}
			o := runLab(t, s, comparison(cellOf("ring", &play{t: t})), 2)
			s.Close(t.Context(), nil)
			if v := o.Comparisons[0].Cells[0].Verdict.Status; v != lab.Valid && v != lab.Noisy {
				t.Errorf("verdict %s", v)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(warnings) != 2 {
				t.Errorf("%d warnings: %q", len(warnings), warnings)
			}
			for _, name := range []string{"OTLP endpoint: ", "Pyroscope: "} {
				at := slices.IndexFunc(warnings, func(w string) bool { return strings.HasPrefix(w, name) })
				if at < 0 || strings.Contains(warnings[at], "?") || url != garbage.URL && !strings.Contains(warnings[at], "refused") {
					t.Errorf("no cause after the name %q: %q", name, warnings)
				}
			}
			for _, w := range warnings {
				if strings.ContainsAny(w, "\n\x00") || len(w) > 2*maxWarning {
					t.Errorf("%d bytes: %q", len(w), w)
				}
			}
		})
	}
}

// TestProfileOverridesPyroscope: --profile works although the environment names a Pyroscope server.
func TestProfileOverridesPyroscope(t *testing.T) {
	t.Setenv(PyroscopeVar, "http://127.0.0.1:1")
	var o Options
	if err := o.Complete(true); err != nil || o.Pyroscope != "" {
		t.Errorf("%v, profiles go to %q", err, o.Pyroscope)
	}
	if err := o.Complete(false); err != nil || o.Pyroscope != "http://127.0.0.1:1" {
		t.Errorf("%v, profiles go to %q", err, o.Pyroscope)
	}
}
