package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// briefLines is the maximum number of lines of [Brief].
const briefLines = 40

// Brief writes a summary for one screen: at most 40 lines of at most 100 columns.
//
//  1. One sentence per family states the gain of its best variant over the baseline,
//     in events per CPU second. It prefers a real consumer, then the stage alone, then
//     HTTP. A figure that does not differ significantly from 1 is "no difference".
//  2. A table has one line per variant and pipeline. If the lines do not fit, the
//     largest table drops pipelines, first those outside the sentence. Brief counts
//     the dropped rows.
//  3. The last lines list open questions with reasons, the number of noisy cells, and
//     the path of the report.
func Brief(w io.Writer, o *lab.Outcome) error {
	families := briefFamilies(o)
	ends := briefEnds(o)
	used := len(ends)
	for i := range families {
		families[i].sentence = wrap(families[i].say(), textWidth)
		used += len(families[i].sentence) + 2
	}
	dropped := shrink(families, briefLines-used-1)

	var b bytes.Buffer
	for _, f := range families {
		for _, line := range append(f.sentence, f.table()...) {
			b.WriteString(line + "\n")
		}
		b.WriteString("\n")
	}
	if dropped > 0 {
		fmt.Fprintf(&b, "Rows that only the report shows: %d.\n", dropped)
	}
	for _, line := range ends {
		b.WriteString(line + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// briefFamily is the sentence and the table of one family.
type briefFamily struct {
	name     string
	sentence []string
	groups   []*briefGroup
}

// briefGroup holds the rows that differ only in the variant.
type briefGroup struct {
	key  string
	cell *lab.CellResult
	rows []row
	said bool // the sentence mentions the group
}

// briefFamilies groups the rows of all comparisons, groups with a real consumer first.
func briefFamilies(o *lab.Outcome) []briefFamily {
	var out []briefFamily
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		at := slices.IndexFunc(out, func(f briefFamily) bool { return f.name == c.Family })
		if at < 0 {
			at = len(out)
			out = append(out, briefFamily{name: c.Family})
		}
		f := &out[at]
		for _, r := range oneRate(rowsOf(c)) {
			key := r.throughput.NameWithout("impl", "rate")
			g := slices.IndexFunc(f.groups, func(g *briefGroup) bool { return g.key == key })
			if g < 0 {
				g = len(f.groups)
				f.groups = append(f.groups, &briefGroup{key: key, cell: r.throughput})
			}
			f.groups[g].rows = append(f.groups[g].rows, r)
		}
	}
	for _, f := range out {
		slices.SortStableFunc(f.groups, func(a, b *briefGroup) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	return out
}

// oneRate keeps one row per variant: the row with a p99 at the highest rate.
func oneRate(rows []row) []row {
	better := func(a, b row) bool {
		if (a.wait.Count >= 100) != (b.wait.Count >= 100) {
			return a.wait.Count >= 100
		}
		var x, y float64
		_, _ = fmt.Sscan(a.rate(), &x) // An unpaced rate does not parse and counts as 0.
		_, _ = fmt.Sscan(b.rate(), &y)
		return x > y
	}
	var out []row
	for _, r := range rows {
		key := r.throughput.NameWithout("rate")
		at := slices.IndexFunc(out, func(o row) bool { return o.throughput.NameWithout("rate") == key })
		switch {
		case at < 0:
			out = append(out, r)
		case better(r, out[at]):
			out[at] = r
		}
	}
	return out
}

// rank orders pipelines by their relevance to users, most relevant first.
func (g *briefGroup) rank() int {
	switch consumer := g.cell.Label("pipeline"); {
	case consumer == "queue" || consumer == "":
		return 1
	case g.http():
		return 2
	}
	return 0
}

func (g *briefGroup) http() bool { return g.cell.Label("source") == "apiserver" }

// consumer names the consumer of the events.
func (g *briefGroup) consumer(family string) string {
	switch p := g.cell.Label("pipeline"); p {
	case "queue", "":
		return cmp.Or(map[string]string{"deltafifo": "the queue", "merge": "the merger"}[family], "the "+family) + " alone"
	case "informer":
		return "an informer"
	default:
		return "a " + p
	}
}

// gain compares a row's events per CPU second with its baseline's. Without known CPU
// time it compares events per second. Without a comparison, why gives the reason.
type gain struct {
	stats.Comparison
	unit, why string
	noisy     bool
}

// gainOf compares a row with its baseline.
func gainOf(r row, rows []row) gain {
	base, ok := counterpart(r, rows)
	switch {
	case r.broken():
		return gain{why: r.worst().Verdict.Short()}
	case !ok:
		return gain{why: "no baseline"}
	case unequal(base, r):
		return gain{why: "guarantees differ from the baseline's"}
	case len(r.fast) == 0:
		return gain{why: r.throughput.Verdict.Short()}
	case len(base.fast) == 0:
		return gain{why: "its baseline is " + base.worst().Verdict.Short()}
	}
	g := gain{unit: "events per CPU second"}
	g.noisy = r.throughput.Verdict.Status == lab.Noisy || base.throughput.Verdict.Status == lab.Noisy
	// Less CPU time per event means more events per CPU second, so the sides are
	// swapped.
	if g.Comparison, ok = compare(r.fast, base.fast, stats.UnitCPUPerOp); ok && g.Ratio > 0 {
		return g
	}
	g.unit = "events per second"
	if g.Comparison, ok = compare(base.fast, r.fast, stats.UnitEventsPerSec); !ok || r.paced() {
		g.why = "no CPU time was measured"
	}
	return g
}

func (g gain) same() bool { return g.Testable && (!g.Significant || g.Lo <= 1 && g.Hi >= 1) }

func (g gain) text() string {
	if g.same() {
		return "no difference"
	}
	return times(g.Ratio)
}

// caution returns the reasons for doubt about a gain, in brackets.
func (g gain) caution() string {
	var parts []string
	if g.noisy {
		parts = append(parts, "noisy")
	}
	if !g.Testable {
		parts = append(parts, "too few rounds to tell")
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// say returns the family's sentence.
func (f *briefFamily) say() string {
	group, best, of := f.best()
	if group == nil {
		return fmt.Sprintf("Family %s: no comparison with a baseline (%s).", f.name, f.groups[0].obstacle())
	}
	g := gainOf(best, group.rows)
	base, _ := counterpart(best, group.rows)
	whose := "`" + base.variant() + "`"
	if strings.HasPrefix(base.variant(), "clientgo") {
		whose = "client-go's"
	}
	text := group.consumer(f.name)
	if group.http() {
		text += " over HTTP"
	}
	text += " on `" + best.variant() + "`"
	if storm := group.cell.Label("storm"); storm != "" {
		text = "Under storm " + storm + " " + text
	} else {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if of > 1 {
		text += fmt.Sprintf(", the best of %d variants,", of)
	}
	if g.same() {
		text += fmt.Sprintf(" shows no difference from %s in %s", whose, g.unit)
	} else {
		text += fmt.Sprintf(" handles %s the %s of %s%s", g.text(), g.unit, whose, g.caution())
	}
	said := group.rank()
	group.said = true
	if first := f.groups[0]; first.rank() < said {
		text += fmt.Sprintf("; %s is not answered (%s)", first.consumer(f.name), first.obstacle())
	}
	for _, other := range f.groups {
		at := slices.IndexFunc(other.rows, func(r row) bool { return r.variant() == best.variant() })
		if at < 0 || other.rank() <= said || other.cell.Label("delivery") != group.cell.Label("delivery") {
			continue
		}
		said, other.said = other.rank(), true
		if text += "; "; other.http() {
			text += "over HTTP"
		} else {
			text += other.consumer(f.name)
		}
		if storm := other.cell.Label("storm"); storm != group.cell.Label("storm") {
			text += " (storm " + storm + ")"
		}
		g := gainOf(other.rows[at], other.rows)
		if g.why != "" {
			text += " is not answered (" + g.why + ")"
			continue
		}
		text += " " + g.text() + g.caution()
		if share := transport(group, other); g.same() && share > 0.5 {
			text += ": HTTP and decoding take " + percent(math.Round(share*100)/100) + " of the CPU time"
		}
	}
	return text + "."
}

// best returns the variant with the largest gain in the highest-ranked group with a
// gain. of is the number of variants with a gain.
func (f *briefFamily) best() (group *briefGroup, best row, of int) {
	top := 0.0
	variants := map[string]bool{}
	for _, g := range f.groups {
		if group != nil && g.rank() > group.rank() {
			break
		}
		for _, r := range g.rows {
			x := gainOf(r, g.rows)
			if x.why != "" {
				continue
			}
			variants[r.variant()] = true
			if group == nil || x.Ratio > top {
				group, best, top = g, r, x.Ratio
			}
		}
	}
	return group, best, len(variants)
}

// obstacle returns the reason why no row of the group has a gain.
func (g *briefGroup) obstacle() string {
	for _, r := range g.rows {
		if why := gainOf(r, g.rows).why; why != "" && !r.isBaseline() {
			return r.variant() + ": " + why
		}
	}
	return "no variant beside the baseline"
}

// transport returns the share of the baseline's CPU time that HTTP adds to the same
// pipeline in memory; 0 if the two groups differ otherwise.
func transport(memory, http *briefGroup) float64 {
	if !http.http() || memory.http() || memory.cell.Label("storm") != http.cell.Label("storm") || memory.cell.Label("pipeline") != http.cell.Label("pipeline") {
		return 0
	}
	cost := func(g *briefGroup) float64 {
		for _, r := range g.rows {
			if r.isBaseline() {
				return stats.Median(r.fast[stats.UnitCPUPerOp])
			}
		}
		return 0
	}
	if all := cost(http); all > 0 && cost(memory) > 0 {
		return 1 - cost(memory)/all
	}
	return 0
}

// shrink drops groups of the largest table until all rows fit into room lines.
func shrink(families []briefFamily, room int) (dropped int) {
	for len(families) > 0 {
		rows := 0
		largest := &families[0]
		for i := range families {
			rows += families[i].size()
			if families[i].size() > largest.size() {
				largest = &families[i]
			}
		}
		if rows <= room || largest.size() == 1 {
			break
		}
		dropped += largest.drop(rows - room)
	}
	return dropped
}

func (f *briefFamily) size() (rows int) {
	for _, g := range f.groups {
		rows += len(g.rows)
	}
	return rows
}

// drop removes the last group outside the sentence, or else the last group. From a
// single group it removes excess rows, but keeps one.
func (f *briefFamily) drop(excess int) (dropped int) {
	at := len(f.groups) - 1
	for i, g := range f.groups {
		if !g.said {
			at = i
		}
	}
	g := f.groups[at]
	if len(f.groups) > 1 {
		f.groups = slices.Delete(f.groups, at, at+1)
		return len(g.rows)
	}
	dropped = min(excess, len(g.rows)-1)
	g.rows = g.rows[:len(g.rows)-dropped]
	return dropped
}

// table formats the family's rows. The family's name is the title of the first column.
func (f *briefFamily) table() []string {
	var g grid
	g.column(f.name, true)
	varying := f.varying()
	named := len(f.groups) > 1
	if named {
		g.column("pipeline", true)
	}
	for _, h := range []string{"events/s", "ratio", "per CPU", "p99", "allocs"} {
		g.column(h, false)
	}
	g.column("verdict", true)
	for _, group := range f.groups {
		for _, r := range group.rows {
			line := []string{r.variant()}
			if named {
				line = append(line, group.name(varying))
			}
			g.rows = append(g.rows, append(line, briefFigures(r, group.rows)...))
		}
	}
	return g.lines("", textWidth)
}

func briefFigures(r row, rows []row) []string {
	short := func(s string) string { return strings.Replace(s, "no difference", "no diff.", 1) }
	perSecond := none
	if values := r.fast[stats.UnitEventsPerSec]; len(values) > 0 {
		perSecond = decimal(stats.Median(values))
	}
	perCPU := none
	switch g := gainOf(r, rows); {
	case g.why != "" || g.unit != "events per CPU second":
	case g.same():
		perCPU = "no diff."
	case !g.Testable:
		perCPU = times(g.Ratio) + "?"
	default:
		perCPU = times(g.Ratio)
	}
	verdict := r.throughput.Verdict.Short()
	if r.broken() {
		verdict = r.worst().Verdict.Short()
	}
	return []string{
		perSecond, short(ratioColumn(r, rows)), perCPU, quantile(r.wait.Count, 100, r.wait.P99),
		median(r.fast, stats.UnitAllocsPerOp, number), verdict,
	}
}

// varying returns the labels that distinguish groups of one pipeline and source.
func (f *briefFamily) varying() []string {
	var keys []string
	values := map[string]string{}
	for _, g := range f.groups {
		where := g.cell.Label("pipeline") + " " + g.cell.Label("source") + " "
		for _, l := range g.cell.Without("impl", "rate", "pipeline", "source") {
			if have, ok := values[where+l.Key]; ok && have != l.Value && !slices.Contains(keys, l.Key) {
				keys = append(keys, l.Key)
			}
			values[where+l.Key] = l.Value
		}
	}
	return keys
}

func (g *briefGroup) name(varying []string) string {
	name := orElse(g.cell.Label("pipeline"), g.cell.Name)
	if g.http() {
		name += "/HTTP"
	}
	for _, key := range varying {
		switch v := g.cell.Label(key); {
		case v == "":
		case key == "storm" || key == "delivery":
			name += " " + v
		default:
			name += " " + key + "=" + v
		}
	}
	return name
}

// briefEnds returns the lines below the tables.
func briefEnds(o *lab.Outcome) []string {
	var out []string
	counts := map[string]int{}
	var causes []string
	cells, noisy, pairs, alike, differ := 0, 0, 0, 0, 0
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		for _, line := range again(c) {
			pairs++
			switch {
			case strings.Contains(line, "no difference"):
				alike++
			case strings.Contains(line, "WARNING"):
				differ++
			}
		}
		for _, cl := range c.Cells {
			cells++
			switch s := cl.Verdict.Short(); cl.Verdict.Status {
			case lab.Noisy:
				noisy++
			case lab.Invalid, lab.Unplayed:
				if counts[s]++; counts[s] == 1 {
					causes = append(causes, s)
				}
			}
		}
	}
	if len(causes) > 0 {
		var parts []string
		all := 0
		for _, cause := range causes {
			all += counts[cause]
			parts = append(parts, fmt.Sprintf("%d %s%s", counts[cause], cause, causeHints[cause]))
		}
		out = append(out, wrap(fmt.Sprintf("No answer from %d of %s: %s.", all, Plural(cells, "cell"), strings.Join(parts, ", ")), textWidth)...)
	}
	if o.Interrupted {
		finished, all := o.Finished()
		out = append(out, fmt.Sprintf("Interrupted: %d of %d cells have all their rounds.", finished, all))
	}
	noise := fmt.Sprintf("Noise: %d of %s have rounds more than %s apart", noisy, Plural(cells, "cell"), percent(lab.MaxSpread))
	if pairs > 0 {
		noise += fmt.Sprintf("; A/A: %d of %s differ, %d agree", differ, Plural(pairs, "pair"), alike)
	}
	out = append(out, noise+".")
	out = append(out, wrap("ratio: events/s over the baseline's; per CPU: of events per CPU second; allocs: per event.", textWidth)...)
	if p := partial(o); p != "" {
		out = append(out, "All figures are of"+strings.NewReplacer("(", "", ")", "").Replace(p)+".")
	}
	if o.Dir != "" {
		out = append(out, "Report: "+filepath.Join(o.Dir, HTMLFile))
	}
	return out
}

// causeHints explain the verdicts that the machine causes.
var causeHints = map[string]string{
	"invalid: " + string(lab.CauseGenerator): " (the generator fell behind its rate)",
	"invalid: " + string(lab.CauseSteal):     " (other machines took the CPU)",
	"invalid: " + string(lab.CauseThrottled): " (the CPU quota ran out)",
}
