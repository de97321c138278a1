package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// maxSummaries is the number of groups in a summary.
const maxSummaries = 3

// Brief writes the summary of a run, at most 100 columns wide.
//
//  1. Each of the first three groups has a sentence, which compares the best variant with the strongest
//     baseline in events per CPU second, and a table with a row for each variant.
//  2. One line counts the cells without an answer and gives a remedy.
//  3. The last line is the path of the report.
func Brief(w io.Writer, o *lab.Outcome) error {
	r := newRun(o)
	var b strings.Builder
	for _, s := range r.summaries() {
		b.WriteString(strings.Join(wrap(withoutMarkdown(s.Sentence), textWidth), "\n") + "\n" + s.Table().Fitted("", textWidth) + "\n")
	}
	if text := unanswered(o); text != "" {
		b.WriteString(text + "\n")
	}
	if partial(o) != "" {
		b.WriteString("All figures are of " + o.Merged.String() + ".\n")
	}
	if o.Dir != "" {
		b.WriteString("Report: " + filepath.Join(o.Dir, HTMLFile) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func withoutMarkdown(s string) string { return strings.ReplaceAll(s, "`", "") }

// summary compares the variants of a group, of which it has one row each.
type summary struct {
	group
	title    string       // such as "informer over HTTP"
	best     *row         // with the largest gain; nil if no row has one
	knees    []stats.Knee // of a search for knees
	Sentence string
	Panel    panel // charts of the first screen
}

// summaries returns the first groups of a run that compare anything, or else the first groups.
func (o run) summaries() (out []*summary) {
	var without []*summary
	for _, c := range o.comparisons {
		// A search for a knee sets all rates: CPU times at different rates are no answer.
		searched := !slices.ContainsFunc(c.rows, func(r row) bool { return !r.paced() })
		for _, g := range c.groups {
			s := &summary{group: g.oneRate()}
			if searched {
				s.knees = kneesOf(o, c.rows)
			}
			subject := s.subject(c.Family)
			_, s.title, _ = strings.Cut(subject, " ")
			said := s.compare(c.rows)
			said.Subject = subject + s.settings(c)
			s.Sentence = said.String()
			if said.Best != "" || len(s.knees) > 0 || slices.ContainsFunc(s.rows, func(r row) bool { return r.base != nil }) {
				out = append(out, s)
			} else {
				without = append(without, s)
			}
			if len(s.knees) > 0 {
				break // They are of all groups.
			}
		}
	}
	if len(out) == 0 {
		out = without
	}
	return out[:min(len(out), maxSummaries)]
}

// oneRate keeps one row of each variant: the row with a p99 at the highest rate.
func (g group) oneRate() group {
	rate := func(r row) float64 {
		v := numeric(r.rate())
		switch {
		case !r.hasP99():
			return -1
		case math.IsInf(v, 1):
			return 0
		}
		return v
	}
	var rows []row
	for _, set := range lab.GroupBy(g.rows, row.variant) {
		rows = append(rows, slices.MaxFunc(set, func(a, b row) int { return cmp.Compare(rate(a), rate(b)) }))
	}
	g.rows = rows
	return g
}

// rank orders pipelines: those with a real consumer, then a stage alone.
func rank(c *lab.CellResult) int {
	if consumer := c.Label("pipeline"); consumer == "queue" || consumer == "" {
		return 1
	}
	return 0
}

// subject names the pipeline of a group, with an article.
func (g group) subject(family string) string {
	text := "A " + g.Label("pipeline")
	switch g.Label("pipeline") {
	case "queue", "":
		text = cmp.Or(map[string]string{"deltafifo": "A delta queue", "merge": "A merger"}[family], "A "+family) + " alone"
	case "informer":
		text = "An informer"
	}
	if g.Label("source") == "apiserver" {
		text += " over HTTP"
	}
	return text
}

// settings names the labels in which a group differs from the others with its subject.
func (g group) settings(c comparison) (text string) {
	var rows []row
	for _, other := range c.groups {
		if other.subject(c.Family) == g.subject(c.Family) {
			rows = append(rows, other.rows...)
		}
	}
	varying, _ := splitLabels(rows)
	for _, key := range varying {
		if v := g.Label(key); v != "" {
			text += " at " + key + " " + v
		}
	}
	return text
}

// sentence is what the template "sentence" says of a summary. All of it is in the summary's table.
type sentence struct {
	Subject, Best, Base, Unit string
	Ratio                     float64
	Missing                   string // reason for no comparison
	TooFew, Same              bool   // rounds for a test; no significant difference
}

func (s sentence) String() string {
	var b strings.Builder
	_ = textForms.ExecuteTemplate(&b, "sentence", s) // Neither the template nor the builder fails.
	return strings.TrimSpace(b.String())
}

// Times writes the ratio with two digits.
func (s sentence) Times() string {
	digits := 0
	for v := s.Ratio; v < 10 && digits < 2; v *= 10 {
		digits++
	}
	return strconv.FormatFloat(s.Ratio, 'f', digits, 64)
}

// compare chooses the best row, which is one of ours if there is any, and compares it with its baseline. all
// are the rows of the comparison.
func (s *summary) compare(all []row) sentence {
	if len(s.knees) > 0 {
		return compareKnees(s.knees, all)
	}
	missing := noBaseline
	var compared, ours []*row
	for i := range s.rows {
		r := &s.rows[i]
		switch g := r.gain(); {
		case g.missing != "" && !r.baseline:
			missing = "`" + r.variant() + "` " + g.missing
		case g.missing != "":
		case upstream(r.variant()):
			compared = append(compared, r)
		default:
			ours = append(ours, r)
		}
	}
	if len(ours) > 0 {
		compared = ours
	}
	if len(compared) == 0 {
		return sentence{Missing: missing}
	}
	s.best = slices.MaxFunc(compared, func(a, b *row) int { return cmp.Compare(a.gain().Ratio, b.gain().Ratio) })
	g := s.best.gain()
	g.Comparison = g.BestOf(len(compared))
	return sentence{Best: s.best.variant(), Base: s.best.base.variant(), Unit: perCPU, Ratio: g.Ratio, TooFew: !g.Testable, Same: !g.Significant}
}

const perCPU = "events per CPU second"

// gain compares the row's events per CPU second with its baseline's.
func (r row) gain() against { return r.gainOver(r.base) }

// gainOver is gain over another baseline.
func (r row) gainOver(base *row) against {
	r.base = base
	g := r.against(r.cpu())
	switch {
	case r.broken():
		g.missing = r.worst().Verdict.Short()
	case g.missing == noBaseline || g.missing == notEqual:
	case len(r.fast) == 0:
		g.missing = r.throughput.Verdict.Short()
	case len(base.fast) == 0:
		g.missing = "its baseline is " + base.worst().Verdict.Short()
	case g.missing != "" || g.Ratio <= 0:
		g.missing = noCPU
	default:
		// Less CPU time per event means more events per CPU second, so the sides are swapped.
		g.Comparison = stats.Compare(r.samples(r.cpu()), base.samples(r.cpu()))
	}
	return g
}

// Table returns the rows of a summary. "per CPU" is over the strongest baseline. "to default" follows if the
// declared one is another.
func (s *summary) Table() *chart.Table {
	t := chart.NewTable("Summary: "+s.title, []string{s.title}, "CPU/event", "per CPU", "interval")
	declared := slices.IndexFunc(s.rows, func(r row) bool { return r.throughput.Baseline && !r.baseline })
	if declared >= 0 {
		t.Figures("to default", "interval")
	}
	rates := ratesOf(s.rows)
	at := "p99 at rate"
	if len(rates) == 1 {
		at = "p99 @" + rates[0]
	}
	t.Figures("events/s", at)
	for _, r := range s.rows {
		line := slices.Concat([]string{r.variant(), r.median(r.cpu(), chart.Nanoseconds)}, r.gainFigures(r.base, r.baseline))
		if declared >= 0 {
			line = append(line, r.gainFigures(&s.rows[declared], r.throughput.Baseline)...)
		}
		p99 := quantile(r.wait.Count, 100, r.wait.P99)
		if p99 != chart.None && len(rates) > 1 {
			p99 += " @" + r.rate()
		}
		t.Add(append(line, r.median(stats.UnitEventsPerSec, chart.Decimal), p99)...)
	}
	t.DropEmpty()
	return t
}

// gainFigures writes the gain over a baseline and its interval, or the reason for their absence.
func (r row) gainFigures(base *row, baseline bool) []string {
	g := r.gainOver(base)
	interval := chart.None
	switch v := r.throughput.Verdict; {
	case r.broken() || len(r.fast) == 0:
		if r.broken() {
			v = r.worst().Verdict
		}
		return []string{cmp.Or(string(v.Cause), string(v.Status)), interval}
	case baseline:
		return []string{"baseline", interval}
	case g.missing == notEqual:
		return []string{"unequal", interval}
	case g.missing != "":
		return []string{chart.None, interval}
	case !g.Testable:
		return []string{chart.Times(g.Ratio) + "?", interval}
	}
	return []string{chart.Times(g.Ratio), span(g.Comparison)}
}

// remedies are for cells without an answer. The report has any other cause.
var remedies = map[lab.Cause]string{
	lab.CauseGenerator: "Run again on an idle machine.",
	lab.CauseSteal:     "Run again when other machines leave the CPU.",
	lab.CauseThrottled: "Raise the CPU quota.",
	lab.CauseGCLimit:   "Raise the memory limit.",
}

// unanswered counts the cells without an answer and gives the remedy of the first; empty without any.
func unanswered(o *lab.Outcome) string {
	var failed []*lab.CellResult
	for _, cl := range o.Cells() {
		if s := cl.Verdict.Status; s == lab.Invalid || s == lab.Unplayed {
			failed = append(failed, cl)
		}
	}
	var parts, todo []string
	if o.Interrupted {
		parts, todo = append(parts, "the run was interrupted"), append(todo, "Continue it by --resume.")
	}
	for _, set := range lab.GroupBy(failed, func(c *lab.CellResult) string { return c.Verdict.Short() }) {
		parts = append(parts, fmt.Sprintf("%d %s", len(set), set[0].Verdict.Short()))
		todo = append(todo, cmp.Or(remedies[set[0].Verdict.Cause], "The report says why."))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(wrap("No answer: "+strings.Join(parts, ", ")+". "+todo[0], textWidth), "\n")
}

// ratesOf returns the rates of the rows with a p99.
func ratesOf(rows []row) (rates []string) {
	for _, r := range rows {
		if r.hasP99() {
			rates = append(rates, r.rate())
		}
	}
	return distinct(rates)
}
