package report_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/bench/stats"
)

// made is a run of three variants and their baseline in one pipeline, as each outcome of the test changes it.
func made(change func(cells []lab.CellResult), factor float64, verdict lab.Verdict) *lab.Outcome {
	const baseline = "clientgo-informer"
	var cells []lab.CellResult
	for i, impl := range []string{baseline, "cond", "ring", "channel"} {
		f := []float64{1, 0.9 * factor, factor, 0.8 * factor}[i]
		for _, rate := range []string{lab.Unpaced, "5000"} {
			cells = append(cells, played{"informer", "memory", "gang", impl, rate, 3e5 * f, 3600 / f, 12, verdict, 6}.cell(baseline))
		}
	}
	for i := range cells {
		cells[i].Class = "order total"
	}
	if change != nil {
		change(cells)
	}
	return firstRun(lab.ComparisonResult{Family: "deltafifo", Title: "informer", Cells: cells})
}

// invalidate gives cells of a variant a verdict, which drops their figures.
func invalidate(cells []lab.CellResult, impl string, cause lab.Cause) {
	for i := range cells {
		if c := &cells[i]; impl == "" || c.Impl() == impl {
			c.Verdict, c.Rounds, c.Latency = lab.Verdict{Status: lab.Invalid, Cause: cause}, nil, nil
		}
	}
}

// TestAnswer checks the first sentence of the page and the verdicts of its chart for seven outcomes.
func TestAnswer(t *testing.T) {
	noisy := lab.Verdict{Status: lab.Noisy}
	for name, tc := range map[string]struct {
		run      *lab.Outcome
		sentence string
		notes    []string // of the chart's rows, in their order
	}{
		"clear winner": {
			made(nil, 2, lab.Verdict{}),
			"An informer on ring handles 2.0 times the events per CPU second of clientgo-informer.",
			[]string{"baseline", `1\.80× \(1\.\d+–1\.\d+×\)`, `2\.00× \(1\.\d+–2\.\d+×\)`, `1\.60× \(.*\)`},
		},
		"no difference": {
			made(nil, 1, lab.Verdict{}),
			"An informer shows no difference between ring and clientgo-informer in events per CPU second.",
			[]string{"baseline", `0\.90× .*`, `1\.00× \(0\.\d+–1\.\d+×\)`, `0\.80× .*`},
		},
		"all noisy": {
			made(nil, 2, noisy),
			"An informer on ring handles 2.0 times the events per CPU second of clientgo-informer.",
			[]string{"baseline, noisy", `1\.80× .*`, `2\.00× .*`, `1\.60× .*`},
		},
		"baseline wins": {
			made(nil, 0.5, lab.Verdict{}),
			"An informer on ring handles 0.50 times the events per CPU second of clientgo-informer.",
			[]string{"baseline", `0\.45× .*`, `0\.50× .*`, `0\.40× .*`},
		},
		"unequal guarantees": {
			made(func(cells []lab.CellResult) {
				for i := range cells[2:] {
					cells[2+i].Class = "order per-key"
				}
			}, 2, lab.Verdict{}),
			"An informer has no answer: channel guarantees differ from the baseline's.",
			[]string{"baseline", "unequal", "unequal", "unequal"},
		},
		"generator too slow": {
			made(func(cells []lab.CellResult) { invalidate(cells, "", lab.CauseGenerator) }, 2, lab.Verdict{}),
			"An informer has no answer: channel invalid: generator.",
			nil, // There is no figure to draw.
		},
		"invariant broken": {
			made(func(cells []lab.CellResult) { invalidate(cells, "ring", lab.CauseLost) }, 2, lab.Verdict{}),
			"An informer on cond handles 1.8 times the events per CPU second of clientgo-informer.",
			[]string{"baseline", `1\.80× .*`, "lost", `1\.60× .*`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			page := html(t, tc.run)
			lead := regexp.MustCompile(`<p class="lead">(.*?)</p>`).FindStringSubmatch(page)
			if lead == nil || strings.ReplaceAll(lead[1], "&#39;", "'") != tc.sentence {
				t.Errorf("%q, want %q", lead, tc.sentence)
			}
			_, figure, _ := strings.Cut(page, `data-kind="answer"`)
			figure, _, _ = strings.Cut(figure, "</figure>")
			notes := regexp.MustCompile(`class="row-note">(.*?)<`).FindAllStringSubmatch(figure, -1)
			if len(notes) != len(tc.notes) {
				t.Fatalf("notes %q, want %q", notes, tc.notes)
			}
			for i, want := range tc.notes {
				if !regexp.MustCompile("^" + want + "$").MatchString(notes[i][1]) {
					t.Errorf("note %q, want %q", notes[i][1], want)
				}
			}
		})
	}
}

// TestBaselineWithoutKnob: the ratios of the sentence are to a baseline that lacks a knob.
func TestBaselineWithoutKnob(t *testing.T) {
	const baseline = "clientgo-realfifo"
	var cells []lab.CellResult
	for i, skew := range []string{"uniform", "zipf:0.8", "zipf:1.5"} {
		for _, batch := range []string{"", "10", "100"} {
			p := played{"queue", "memory", "hotkey", baseline, lab.Unpaced, 2e6 / float64(i+1), 500 * float64(i+1), 3, lab.Verdict{}, 6}
			if batch != "" {
				p.impl, p.perSecond, p.cpu = "ring", 1e7, 100
			}
			c := p.cell(baseline)
			c.Labels = append(c.Labels, lab.Label{Key: "skew", Value: skew})
			if batch != "" {
				c.Labels = append(c.Labels, lab.Label{Key: "batch", Value: batch})
			}
			cells = append(cells, c)
		}
	}
	page := html(t, firstRun(lab.ComparisonResult{Family: "deltafifo", Title: "over skew, over batch", Cells: cells}))
	if want := "A delta queue alone at skew uniform at batch 10 on ring handles 5.0 times the events per CPU second of clientgo-realfifo."; !strings.Contains(page, want) {
		t.Errorf("%q is missing in %s", want, regexp.MustCompile(`<p class="lead">.*?</p>`).FindString(page))
	}
}

// TestKneeAnswer: a search for knees compares the highest rates within the objective.
func TestKneeAnswer(t *testing.T) {
	var cells []lab.CellResult
	o := firstRun()
	for i, impl := range []string{"clientgo-realfifo", "ring", "cond"} {
		k := stats.Knee{Impl: impl, Objective: stats.Objective{Unit: stats.UnitP99, Most: time.Millisecond}, Limit: "latency", Held: []float64{27e3, 22e3, 20e3}[i]}
		for _, rate := range []string{"16000", "2000"} {
			c := played{"queue", "memory", "ceiling", impl, rate, 2e3, 100, 1, lab.Verdict{}, 5}.cell("clientgo-realfifo")
			k.Cell = c.NameExcept("rate")
			cells = append(cells, c)
		}
		o.Knees = append(o.Knees, k)
	}
	o.Knees[2].Held, o.Knees[2].Limit = 0, "generator"
	o.Comparisons = []lab.ComparisonResult{{Family: "deltafifo", Title: "knee", Cells: cells}}
	page := html(t, o)
	want := "A delta queue alone on ring handles 0.81 times the events per second within p99 ≤ 1ms of clientgo-realfifo."
	if !strings.Contains(page, `<p class="lead">`+want) {
		t.Errorf("%q is missing in %s", want, regexp.MustCompile(`<p class="lead">.*?</p>`).FindString(page))
	}
	var b strings.Builder
	if err := report.Brief(&b, o); err != nil || !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
		t.Errorf("the terminal says something else: %v\n%s", err, &b)
	}
}
