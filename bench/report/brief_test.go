package report_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// jitter are the factors of the rounds.
var jitter = []float64{1, 0.98, 1.01, 1.03, 0.99, 1.005, 0.995}

// played is a cell of the run.
type played struct {
	pipeline, source, storm, impl, rate string
	perSecond, cpu, allocs              float64 // cpu is in ns per event
	verdict                             lab.Verdict
	rounds                              int
}

func (p played) cell(baseline string) lab.CellResult {
	c := lab.CellResult{
		Name: "Cell", Baseline: p.impl == baseline, Verdict: p.verdict,
		Labels: []lab.Label{
			{Key: "impl", Value: p.impl}, {Key: "pipeline", Value: p.pipeline}, {Key: "source", Value: p.source},
			{Key: "storm", Value: p.storm}, {Key: "rate", Value: p.rate},
		},
	}
	if c.Verdict.Status == "" {
		c.Verdict.Status = lab.Valid
	}
	for i := range p.rounds {
		f := jitter[i]
		r := cell.Result{
			EventsIn: 1e5, DeltasOut: 1e5, Elapsed: time.Duration(1e14 / (p.perSecond * f)), EventsPerSecond: p.perSecond * f,
			AllocsPerEvent: p.allocs, CPUSecondsPerEvent: p.cpu / f / 1e9,
		}
		if p.rate != lab.Unpaced {
			r.Latency = []cell.Latency{{Boundary: "intended→handled", Quantiles: cell.Quantiles{Count: 1e5, P50: 9 * time.Microsecond, P99: 90 * time.Microsecond}}}
			r.Lag = &cell.Lag{Quantiles: cell.Quantiles{Count: 1e5}}
		}
		c.Rounds = append(c.Rounds, lab.Round{Round: i + 1, Result: r})
	}
	if p.rounds > 0 {
		c.Latency = c.Rounds[0].Result.Latency
	}
	return c
}

func firstRun(comparisons ...lab.ComparisonResult) *lab.Outcome {
	return &lab.Outcome{Format: lab.Format, Name: "run", Rounds: 5, Comparisons: comparisons, Dir: "results/2026-11-22-run"}
}

func family(name, baseline string, cells ...played) lab.ComparisonResult {
	c := lab.ComparisonResult{Family: name, Title: "first run"}
	for _, p := range cells {
		c.Cells = append(c.Cells, p.cell(baseline))
	}
	return c
}

// TestBrief compares the summary with golden files, for a complete run and for one with a lost event,
// too few rounds and late releases.
func TestBrief(t *testing.T) {
	const gang, unpaced = "gang", lab.Unpaced
	noisy := lab.Verdict{Status: lab.Noisy, Detail: "events/s of the rounds lie 21 % apart (allowed: 10 %)"}
	late := lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator, Detail: "at rate 10000, 2.0 % of the releases were more than 1ms late"}
	lost := lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event (key ns/pod-3)"}
	valid := lab.Verdict{}
	for name, o := range map[string]*lab.Outcome{
		"brief.txt": firstRun(
			family("deltafifo", "clientgo",
				// A stage alone follows the rows with a real consumer.
				played{"queue", "memory", gang, "clientgo", unpaced, 1e6, 1200, 6, valid, 5},
				played{"queue", "memory", gang, "channel", unpaced, 1e6, 1200, 6, valid, 5},
				played{"informer", "apiserver", gang, "clientgo", unpaced, 2e4, 90_000, 90, valid, 5},
				played{"informer", "apiserver", gang, "clientgo", "1000", 1e3, 90_000, 90, valid, 5},
				played{"informer", "apiserver", gang, "clientgo-transform", unpaced, 2.2e4, 70_000, 90, noisy, 5},
				played{"informer", "apiserver", gang, "clientgo-transform", "1000", 1e3, 90_000, 90, valid, 5},
				played{"informer", "apiserver", gang, "watchlab", unpaced, 6e4, 15_000, 9, valid, 5},
				played{"informer", "apiserver", gang, "watchlab", "1000", 1e3, 90_000, 90, late, 0},
			),
			family("merge", "reference",
				played{"kubelet", "memory", gang, "reference", unpaced, 1.6e3, 5e5, 2515, valid, 5},
				played{"kubelet", "memory", gang, "channel", unpaced, 8e4, 9000, 39, valid, 5},
				played{"kubelet", "memory", gang, "sharded", unpaced, 8e4, 9000, 39, valid, 5},
				played{"kubelet", "memory", gang, "other", unpaced, 8e4, 9000, 39, valid, 5},
				played{"kubelet", "memory", gang, "second", unpaced, 8e4, 9000, 39, valid, 5},
				played{"kubelet", "memory", gang, "cond", unpaced, 9e4, 8000, 39, valid, 5},
			),
		),
		"brief-noisy.txt": firstRun(
			family("deltafifo", "clientgo-realfifo-batch",
				played{"queue", "memory", gang, "clientgo-realfifo-batch", unpaced, 1e6, 1200, 6, noisy, 5},
				played{"queue", "memory", gang, "cond", unpaced, 1.15e7, 100, 0.02, valid, 5},
				played{"informer", "memory", gang, "clientgo-realfifo-batch", unpaced, 3e5, 3600, 12.6, valid, 5},
				played{"informer", "memory", gang, "cond", unpaced, 6e5, 2000, 6.3, lost, 0},
			),
			family("queue", "clientgo-fifo",
				played{"queue", "memory", gang, "clientgo-fifo", unpaced, 3e6, 300, 1, valid, 2},
				played{"queue", "memory", gang, "ring", unpaced, 9e6, 100, 0, valid, 2},
			),
			family("merge", "reference",
				played{"kubelet", "memory", "nodeloss", "reference", unpaced, 1.6e3, 5e5, 2515, late, 0},
				played{"kubelet", "memory", "nodeloss", "cond", unpaced, 9e4, 8000, 39, valid, 5},
			),
		),
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := report.Brief(&b, o); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name, b.String())
		})
	}
}

// TestUnpacedLatency: an unpaced cell has latencies from the release, which a bound delays. No
// form shows them; its paced cell has a p99 with its rate.
func TestUnpacedLatency(t *testing.T) {
	for _, paced := range []bool{false, true} {
		cells := []played{
			{"informer", "memory", "gang", "clientgo-informer", lab.Unpaced, 3e5, 3600, 12.6, lab.Verdict{}, 5},
			{"informer", "memory", "gang", "bounded", lab.Unpaced, 6e5, 2000, 6.3, lab.Verdict{}, 5},
		}
		if paced {
			for i := range 2 {
				c := cells[i]
				c.rate = "5000"
				cells = append(cells, c)
			}
		}
		o := firstRun(family("deltafifo", "clientgo-informer", cells...))
		for i := range 2 {
			c := &o.Comparisons[0].Cells[i]
			for j := range c.Rounds {
				// The bound's p99 is a hundredth.
				d := []time.Duration{777777777, 7777777}[i]
				c.Rounds[j].Result.Latency = []cell.Latency{{Boundary: "released→handled", Quantiles: cell.Quantiles{Count: 1e5, P50: d, P90: d, P99: d, P999: d, Max: d}}}
				c.Latency = c.Rounds[j].Result.Latency
			}
		}
		for name, write := range map[string]func(io.Writer, *lab.Outcome) error{
			"brief": report.Brief, "table": report.Table, "markdown": report.Markdown, "html": report.HTML,
		} {
			var b strings.Builder
			if err := write(&b, o); err != nil {
				t.Fatal(err)
			}
			for _, shown := range []string{"778ms", "7.78ms", "0.01×", "0.0100×"} {
				if at := strings.Index(b.String(), shown); at >= 0 {
					t.Errorf("%s shows a latency of an unpaced cell: …%s…", name, b.String()[max(0, at-40):at+10])
				}
			}
			if name == "brief" && strings.Contains(b.String(), "p99 @5000") != paced {
				t.Errorf("p99 of the paced cell, with its rate: want %v:\n%s", paced, &b)
			}
		}
	}
}

// TestStrongestBaseline: a queue alone is compared with the strongest upstream queue of equal
// guarantees, an informer with client-go's informer.
func TestStrongestBaseline(t *testing.T) {
	const gang = "gang"
	c := family("deltafifo", "clientgo-realfifo-batch",
		played{"informer", "memory", gang, "clientgo-realfifo-batch", lab.Unpaced, 3e5, 3600, 12, lab.Verdict{}, 5},
		played{"informer", "memory", gang, "clientgo-realfifo", lab.Unpaced, 4e5, 3000, 12, lab.Verdict{}, 5},
		played{"informer", "memory", gang, "ring", lab.Unpaced, 6e5, 1800, 6, lab.Verdict{}, 5},
		played{"queue", "memory", gang, "clientgo-realfifo-batch", lab.Unpaced, 2.6e5, 5800, 6, lab.Verdict{}, 5},
		played{"queue", "memory", gang, "clientgo-realfifo", lab.Unpaced, 1.1e6, 1000, 14, lab.Verdict{}, 5},
		played{"queue", "memory", gang, "clientgo-other", lab.Unpaced, 1e8, 1, 1, lab.Verdict{}, 5},
		played{"queue", "memory", gang, "ring", lab.Unpaced, 7e6, 160, 0.02, lab.Verdict{}, 5},
	)
	for i := range c.Cells {
		c.Cells[i].Class = "order total"
		if c.Cells[i].Impl() == "clientgo-other" {
			c.Cells[i].Class = "order per-key" // other guarantees
		}
	}
	var b strings.Builder
	if err := report.Brief(&b, firstRun(c)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"An informer on ring handles 2.0 times the events per CPU second of clientgo-realfifo-batch.",
		"A delta queue alone on ring handles 6.2 times the events per CPU second of clientgo-realfifo.",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, &b)
		}
	}
}

// TestBestOfEquals: of variants that differ only by chance, the best is called faster no more often
// than one would be that was named beforehand: in 2.5 % of all runs.
func TestBestOfEquals(t *testing.T) {
	const runs = 600
	for _, variants := range []int{1, 4, 8} {
		rng := rand.New(rand.NewPCG(15, uint64(variants)))
		won := 0
		for range runs {
			var cells []played
			for v := range variants + 1 {
				cells = append(cells, played{"queue", "memory", "gang", fmt.Sprintf("v%d", v), lab.Unpaced, 1e6, 1000, 1, lab.Verdict{}, 6})
			}
			c := family("queue", "v0", cells...)
			for _, cl := range c.Cells {
				for i := range cl.Rounds {
					cl.Rounds[i].Result.CPUSecondsPerEvent = 1e-6 * math.Exp(0.03*rng.NormFloat64())
				}
			}
			var b bytes.Buffer
			if err := report.Brief(&b, firstRun(c)); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), " handles ") {
				won++
			}
		}
		t.Logf("%d variants: %.1f %%", variants, 100*float64(won)/runs)
		if won > runs*4/100 {
			t.Errorf("the best of %d equal variants is faster in %d of %d runs", variants, won, runs)
		}
	}
}
