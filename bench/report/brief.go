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

// The limits of a summary. That of the quick run leaves room for lines of progress.
const (
	maxBlocks = 3
	briefRows = 5 // of a block
)

// Brief writes a summary for one screen: at most 30 lines of at most 100 columns.
//
//  1. Each of the first three groups of rows is a block: a sentence that compares the best variant with
//     the strongest baseline in events per CPU second, and a table.
//  2. One line says what has no answer, and what to do.
//  3. The last line is the path of the report.
func Brief(w io.Writer, o *lab.Outcome) error {
	r := newRun(o)
	var lines []string
	for _, b := range blocks(r) {
		lines = slices.Concat(lines, wrap(strings.ReplaceAll(b.Answer, "`", ""), textWidth), b.brief().Table().lines("", textWidth), []string{""})
	}
	_, err := io.WriteString(w, strings.Join(append(lines, briefEnds(r)...), "\n")+"\n")
	return err
}

// block is the answer of a group of rows.
type block struct {
	group
	all     []row        // of the comparison
	title   string       // such as "informer over HTTP"
	subject string       // with an article, and the settings in which blocks with the title differ
	best    *row         // with the largest gain; nil if no row has one
	gain    gain         // of best
	knees   []stats.Knee // of a search for knees
	Answer  string       // one sentence
}

// blocks returns the first groups of a run that compare anything, or else the first groups.
func blocks(o run) (out []*block) {
	var without []*block
	for _, c := range o.comparisons {
		groups := groupsOf(oneRate(c.rows), c.Latency)
		for _, g := range groups {
			b := &block{group: g, all: c.rows, subject: g.subject(c.Family) + g.settings(c.Family, groups)}
			_, b.title, _ = strings.Cut(g.subject(c.Family), " ")
			if !slices.ContainsFunc(c.rows, func(r row) bool { return !r.paced() }) {
				// A search for a knee sets all rates: CPU times at different rates are no answer.
				b.knees = kneesOf(o, c.rows)
			}
			if b.answer(); b.best != nil || len(b.knees) > 0 || slices.ContainsFunc(g.rows, func(r row) bool { return r.base != nil }) {
				out = append(out, b)
			} else {
				without = append(without, b)
			}
			if len(b.knees) > 0 {
				break // They are of all groups.
			}
		}
	}
	if len(out) == 0 {
		out = without
	}
	return out[:min(len(out), maxBlocks)]
}

// oneRate keeps one row per variant: the row with a p99 at the highest rate.
func oneRate(rows []row) []row {
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
	var out []row
	for _, set := range together(rows, func(r row) string { return r.throughput.NameWithout("rate") }) {
		out = append(out, slices.MaxFunc(set, func(a, b row) int { return cmp.Compare(rate(a), rate(b)) }))
	}
	return out
}

// rank orders pipelines: those with a real consumer, then a stage alone.
func rank(c *lab.CellResult) int {
	if consumer := c.Label("pipeline"); consumer == "queue" || consumer == "" {
		return 1
	}
	return 0
}

// subject names what is compared.
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

// settings names the labels in which a group differs from others with its subject.
func (g group) settings(family string, groups []group) (text string) {
	var rows []row
	for _, other := range groups {
		if other.subject(family) == g.subject(family) {
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

const perCPU = "events per CPU second"

// gain is the comparison of a row's events per CPU second with its baseline's, or of its
// events per second if the CPU time is unknown.
type gain struct {
	against
	unit string
}

func (r row) gain() gain { return r.gainOver(r.base) }

// gainOver is gain over another baseline.
func (r row) gainOver(base *row) gain {
	r.base = base
	g := gain{against: r.against(r.cpu()), unit: perCPU}
	switch {
	case r.broken():
		g.why = r.worst().Verdict.Short()
	case g.why == noBaseline || g.why == notEqual:
	case len(r.fast) == 0:
		g.why = r.throughput.Verdict.Short()
	case len(base.fast) == 0:
		g.why = "its baseline is " + base.worst().Verdict.Short()
	default:
		// Less CPU time per event means more events per CPU second, so the sides are swapped.
		g.Comparison = stats.Compare(r.samples(r.cpu()), base.samples(r.cpu()))
		if g.why == "" && g.Ratio > 0 {
			return g
		}
		g.unit = "events per second"
		if g.against = r.against(stats.UnitEventsPerSec); g.why != "" {
			g.why = "no CPU time was measured"
		}
	}
	return g
}

func (g gain) same() bool { return g.Testable && (!g.Significant || g.Lo <= 1 && g.Hi >= 1) }

func (g gain) text() string {
	if g.same() {
		return "no difference"
	}
	return chart.Times(g.Ratio)
}

// answer chooses the best row, ours if there is one, and writes the sentence.
func (b *block) answer() {
	if len(b.knees) > 0 {
		b.Answer = kneeAnswer(b.knees, b.all)
		return
	}
	why := "no baseline"
	var compared, ours []*row
	for i := range b.rows {
		r := &b.rows[i]
		switch g := r.gain(); {
		case g.why != "" && !r.baseline:
			why = "`" + r.variant() + "` " + g.why
		case g.why != "":
		case upstream(r.variant()):
			compared = append(compared, r)
		default:
			ours = append(ours, r)
		}
	}
	if len(ours) > 0 {
		compared = ours
	}
	for _, r := range compared {
		if g := r.gain(); b.best == nil || g.Ratio > b.gain.Ratio {
			b.best, b.gain = r, g
		}
	}
	if b.best == nil {
		b.Answer = b.subject + " has no answer: " + why + "."
		return
	}
	b.gain.Comparison = b.gain.BestOf(len(compared))
	best, base := "`"+b.best.variant()+"`", "`"+b.best.base.variant()+"`"
	digits := 0
	for v := b.gain.Ratio; v < 10 && digits < 2; v *= 10 {
		digits++
	}
	switch times := strconv.FormatFloat(b.gain.Ratio, 'f', digits, 64); {
	case !b.gain.Testable:
		b.Answer = fmt.Sprintf("%s has too few rounds to compare %s with %s.", b.subject, best, base)
	case b.gain.same():
		b.Answer = fmt.Sprintf("%s shows no difference between %s and %s in %s.", b.subject, best, base, b.gain.unit)
	default:
		b.Answer = fmt.Sprintf("%s on %s handles %s times the %s of %s.", b.subject, best, times, b.gain.unit, base)
	}
}

// brief returns the block with few rows: the baselines, the best, and others in their order.
func (b *block) brief() *block {
	short := *b
	short.rows = slices.Clone(b.rows)
	for i := len(short.rows) - 1; len(short.rows) > briefRows && i >= 0; i-- {
		if r := short.rows[i]; !r.throughput.Baseline && !r.baseline && (b.best == nil || r.variant() != b.best.variant()) {
			short.rows = slices.Delete(short.rows, i, i+1)
		}
	}
	return &short
}

// Table returns the block's rows. "per CPU" is over the strongest baseline. "to default" follows if the
// declared one is another.
func (b *block) Table() table {
	t := newTable("Summary: "+b.title, []string{b.title}, "CPU/event", "per CPU", "interval")
	declared := slices.IndexFunc(b.rows, func(r row) bool { return r.throughput.Baseline && !r.baseline })
	if declared >= 0 {
		t.figures("to default", "interval")
	}
	rates := ratesOf(slices.DeleteFunc(slices.Clone(b.rows), func(r row) bool { return !r.hasP99() }))
	at := "p99 at rate"
	if rates = distinct(rates); len(rates) == 1 {
		at = "p99 @" + rates[0]
	}
	t.figures("events/s", at)
	for _, r := range b.rows {
		line := slices.Concat([]string{r.variant(), r.median(r.cpu(), chart.Nanoseconds)}, r.gainFigures(r.base, r.baseline))
		if declared >= 0 {
			line = append(line, r.gainFigures(&b.rows[declared], r.throughput.Baseline)...)
		}
		p99 := quantile(r.wait.Count, 100, r.wait.P99)
		if p99 != chart.None && len(rates) > 1 {
			p99 += " @" + r.rate()
		}
		t.add(append(line, r.median(stats.UnitEventsPerSec, chart.Decimal), p99)...)
	}
	t.dropEmpty()
	return t
}

// gainFigures writes the gain over a baseline and its interval, or why the row has no figures.
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
	case g.why == notEqual:
		return []string{"unequal", interval}
	case g.why != "" || g.unit != perCPU:
		return []string{chart.None, interval}
	case !g.Testable:
		return []string{chart.Times(g.Ratio) + "?", interval}
	case g.Lo > 0:
		interval = strings.TrimSuffix(chart.Times(g.Lo), "×") + "–" + chart.Times(g.Hi)
	}
	return []string{chart.Times(g.Ratio), interval}
}

// perCPU writes the gain in events per CPU second, or none.
func (r row) perCPU() string {
	g := r.gain()
	switch {
	case g.why != "" || g.unit != perCPU:
		return chart.None
	case !g.Testable:
		return g.text() + "?"
	}
	return g.text()
}

// briefEnds returns the lines below the tables.
func briefEnds(o run) (out []string) {
	if text := unanswered(o.Outcome); text != "" {
		out = append(out, text)
	}
	if partial(o.Outcome) != "" {
		out = append(out, chart.Shorten("All figures are of "+o.Merged.String()+".", textWidth))
	}
	if o.Dir != "" {
		out = append(out, "Report: "+filepath.Join(o.Dir, HTMLFile))
	}
	return out
}

// remedies say what to do about a cell without an answer. Any other cause is in the report.
var remedies = map[lab.Cause]string{
	lab.CauseGenerator: "Run again on an idle machine.",
	lab.CauseSteal:     "Run again when other machines leave the CPU.",
	lab.CauseThrottled: "Raise the CPU quota.",
	lab.CauseGCLimit:   "Raise the memory limit.",
}

// unanswered says what has no answer, and what to do; empty if there is nothing.
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
	for _, set := range together(failed, func(c *lab.CellResult) string { return c.Verdict.Short() }) {
		parts = append(parts, fmt.Sprintf("%d %s", len(set), set[0].Verdict.Short()))
		todo = append(todo, cmp.Or(remedies[set[0].Verdict.Cause], "The report says why."))
	}
	if len(o.Unkept) > 0 {
		parts = append(parts, "p99 at a set rate")
		todo = append(todo, remedies[lab.CauseGenerator])
	}
	if len(parts) == 0 {
		return ""
	}
	return chart.Shorten("No answer: "+strings.Join(parts, ", "), textWidth-len(todo[0])-2) + ". " + todo[0]
}

func ratesOf(rows []row) (rates []string) {
	for _, r := range rows {
		rates = append(rates, r.rate())
	}
	return rates
}
