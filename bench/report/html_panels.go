package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/report/chart"
)

const (
	// openPanels is the number of initially open panels per comparison.
	openPanels = 4
	// shownRates is the number of rates with drawn distributions. The table contains
	// all rates.
	shownRates = 6
	// shownRemarks is the number of visible remarks below a table. The others are
	// collapsed.
	shownRemarks = 8
)

// stylesOf assigns each variant one style for all charts.
func stylesOf(o *lab.Outcome) map[string]chart.Style {
	styles := map[string]chart.Style{}
	add := func(impl string, baseline bool) {
		if _, ok := styles[impl]; !ok {
			styles[impl] = chart.Style{Slot: len(styles), Dashed: baseline}
		}
	}
	for i := range o.Comparisons {
		for _, r := range rowsOf(&o.Comparisons[i]) {
			add(r.variant(), r.isBaseline())
		}
	}
	for _, k := range o.Knees {
		add(k.Impl, false)
	}
	for _, s := range o.Scalings {
		add(s.Impl, false)
	}
	for _, s := range o.Surfaces {
		add(s.Impl, false)
	}
	return styles
}

// group holds rows that differ only in variant and rate. One chart can show them.
type group struct {
	title string
	rows  []row
	// wanted is the requested latency boundary (see [lab.Comparison]).
	wanted cell.Boundary
	styles map[string]chart.Style
}

// groupsOf splits the rows of a comparison into groups.
func groupsOf(rows []row, wanted cell.Boundary, styles map[string]chart.Style) []group {
	varying, _ := splitLabels(rows)
	at := map[string]int{}
	var groups []group
	for _, r := range rows {
		key := r.throughput.NameWithout("impl", "rate")
		i, ok := at[key]
		if !ok {
			i = len(groups)
			at[key] = i
			groups = append(groups, group{title: groupTitle(r, varying), wanted: wanted, styles: styles})
		}
		groups[i].rows = append(groups[i].rows, r)
	}
	return groups
}

// contested reports whether the group has several variants.
func (g group) contested() bool {
	return slices.ContainsFunc(g.rows, func(r row) bool { return r.variant() != g.rows[0].variant() })
}

func groupTitle(r row, varying []string) string {
	parts := []string{r.throughput.Name}
	for _, key := range varying {
		if v := r.throughput.Label(key); v != "" {
			parts = append(parts, key+" "+v)
		}
	}
	return strings.Join(parts, ", ")
}

// rates returns the rates of the latency cells in ascending order. [lab.Unpaced] is
// omitted if there is another rate: unpaced latency is mostly waiting in the queue.
func (g group) rates() []string {
	var rates []string
	for _, r := range g.rows {
		if !slices.Contains(rates, r.rate()) {
			rates = append(rates, r.rate())
		}
	}
	if len(rates) > 1 {
		rates = slices.DeleteFunc(rates, func(s string) bool { return s == lab.Unpaced })
	}
	slices.SortStableFunc(rates, func(a, b string) int {
		return cmp.Compare(numeric(a), numeric(b))
	})
	return rates
}

// numeric parses a rate; other paces sort last.
func numeric(rate string) float64 {
	v, err := strconv.ParseFloat(rate, 64)
	if err != nil {
		return math.Inf(1)
	}
	return v
}

// at returns the group reduced to rows of one rate.
func (g group) at(rate string) group {
	g.rows = slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return r.rate() != rate })
	return g
}

// someOf selects most of the rates evenly, including the first and the last.
func someOf(rates []string, most int) []string {
	if len(rates) <= most {
		return rates
	}
	var out []string
	for i := range most {
		out = append(out, rates[i*(len(rates)-1)/(most-1)])
	}
	return out
}

// comparisonSection draws a comparison: its tables, then a panel per group. Panels of
// swept cells are initially closed.
func comparisonSection(id string, c *lab.ComparisonResult, v tableView, rounds int, swept bool, styles map[string]chart.Style) (section, error) {
	s := section{ID: id, Heading: c.Family, Intro: v.title, Legend: slices.Concat(v.legend, v.noise)}
	if len(s.Legend) > shownRemarks {
		s.Legend, s.More = s.Legend[:shownRemarks], s.Legend[shownRemarks:]
	}
	if c.Rounds > 0 {
		rounds = c.Rounds
	}
	if v.shared != "" {
		s.Intro += "; " + v.shared
	}
	s.Tables = append(s.Tables, htmlGrid("Figures of "+c.Family+", medians of "+Plural(rounds, "round"), v.grid))
	for _, t := range v.more() {
		s.Tables = append(s.Tables, htmlGrid(t.title, t.grid))
	}
	groups := groupsOf(v.rows, c.Latency, styles)
	for i, g := range groups {
		p, err := g.panel(fmt.Sprintf("%s-%d", id, i+1))
		if err != nil {
			return section{}, err
		}
		if len(p.Figures) == 0 {
			continue
		}
		p.Open = i < openPanels && (!swept || len(groups) == 1)
		s.Panels = append(s.Panels, p)
	}
	return s, nil
}

// panel draws the charts of a group. Distributions and timelines have one figure per
// shown rate.
func (g group) panel(id string) (panel, error) {
	p := panel{ID: id, Title: g.title}
	for _, r := range g.rows {
		if !slices.ContainsFunc(p.Legend, func(s series) bool { return s.Name == r.variant() }) {
			p.Legend = append(p.Legend, legendEntry(r.variant(), r.isBaseline(), g.styles))
		}
	}
	add := func(f figure, ok bool) {
		if ok {
			p.Figures = append(p.Figures, f)
		}
	}
	add(g.throughput(id))
	add(g.againstRate(id))
	all := g.rates()
	rates := someOf(all, shownRates)
	for i, rate := range rates {
		rid := fmt.Sprintf("%s-r%d", id, i+1)
		at := g.at(rate)
		choice := rate
		if len(rates) == 1 {
			choice = ""
		}
		before := len(p.Figures)
		add(at.quantiles(rid, rate, choice))
		f, ok, err := at.distribution(rid, rate, choice)
		if err != nil {
			return panel{}, err
		}
		add(f, ok)
		add(at.stages(rid, rate, choice))
		add(at.depth(rid, rate, choice))
		add(at.handled(rid, rate, choice))
		if choice != "" && len(p.Figures) > before {
			p.Choices = append(p.Choices, choice)
		}
	}
	if len(rates) < len(all) {
		p.Notes = append(p.Notes, fmt.Sprintf("Distributions are drawn at %d of %d rates; the table has all of them.", len(rates), len(all)))
	}
	return p, nil
}

func legendEntry(name string, baseline bool, styles map[string]chart.Style) series {
	return series{Name: name, Key: chart.Key(styles[name]), Baseline: baseline}
}

// rateTitle describes the rate of a measurement.
func rateTitle(rate string) string {
	if rate == lab.Unpaced {
		return "unpaced"
	}
	if _, err := strconv.ParseFloat(rate, 64); err == nil {
		return "at " + rate + " events/s"
	}
	return "at pace " + rate
}
