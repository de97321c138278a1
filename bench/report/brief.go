package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// briefLines is the maximum number of lines of [Brief]. With the progress and the folder of the quick
// run, `make run` prints at most 40.
const briefLines = 36

// Brief writes a summary for one screen: at most 36 lines of at most 100 columns.
//
//  1. One sentence per family states the gain of its best variant over the baseline,
//     in events per CPU second, with p99 at a fixed rate. It prefers a real consumer, then
//     the stage alone, then HTTP. A figure that does not differ significantly from 1 is
//     "no difference". A second sentence counts the significant losses of all variants
//     but upstream's, and names the worst.
//  2. A table has one line per variant and pipeline. If the lines do not fit, the
//     largest table drops pipelines, first those outside the sentence. Brief counts
//     the dropped rows.
//  3. The last lines list open questions with reasons, the number of noisy cells, and
//     the path of the report.
func Brief(w io.Writer, o *lab.Outcome) error {
	r := newRun(o)
	all, ends := families(r), briefEnds(r)
	room := briefLines - len(ends) - 1
	rows := 0
	for _, f := range all {
		room -= len(wrap(f.Sentence(), textWidth)) + 2
		rows += f.size()
	}
	dropped := 0
	for rows-dropped > room {
		largest := slices.MaxFunc(all, func(a, b *family) int { return cmp.Compare(a.size(), b.size()) })
		if largest.size() == 1 {
			break
		}
		dropped += largest.shrink()
	}
	var lines []string
	for _, f := range all {
		lines = slices.Concat(lines, wrap(f.Sentence(), textWidth), f.Table().lines("", textWidth), []string{""})
	}
	if dropped > 0 {
		lines = append(lines, fmt.Sprintf("Rows that only the report shows: %d.", dropped))
	}
	_, err := io.WriteString(w, strings.Join(append(lines, ends...), "\n")+"\n")
	return err
}

// family is the result of one family: groups of rows, those of the sentence first.
type family struct {
	name   string
	groups []*group
	all    []row // of the family, also those without a line
	knees  []stats.Knee
	// best is the row that the answer names, in the group top; top is nil if there is none.
	top    *group
	best   row
	gain   gain
	Answer string // one sentence
	Losses string // a second one; empty without an answer
}

// Sentence returns both sentences.
func (f *family) Sentence() string { return strings.TrimSuffix(f.Answer+" "+f.Losses, " ") }

// size returns the number of rows.
func (f *family) size() (n int) {
	for _, g := range f.groups {
		n += len(g.rows)
	}
	return n
}

// shrink drops the last group, or of the only one the last row that the sentence does not name.
func (f *family) shrink() (dropped int) {
	last := len(f.groups) - 1
	g := f.groups[last]
	if last > 0 {
		f.groups = f.groups[:last]
		return len(g.rows)
	}
	at := len(g.rows) - 1
	for i, r := range g.rows {
		if f.top == nil || r.variant() != f.best.variant() && r.variant() != f.best.base.variant() {
			at = i
		}
	}
	g.rows = slices.Delete(g.rows, at, at+1)
	return 1
}

func families(o run) []*family {
	var out []*family
	for _, set := range together(o.comparisons, func(c comparison) string { return c.Family }) {
		f := &family{name: set[0].Family}
		var rows []row
		for _, c := range set {
			rows = append(rows, c.rows...)
		}
		f.all = rows
		for _, g := range groupsOf(oneRate(rows), "") {
			f.groups = append(f.groups, &g)
		}
		if len(f.groups) == 0 {
			continue
		}
		slices.SortStableFunc(f.groups, func(a, b *group) int { return cmp.Compare(rank(a.CellResult), rank(b.CellResult)) })
		f.knees = kneesOf(o, rows)
		said := f.answer()
		rest := slices.DeleteFunc(f.groups, func(g *group) bool { return slices.Contains(said, g) })
		f.groups = slices.Concat(said, rest)
		out = append(out, f)
	}
	return out
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

// rank orders pipelines by their relevance to users: a real consumer, the stage alone, HTTP.
func rank(c *lab.CellResult) int {
	switch consumer := c.Label("pipeline"); {
	case consumer == "queue" || consumer == "":
		return 1
	case overHTTP(c):
		return 2
	}
	return 0
}

func overHTTP(c *lab.CellResult) bool { return c.Label("source") == "apiserver" }

// consumer names the consumer of the events.
func (g *group) consumer(family string) string {
	switch consumer := g.Label("pipeline"); consumer {
	case "queue", "":
		return cmp.Or(map[string]string{"deltafifo": "the queue", "merge": "the merger"}[family], "the "+family) + " alone"
	case "informer":
		return "an informer"
	default:
		return "a " + consumer
	}
}

const perCPU = "events per CPU second"

// gain is the comparison of a row's events per CPU second with its baseline's, or of its
// events per second if the CPU time is unknown.
type gain struct {
	against
	unit  string
	noisy bool
}

func (r row) gain() gain {
	g := gain{against: r.against(r.cpu()), unit: perCPU}
	switch {
	case r.broken():
		g.why = r.worst().Verdict.Short()
	case g.why == noBaseline || g.why == notEqual:
	case len(r.fast) == 0:
		g.why = r.throughput.Verdict.Short()
	case len(r.base.fast) == 0:
		g.why = "its baseline is " + r.base.worst().Verdict.Short()
	default:
		g.noisy = r.throughput.Verdict.Status == lab.Noisy || r.base.throughput.Verdict.Status == lab.Noisy
		// Less CPU time per event means more events per CPU second, so the sides are swapped.
		g.Comparison = stats.Compare(r.samples(r.cpu()), r.base.samples(r.cpu()))
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

// doubt returns the reasons for doubt about a gain, in brackets.
func (g gain) doubt() string {
	switch {
	case g.noisy && !g.Testable:
		return " (noisy, " + tooFew + ")"
	case g.noisy:
		return " (noisy)"
	case !g.Testable:
		return " (" + tooFew + ")"
	}
	return ""
}

// answer states who survives the storm best. said are the groups that it mentions. It names the variants
// that broke an invariant, and says what prevents an answer.
func (f *family) answer() (said []*group) {
	top, best, g, of := f.largest()
	// A search for a knee sets all rates: CPU times at different rates are no answer.
	if top == nil || len(f.knees) > 0 && !slices.ContainsFunc(f.all, func(r row) bool { return !r.paced() }) {
		f.Answer = f.unanswered()
		return nil
	}
	f.top, f.best, f.gain = top, best, g
	f.Losses = f.losses()
	text := top.consumer(f.name)
	if overHTTP(top.CellResult) {
		text += " over HTTP"
	}
	text += " on `" + best.variant() + "`" + f.knobs(top)
	if of > 1 {
		text += fmt.Sprintf(", the best of %d variants,", of)
	}
	text += " " + best.gained(g)
	if best.won(g) < 0 {
		text = best.whose() + " wins: " + text
	}
	text = top.under(text) + doubtOf(top, g) + best.p99()
	if first := f.groups[0]; rank(first.CellResult) < rank(top.CellResult) {
		text += fmt.Sprintf("; %s is not answered (%s)", first.consumer(f.name), first.obstacle())
	}
	said = []*group{top}
	for _, other := range f.groups {
		at := slices.IndexFunc(other.rows, func(r row) bool { return r.variant() == best.variant() })
		if at < 0 || rank(other.CellResult) <= rank(said[len(said)-1].CellResult) || other.Label("delivery") != top.Label("delivery") {
			continue
		}
		said = append(said, other)
		text += "; " + f.clause(top, other, other.rows[at])
	}
	f.Answer = text + top.broken() + "."
	return said
}

// under puts the storm before a text.
func (g *group) under(text string) string {
	if storm := g.Label("storm"); storm != "" {
		return "Under storm " + storm + " " + text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// knobs names the settings of a group in which it differs from others of the same rank.
func (f *family) knobs(top *group) string {
	var rows []row
	for _, g := range f.groups {
		if rank(g.CellResult) == rank(top.CellResult) {
			rows = append(rows, g.rows...)
		}
	}
	varying, _ := splitLabels(rows)
	var parts []string
	for _, key := range varying {
		if v := top.Label(key); v != "" && !slices.Contains([]string{"storm", "pipeline", "source"}, key) {
			parts = append(parts, key+" "+v)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// whose names the baseline.
func (r row) whose() string {
	if upstream(r.base.variant()) {
		return "client-go's"
	}
	return "`" + r.base.variant() + "`"
}

// won returns 1 if the row is significantly better than its baseline, -1 if it is worse, 0 for neither.
func (r row) won(g gain) int {
	switch {
	case g.same() || !g.Testable:
		return 0
	case g.Ratio < 1:
		return -1
	}
	return 1
}

// gained states a gain.
func (r row) gained(g gain) string {
	switch {
	case g.same():
		return fmt.Sprintf("shows no difference from %s in %s", r.whose(), g.unit)
	case r.won(g) < 0:
		return fmt.Sprintf("handles %s its %s", g.text(), g.unit)
	}
	return fmt.Sprintf("handles %s the %s of %s", g.text(), g.unit, r.whose())
}

// doubtOf returns the reasons for doubt about a gain in a group, in brackets.
func doubtOf(g *group, of gain) string {
	played := slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return len(r.fast) == 0 })
	if !slices.ContainsFunc(played, func(r row) bool { return r.throughput.Verdict.Status != lab.Noisy }) {
		return " (noisy in all variants)"
	}
	return of.doubt()
}

// broken names the variants of a group that broke an invariant.
func (g *group) broken() (text string) {
	for _, r := range g.rows {
		if r.broken() {
			text += fmt.Sprintf("; `%s` is out (%s)", r.variant(), r.worst().Verdict.Short())
		}
	}
	return text
}

// unanswered says what prevents an answer, or answers with the knees.
func (f *family) unanswered() string {
	if len(f.knees) > 0 {
		return f.groups[0].under(kneeAnswer(f.knees, f.all))
	}
	first := f.groups[0]
	failed := slices.DeleteFunc(slices.Clone(first.rows), func(r row) bool { return r.gain().why == "" || r.baseline && r.gain().why == noBaseline })
	var why []string
	sets := together(failed, func(r row) string { return r.gain().why })
	for _, set := range sets {
		cause := set[0].gain().why
		cause = cmp.Or(strings.Trim(causeHints[lab.Cause(strings.TrimPrefix(cause, "invalid: "))], " ()"), cause)
		if len(sets) > 1 {
			var names []string
			for _, r := range set {
				names = append(names, r.variant())
			}
			cause += " (`" + strings.Join(names, "`, `") + "`)"
		}
		why = append(why, cause)
	}
	if len(why) == 0 {
		why = []string{first.obstacle()}
	}
	return first.under(fmt.Sprintf("no variant of %s is compared with a baseline: %s.", f.name, strings.Join(why, "; ")))
}

// p99 compares the p99 at a fixed rate with the baseline's.
func (r row) p99() string {
	switch a := r.against(stats.UnitP99); {
	case a.why != "":
		return ""
	case a.Testable && !a.Significant:
		return ", with no difference in p99 " + lab.RateText(r.rate())
	case a.Ratio < 0.0995:
		return fmt.Sprintf(", with p99 %s %s", ratio(a.Comparison), lab.RateText(r.rate()))
	default:
		return ", with " + ratio(a.Comparison) + " the p99 " + lab.RateText(r.rate())
	}
}

// losses counts the figures that are significantly worse than the baseline's, and names the worst.
// Upstream variants are left out.
func (f *family) losses() string {
	const named = 3
	var all, worse []compared
	for _, r := range f.all {
		if !upstream(r.variant()) {
			all = append(all, slices.DeleteFunc(r.compared(), func(c compared) bool { return !c.Testable })...)
		}
	}
	// Rows of several rates share the figures of the throughput cell.
	sets := together(all, func(c compared) string { return c.throughput.BenchName() + c.what })
	for _, set := range sets {
		if set[0].worse() && set[0].Significant {
			worse = append(worse, set[0])
		}
	}
	switch {
	case len(sets) == 0:
		return "Where ours lose: " + tooFew + "."
	case len(worse) == 0:
		return fmt.Sprintf("Where ours lose: nowhere significantly, in %s.", lab.Plural(len(sets), "comparison"))
	}
	factor := func(c compared) float64 { return max(c.Ratio, 1/c.Ratio) }
	slices.SortStableFunc(worse, func(a, b compared) int { return cmp.Compare(factor(b), factor(a)) })
	text := fmt.Sprintf("Where ours lose: %d of %s, the worst", len(worse), lab.Plural(len(sets), "comparison"))
	for i, c := range worse[:min(named, len(worse))] {
		text += ":,,"[i:i+1] + fmt.Sprintf(" `%s` %s %s", c.variant(), c.what, chart.Times(c.Ratio))
	}
	return text + "."
}

// clause states the gain of the same variant in another group.
func (f *family) clause(top, other *group, r row) string {
	text := other.consumer(f.name)
	if overHTTP(other.CellResult) {
		text = "over HTTP"
	}
	if storm := other.Label("storm"); storm != top.Label("storm") {
		text += " (storm " + storm + ")"
	}
	g := r.gain()
	if g.why != "" {
		return text + " is not answered (" + g.why + ")"
	}
	text += " " + g.text()
	if !r.base.throughput.Baseline {
		text += " of the strongest, `" + r.base.variant() + "`"
	}
	text += g.doubt() + r.p99()
	if share := transport(top, other); g.same() && share > 0.5 {
		text += ": HTTP and decoding take " + chart.Percent(math.Round(share*100)/100) + " of the CPU time"
	}
	return text
}

// largest returns the variant with the largest gain in the highest-ranked group with a
// gain. of is the number of variants with a gain.
func (f *family) largest() (top *group, best row, largest gain, of int) {
	variants := map[string]bool{}
	compared := 0
	for _, g := range f.groups {
		if top != nil && rank(g.CellResult) > rank(top.CellResult) {
			break
		}
		for _, r := range g.rows {
			x := r.gain()
			if x.why != "" {
				continue
			}
			variants[r.variant()] = true
			compared++
			if top == nil || x.Ratio > largest.Ratio {
				top, best, largest = g, r, x
			}
		}
	}
	largest.Comparison = largest.BestOf(compared)
	return top, best, largest, len(variants)
}

// obstacle returns the reason why no row of the group has a gain.
func (g *group) obstacle() string {
	for _, r := range g.rows {
		if why := r.gain().why; why != "" && !r.baseline {
			return r.variant() + ": " + why
		}
	}
	return "no variant beside the baseline"
}

// transport returns the share of the baseline's CPU time that HTTP adds to the same
// pipeline in memory; 0 if the two groups differ otherwise.
func transport(memory, http *group) float64 {
	if !overHTTP(http.CellResult) || overHTTP(memory.CellResult) || memory.Label("storm") != http.Label("storm") || memory.Label("pipeline") != http.Label("pipeline") {
		return 0
	}
	cost := func(g *group) float64 {
		at := slices.IndexFunc(g.rows, func(r row) bool { return r.baseline })
		if at < 0 {
			return 0
		}
		return stats.Median(g.rows[at].samples(g.rows[at].cpu()))
	}
	if all := cost(http); all > 0 && cost(memory) > 0 {
		return 1 - cost(memory)/all
	}
	return 0
}

// Table returns the family's rows. The family's name is the title of the first column.
func (f *family) Table() table {
	t := newTable("Summary of "+f.name, []string{f.name})
	var rows []row
	for _, g := range f.groups {
		rows = append(rows, g.rows...)
	}
	varying, _ := splitLabels(rows)
	several := len(f.groups) > 1
	if several {
		t.words("pipeline")
	}
	t.figures("events/s", "ratio", "per CPU", "p99 at rate", "allocs")
	t.words("verdict")
	for _, g := range f.groups {
		for _, r := range g.rows {
			line := []string{r.variant()}
			if several {
				line = append(line, g.pipeline(varying))
			}
			t.add(append(line, r.briefFigures()...)...)
		}
	}
	return t
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

func (r row) briefFigures() []string {
	verdict := r.throughput.Verdict.Short()
	if r.broken() {
		verdict = r.worst().Verdict.Short()
	}
	p99 := quantile(r.wait.Count, 100, r.wait.P99)
	if p99 != chart.None {
		p99 += " @" + r.rate()
	}
	short := func(s string) string { return strings.Replace(s, "no difference", "no diff.", 1) }
	return []string{
		r.median(stats.UnitEventsPerSec, chart.Decimal), short(r.ratio(stats.UnitEventsPerSec)), short(r.perCPU()), p99,
		r.median(stats.UnitAllocsPerOp, chart.Number), verdict,
	}
}

// pipeline names the group by its consumer, its source and the varying labels.
func (g *group) pipeline(varying []string) string {
	title := cmp.Or(g.Label("pipeline"), g.Name)
	if overHTTP(g.CellResult) {
		title += "/HTTP"
	}
	for _, key := range varying {
		switch v := g.Label(key); {
		case v == "" || key == "pipeline" || key == "source":
		case key == "storm" || key == "delivery":
			title += " " + v
		default:
			title += " " + key + "=" + v
		}
	}
	return title
}

// briefEnds returns the lines below the tables.
func briefEnds(o run) []string {
	var failed []*lab.CellResult
	cells, noisy := 0, 0
	pairs := map[string]int{} // by class
	for _, c := range o.comparisons {
		for _, n := range c.pairs {
			pairs[n.Class]++
		}
	}
	for _, cl := range o.Cells() {
		cells++
		switch cl.Verdict.Status {
		case lab.Noisy:
			noisy++
		case lab.Invalid, lab.Unplayed:
			failed = append(failed, cl)
		}
	}
	var out, causes []string
	for _, set := range together(failed, func(c *lab.CellResult) string { return c.Verdict.Short() }) {
		causes = append(causes, fmt.Sprintf("%d %s%s", len(set), set[0].Verdict.Short(), causeHints[set[0].Verdict.Cause]))
	}
	if len(causes) > 0 {
		out = wrap(fmt.Sprintf("No answer from %d of %s: %s.", len(failed), lab.Plural(cells, "cell"), strings.Join(causes, ", ")), textWidth)
	}
	if o.Interrupted {
		out = append(out, interrupted(o.Outcome))
	}
	noise := fmt.Sprintf("Noise: %d of %s have rounds more than %s apart", noisy, lab.Plural(cells, "cell"), chart.Percent(lab.MaxSpread))
	if n := pairs["good"] + pairs["warn"] + pairs["bad"]; n > 0 {
		noise += fmt.Sprintf("; A/A: %d of %s differ, %d agree", pairs["bad"], lab.Plural(n, "pair"), pairs["good"])
	}
	priced := ""
	if o.Env.GCNsPerByte > 0 {
		priced = ", garbage at " + chart.Number(o.Env.GCNsPerByte) + " ns/B"
	}
	out = append(out, noise+".", "ratio: of events/s; per CPU: of events per CPU second"+priced+"; allocs: per event.")
	if partial(o.Outcome) != "" {
		out = append(out, "All figures are of "+o.Merged.String()+".")
	}
	if o.Dir != "" {
		out = append(out, "Report: "+filepath.Join(o.Dir, HTMLFile))
	}
	return out
}

// causeHints explain the verdicts that the machine causes.
var causeHints = map[lab.Cause]string{
	lab.CauseGenerator: " (the generator fell behind its rate)",
	lab.CauseSteal:     " (other machines took the CPU)",
	lab.CauseThrottled: " (the CPU quota ran out)",
}
