package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// WriteController writes report.md and report.html of a controller's run into its results folder.
func WriteController(dir string, o *controller.Result) error {
	return errors.Join(
		lab.ReplaceFile(filepath.Join(dir, lab.ReportFile), func(w io.Writer) error { return ControllerMarkdown(w, o) }),
		lab.ReplaceFile(filepath.Join(dir, HTMLFile), func(w io.Writer) error { return ControllerHTML(w, o) }))
}

// StepSummary appends the Markdown of a controller's run to the summary of a step in a GitHub workflow, if this is one.
func StepSummary(o *controller.Result) error {
	path := os.Getenv("GITHUB_STEP_SUMMARY")
	if path == "" {
		return nil
	}
	summary, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(ControllerMarkdown(summary, o), summary.Close())
}

// ControllerText writes the answer, the verdicts with the evidence of failures, the smallest fault plan, the
// comparison and the figures.
func ControllerText(w io.Writer, o *controller.Result) error {
	return write(w, o, newControllerDocument, textForms.Lookup("controller.txt"), false)
}

// ControllerMarkdown writes report.md of a controller's run, as [ControllerText].
func ControllerMarkdown(w io.Writer, o *controller.Result) error {
	return write(w, o, newControllerDocument, textForms.Lookup("controller.md"), false)
}

// ControllerHTML writes the run of a controller as one self-contained page; see [HTML]. Its charts show one
// play of each fault plan and program over time.
func ControllerHTML(w io.Writer, o *controller.Result) error {
	return write(w, o, newControllerDocument, htmlPage, true)
}

func newControllerDocument(o *controller.Result, charts bool) (*document, error) {
	env := &lab.Outcome{Env: o.Env, Started: o.Env.Started}
	d := &document{
		Title: subject(o) + " under " + o.Spec.Played(), Started: startOf(env), Subtitle: subtitle(env), Commit: commit(env),
		Lead: o.Sentence, Command: lab.CommandLine(append([]string{"watchlab"}, o.Env.Args...)), BenchFile: controller.BenchFile,
		Verdict: controllerVerdict(o),
	}
	var err error
	if d.Environment, err = textLines("environment", env); err != nil {
		return nil, err
	}
	if d.Method, err = textLines("controller", env); err != nil {
		return nil, err
	}
	if s := o.Shrunk; s != nil {
		d.Sections = append(d.Sections, shrunk(s))
	}
	if len(o.Compared) > 0 {
		d.Sections = append(d.Sections, section{ID: "compared", Heading: "Comparison", Tables: []*chart.Table{compareTable(o)}})
	}
	if charts {
		d.Sections = append(d.Sections, controllerCharts(o))
	}
	groups := groupPlays(o)
	d.Sections = append(d.Sections,
		section{ID: "figures", Heading: "Figures", Tables: []*chart.Table{playsTable(o, groups)}},
		section{ID: "latency", Heading: "Reconcile latency", Tables: []*chart.Table{latencyTable(o, groups)}},
		section{ID: "requests", Heading: "Requests", Tables: requestTables(groups)})
	d.Sections = filled(d.Sections)
	return d, nil
}

// filled returns the sections with content, without tables that have no row.
func filled(sections []section) (out []section) {
	for _, s := range sections {
		s.Tables = slices.DeleteFunc(s.Tables, func(t *chart.Table) bool { return len(t.Rows) == 0 })
		if len(s.Tables)+len(s.Panels) > 0 || s.Command != "" {
			out = append(out, s)
		}
	}
	return out
}

// subject names the program under test.
func subject(o *controller.Result) string {
	n := len(o.Spec.Programs)
	if n == 0 || len(o.Spec.Programs[n-1].Command) == 0 {
		return "attached controller"
	}
	words := strings.Fields(strings.Join(o.Spec.Programs[n-1].Command, " "))
	i := slices.IndexFunc(words, func(word string) bool {
		return !slices.Contains(starters, filepath.Base(word)) && !strings.HasPrefix(word, "-") && !strings.Contains(word, "=")
	})
	return filepath.Base(words[max(i, 0)])
}

// starters are programs that start others.
var starters = []string{"sh", "bash", "env", "exec", "nice", "go", "run"}

// playGroup holds the rounds of one program with one fault plan.
type playGroup struct {
	program, plan string
	plays         []*controller.Play
}

// groupPlays groups the plays by fault plan and program, in the order of the plays and of the programs.
func groupPlays(o *controller.Result) (groups []playGroup) {
	plan := func(p *controller.Play) string {
		if p.Explored() {
			return controller.PlanExplore
		}
		return p.Plan
	}
	for _, set := range lab.GroupBy(slices.Collect(record.Each(o.Plays)), func(p *controller.Play) [2]string { return [2]string{p.Program, plan(p)} }) {
		groups = append(groups, playGroup{set[0].Program, plan(set[0]), set})
	}
	return groups
}

// controllerVerdict counts the plays, and lists the failures with their evidence.
func controllerVerdict(o *controller.Result) verdict {
	v := verdict{}
	failed := 0
	for i := range o.Plays {
		if o.Plays[i].Failed() {
			failed++
		}
	}
	v.Count = fmt.Sprintf("%d of %s passed", len(o.Plays)-failed, lab.Plural(len(o.Plays), "play"))
	if o.Interrupted {
		v.Notes = append(v.Notes, note{Text: o.Missing(), Class: "warn"})
	}
	t := chart.NewTable("Verdicts", []string{"program", "faults"})
	t.Labels = 1
	var names []string
	groups := groupPlays(o)
	for _, p := range o.Plays { // Explore begins with plays that are compared with no other.
		for _, w := range p.Verdicts {
			if !slices.Contains(names, w.Name) {
				names = append(names, w.Name)
			}
		}
	}
	t.Words(names...)
	for _, g := range groups {
		line := []string{g.program, g.plan}
		for _, name := range names {
			text, n := g.judged(name)
			line = append(line, text)
			if n != nil {
				v.Notes = append(v.Notes, *n)
			}
		}
		t.Add(line...)
	}
	ofOne(t, o)
	v.Table = t
	return v
}

// ofOne drops the first column, the program, in a run of one.
func ofOne(t *chart.Table, o *controller.Result) {
	if len(o.Programs) == 1 {
		t.Drop(0)
	}
}

// judged returns the text of one verdict in all rounds, and a note with the evidence of the first failure.
func (g playGroup) judged(name string) (string, *note) {
	var n *note
	failed, all := 0, 0
	for _, p := range g.plays {
		for _, v := range p.Verdicts {
			if v.Name != name {
				continue
			}
			if all++; !v.Failed {
				continue
			}
			if failed++; n == nil {
				n = &note{Text: p.Name + ": " + v.Name + ": " + v.Text, Class: "bad", Open: true}
				if p.Explored() {
					n.Text += " (" + p.FaultText() + ")"
				}
				for _, e := range v.Evidence {
					n.Cells = append(n.Cells, fmt.Sprintf("%.3f s: %s", e.At.Seconds(), e.Text))
					if e.Why != "" {
						n.Cells = append(n.Cells, e.Why)
					}
				}
			}
		}
	}
	switch {
	case all == 0:
		return chart.None, nil
	case failed == 0:
		return "passed", nil
	case all == 1:
		return "failed", n
	}
	return fmt.Sprintf("failed %d of %d", failed, all), n
}

func shrunk(s *controller.Shrunk) section {
	out := section{ID: "shrunk", Heading: "Smallest fault plan", Command: s.Command}
	plan := strings.Join(s.Faults, "; ")
	if len(s.Faults) == 0 {
		out.Intro = fmt.Sprintf("The verdict %s fails without a fault.", s.Verdict)
	} else {
		out.Intro = fmt.Sprintf("The verdict %s still fails with %s: %d of %s of the plan %s, found in %s.",
			s.Verdict, plan, len(s.Faults), lab.Plural(s.Of, "occurrence"), s.Plan, lab.Plural(s.Plays, "play"))
	}
	out.Intro += fmt.Sprintf(" Played again, it failed %d of %s.", s.Failed, lab.Plural(s.Repeated, "time"))
	return out
}

func compareTable(o *controller.Result) *chart.Table {
	t := chart.NewTable(o.Programs[0]+" and "+o.Programs[1], []string{"faults", "figure"}, o.Programs[0], o.Programs[1], "ratio", "interval")
	t.Words("verdict", "test")
	t.Labels = 1
	for _, c := range o.Compared {
		format, judgement, ratio := unitFormat(c.Unit), "no difference", chart.None
		switch {
		case c.Lost:
			judgement = "worse"
		case c.Won:
			judgement = "better"
		case !c.Stats.Testable:
			judgement = tooFew
		}
		if c.Stats.From != 0 {
			ratio = chart.Times(c.Stats.Ratio)
		}
		t.Add(strings.TrimPrefix(c.Cell, "faults="), controller.Title(c.Unit), format(c.Stats.From), format(c.Stats.To),
			ratio, span(c.Stats), judgement, stats.PText(c.Stats.P))
	}
	t.Legend = []string{"Medians of the rounds, and the 95 % confidence interval of their ratio. Less is better for all figures."}
	return t
}

// median formats the median of the rounds, or a dash.
func median(values []float64, format func(float64) string) string {
	if len(values) == 0 {
		return chart.None
	}
	return format(stats.Median(values))
}

func playsTable(o *controller.Result, groups []playGroup) *chart.Table {
	t := chart.NewTable("Figures of a play, medians of the rounds", []string{"program", "faults"})
	t.Labels = 1
	for _, unit := range controller.Units {
		t.Figures(unit.Title)
	}
	for _, g := range groups {
		line := []string{g.program, g.plan}
		for _, unit := range controller.Units {
			var values []float64
			for _, p := range g.plays {
				if v, ok := p.Figures[unit.Name]; ok {
					values = append(values, v)
				}
			}
			line = append(line, median(values, unitFormat(unit.Name)))
		}
		t.Add(line...)
	}
	t.DropEmpty()
	ofOne(t, o)
	t.Legend = []string{
		"p50, p99, mean: reconcile latency. converged: from the end of storm and faults to the last change; a dash if it never became quiet.",
		"unchanged: writes without a change. relists: lists and watches with the initial state. watch lag: most events that one watch was behind.",
	}
	return t
}

// sameIn returns the entries of all plays that share a key, in order of appearance.
func sameIn[T any](g playGroup, of func(*controller.Play) []T, key func(T) string) [][]T {
	var all []T
	for _, p := range g.plays {
		all = append(all, of(p)...)
	}
	return lab.GroupBy(all, key)
}

func latencyTable(o *controller.Result, groups []playGroup) *chart.Table {
	t := chart.NewTable("Reconcile latency by rule, resource and phase, medians of the rounds", []string{"program", "faults", "rule", "resource", "phase"},
		"answered", "unanswered", "p50", "p90", "p99", "longest")
	t.Labels = 4
	for _, g := range groups {
		for _, set := range sameIn(g, func(p *controller.Play) []controller.Latency { return p.Latencies }, func(l controller.Latency) string {
			return l.Rule + "\x00" + l.Resource + "\x00" + l.Phase
		}) {
			// figure is the median over the plays with that many answers.
			figure := func(least int, format func(float64) string, of func(controller.Latency) float64) string {
				var values []float64
				for _, l := range set {
					if l.Answered >= least {
						values = append(values, of(l))
					}
				}
				return median(values, format)
			}
			l := set[0]
			t.Add(g.program, g.plan, l.Rule, l.Resource, cmp.Or(l.Phase, chart.None),
				figure(0, chart.Number, func(l controller.Latency) float64 { return float64(l.Answered) }),
				figure(0, chart.Number, func(l controller.Latency) float64 { return float64(l.Unanswered) }),
				figure(1, chart.Nanoseconds, func(l controller.Latency) float64 { return float64(l.Quantiles.P50) }),
				figure(10, chart.Nanoseconds, func(l controller.Latency) float64 { return float64(l.Quantiles.P90) }),
				figure(100, chart.Nanoseconds, func(l controller.Latency) float64 { return float64(l.Quantiles.P99) }),
				figure(1, chart.Nanoseconds, func(l controller.Latency) float64 { return float64(l.Quantiles.Max) }))
		}
	}
	if !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[4] != chart.None }) {
		t.Drop(4) // a workload has no phases
	}
	ofOne(t, o)
	t.Legend = []string{"A quantile is shown from as many answers on as it needs: p90 from 10, p99 from 100."}
	return t
}

// requestColumns are the figures of a table of requests. Less is better for all.
var requestColumns = []struct {
	name   string
	value  func(controller.Requests) float64
	format func(float64) string
}{
	{"requests", func(r controller.Requests) float64 { return float64(r.Count) }, chart.Number},
	{"conflicts", func(r controller.Requests) float64 { return float64(r.Conflicts) }, chart.Number},
	{"throttled", func(r controller.Requests) float64 { return float64(r.Throttled) }, chart.Number},
	{"errors", func(r controller.Requests) float64 { return float64(r.Errors) }, chart.Number},
	{"retries", func(r controller.Requests) float64 { return float64(r.Retries) }, chart.Number},
	{"unchanged", func(r controller.Requests) float64 { return float64(r.Unchanged) }, chart.Number},
	{"bytes", func(r controller.Requests) float64 { return float64(r.Bytes) }, chart.Bytes},
}

// requestTables returns a table for each fault plan and program. A play without a request counts as 0.
func requestTables(groups []playGroup) (tables []*chart.Table) {
	for _, g := range groups {
		t := chart.NewTable(fmt.Sprintf("%s, faults: %s, medians of the rounds", g.program, g.plan), []string{"verb", "resource"})
		t.Labels = 1
		for _, c := range requestColumns {
			t.Figures(c.name)
		}
		for _, set := range sameIn(g, func(p *controller.Play) []controller.Requests { return p.Requests }, func(r controller.Requests) string {
			return r.Verb + " " + r.Resource
		}) {
			line := []string{set[0].Verb, cmp.Or(set[0].Resource, chart.None)}
			for _, c := range requestColumns {
				values := make([]float64, max(len(g.plays), len(set)))
				for i, r := range set {
					values[i] = c.value(r)
				}
				text := chart.None
				if v := stats.Median(values); v != 0 {
					text = c.format(v)
				}
				line = append(line, text)
			}
			t.Add(line...)
		}
		t.DropEmpty()
		tables = append(tables, t)
	}
	return tables
}
