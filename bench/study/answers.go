package study

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// batches answers which batch is the fastest, for each variant and each value of
// another label.
func batches(o *lab.Outcome, other string) Answer {
	const unit = stats.UnitEventsPerSec
	all := figuresOf(o)
	var out []string
	sizes := newContenders(all.values("batch"))
	for _, impl := range all.with("batch").values("impl") {
		for _, at := range all.values(other) {
			cells := all.having("impl", impl, other, at).with("batch")
			best, ok := cells.best(unit)
			if !ok {
				continue
			}
			line := fmt.Sprintf("%s, %s: fastest in batches of %s, with %s",
				impl, condition(other, at), best.Label("batch"), show(best.median(unit), unit))
			if one, ok := cells.having("batch", "1").one(); ok && one.CellResult != best.CellResult {
				line += "; beside batches of 1 that is " + best.beside(one, unit).String()
			}
			smallest := best
			for _, c := range cells {
				d := c.beside(best, unit)
				sizes.judge(c.Label("batch"), c.CellResult == best.CellResult, d)
				if d.Testable && !d.Significant && number(c.Label("batch")) < number(smallest.Label("batch")) {
					smallest = c
				}
			}
			if smallest.CellResult != best.CellResult {
				line += fmt.Sprintf("; batches of %s could not be told from it", smallest.Label("batch"))
			}
			if up, ok := all.having("impl", "clientgo-realfifo-batch", other, at).one(); ok && up.Class == best.Class {
				line += "; beside clientgo-realfifo-batch it is " + best.beside(up, unit).String()
			}
			out = append(out, line+".")
		}
	}
	if len(out) == 0 {
		return Answer{}
	}
	over := "over all numbers of " + other
	if other == "handler" {
		over = "over all costs of the handler"
	}
	return Answer{Short: []string{sizes.verdict("batch", over)}, More: out}
}

// contenders are the values of a knob, of which those drop out that are told to be
// slower than the best anywhere.
type contenders struct {
	values []string
	slower map[string]bool

	unseen map[string]float64

	blind bool
}

func newContenders(values []string) *contenders {
	return &contenders{values: values, slower: map[string]bool{}, unseen: map[string]float64{}}
}

func (c *contenders) judge(value string, best bool, d difference) {
	switch {
	case best:
	case !d.Testable:
		c.blind = true
	case d.Significant:
		c.slower[value] = true
	default:
		c.unseen[value] = max(c.unseen[value], d.seen)
	}
}

// verdict names the smallest that is left.
func (c *contenders) verdict(what, over string) string {
	smallest := ""
	for _, v := range c.values {
		if !c.slower[v] && (smallest == "" || number(v) < number(smallest)) {
			smallest = v
		}
	}
	switch {
	case c.blind:
		return fmt.Sprintf("Too few rounds to tell which %s is enough %s.", what, over)
	case smallest == "":
		return fmt.Sprintf("No %s is the best, or next to it, %s.", what, over)
	}
	line := fmt.Sprintf("%s, %s is the smallest %s that was nowhere told to be slower than the best", capital(over), smallest, what)
	if u := c.unseen[smallest]; u > 0 {
		line += fmt.Sprintf(" (a difference of less than %.0f %% may have gone unseen)", u*100)
	}
	return line + "."
}

// condition says what a label's value means.
func condition(key, value string) string {
	switch key {
	case "readers":
		if value == "1" {
			return "1 reader"
		}
		return value + " readers"
	case "handler":
		if value == "0" {
			return "a handler that costs nothing"
		}
		return "a handler that takes " + value
	case "producers":
		if value == "1" {
			return "1 producer"
		}
		return value + " producers"
	}
	return key + " " + value
}

// hotKeys answers what skew does to each variant, at the largest batch that it
// takes.
func hotKeys(o *lab.Outcome) Answer {
	all := figuresOf(o)
	var out []string
	for _, impl := range all.values("impl") {
		own := all.having("impl", impl)
		batch := ""
		for _, b := range own.values("batch") {
			if batch == "" || number(b) > number(batch) {
				batch = b
			}
		}
		own = own.having("batch", batch)
		base, ok := own.having("skew", "uniform").one()
		if !ok {
			continue
		}
		who := impl
		if batch != "" {
			who += " (batches of up to " + batch + ")"
		}
		line := fmt.Sprintf("%s: %s where all keys are alike%s", who, show(base.median(stats.UnitEventsPerSec), stats.UnitEventsPerSec), handedOver(base))
		for _, skew := range own.values("skew") {
			hot, ok := own.having("skew", skew).one()
			if !ok || skew == "uniform" {
				continue
			}
			line += fmt.Sprintf("; %s: %s%s", skew, hot.beside(base, stats.UnitEventsPerSec), handedOver(hot))
		}
		out = append(out, line+".")
	}
	if len(out) == 0 {
		return Answer{}
	}
	hottest := ""
	for _, s := range all.values("skew") {
		if v, ok := strings.CutPrefix(s, "zipf:"); ok && (hottest == "" || number(v) > number(strings.TrimPrefix(hottest, "zipf:"))) {
			hottest = s
		}
	}
	return Answer{Short: append(besideBaseline(all.having("skew", hottest), "with keys by "+hottest), whoseBaseline(all, out)...), More: out}
}

// whoseBaseline returns the lines that begin with the baseline's name.
func whoseBaseline(all figures, lines []string) []string {
	at := slices.IndexFunc(all, func(c figure) bool { return c.Baseline })
	if at < 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, all[at].impl()) })
}

// handedOver says how many events came at a time.
func handedOver(c figure) string {
	calls := c.median("hand-overs")
	if calls == 0 || len(c.Rounds) == 0 {
		return ""
	}
	return fmt.Sprintf(", %s events a hand-over", digits(float64(c.Rounds[0].Result.EventsIn)*c.median(stats.UnitDeltasPerEvent)/calls))
}

// besideBaseline holds the best of the others against the baseline among the
// cells, where their guarantees are alike.
func besideBaseline(cells figures, where string) []string {
	at := slices.IndexFunc(cells, func(c figure) bool { return c.Baseline })
	if at < 0 {
		return nil
	}
	base := cells[at]
	rest := slices.DeleteFunc(slices.Clone(cells), func(c figure) bool { return c.Baseline || c.Class != base.Class })
	best, ok := rest.best(stats.UnitEventsPerSec)
	if !ok {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s beside %s: %s.", capital(where), best.impl(), base.impl(), best.beside(base, stats.UnitEventsPerSec))}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// coalescing answers what waiting events take, by delivery.
func coalescing(found Found) Answer {
	const waiting, drain = "B/queued-event", "drain-ns/event"
	var short, out []string
	tell := func(c figure, how string) {
		if len(c.samples[waiting]) == 0 {
			return
		}
		out = append(out, fmt.Sprintf("%s, %s%s: %s that waits, %s to drain, %s deltas handed over for each event%s.",
			c.impl(), c.Label("delivery"), how, strings.Replace(show(c.median(waiting), waiting), "an event", "for each event", 1),
			show(c.median(drain), drain), digits(c.median(stats.UnitDeltasPerEvent)), handedOver(c)))
	}
	kept := figuresOf(found["stalled"])
	for _, c := range kept {
		tell(c, "")
	}
	old, ok1 := kept.having("impl", "clientgo-deltafifo").one()
	now, ok2 := kept.having("impl", "clientgo-realfifo-batch").one()
	if ok1 && ok2 {
		var parts []string
		for _, f := range []struct{ what, unit string }{{"memory for each event that waits", waiting}, {"time to drain one", drain}, {"calls of the handler", "hand-overs"}} {
			if len(old.samples[f.unit]) > 0 && len(now.samples[f.unit]) > 0 {
				parts = append(parts, f.what+" "+now.beside(old, f.unit).String())
			}
		}
		if len(parts) > 0 {
			short = []string{"From clientgo-deltafifo to clientgo-realfifo-batch, whose guarantees differ: " + strings.Join(parts, "; ") + "."}
		}
	}
	for _, c := range figuresOf(found["latest"]) {
		tell(c, ", newest only")
	}
	return Answer{Short: short, More: out}
}

// readers answers what readers cost, and what they see.
func readers(found Found) Answer {
	all := figuresOf(found["throughput"])
	var out []string
	for _, impl := range all.values("impl") {
		for _, cost := range all.values("handler") {
			own := all.having("impl", impl, "handler", cost)
			alone, ok := own.having("readers", "0").one()
			if !ok {
				continue
			}
			line := fmt.Sprintf("%s, %s: %s without readers", impl, condition("handler", cost), show(alone.median(stats.UnitEventsPerSec), stats.UnitEventsPerSec))
			for _, n := range own.values("readers") {
				if c, ok := own.having("readers", n).one(); ok && n != "0" {
					line += fmt.Sprintf("; %s: %s", condition("readers", n), c.beside(alone, stats.UnitEventsPerSec))
				}
			}
			out = append(out, line+".")
		}
	}
	most := ""
	for _, n := range all.values("readers") {
		if most == "" || number(n) > number(most) {
			most = n
		}
	}
	var short []string
	for _, cost := range all.values("handler") {
		short = append(short, besideBaseline(all.having("readers", most, "handler", cost), "with "+condition("readers", most)+" and "+condition("handler", cost))...)
	}
	const listed, looked = "list-staleness-p99-events", "staleness-p99-events"
	for _, c := range figuresOf(found["staleness"]) {
		if len(c.samples[listed]) == 0 {
			continue
		}
		line := fmt.Sprintf("%s at %s events/s: 99 %% of the lists were at most %s behind", c.impl(), c.Label("rate"), show(c.median(listed), listed))
		if len(c.samples[looked]) > 0 {
			line += fmt.Sprintf(", 99 %% of the worker's look-ups %s", show(c.median(looked), looked))
		}
		short = append(short, line+".")
	}
	return Answer{Short: short, More: out}
}

// bounds answers what a capacity costs and saves.
func bounds(o *lab.Outcome) Answer {
	all := figuresOf(o)
	var out []string
	for _, impl := range all.with("capacity").values("impl") {
		own := all.having("impl", impl)
		free, ok := own.having("capacity", "0").one()
		if !ok || len(own.values("capacity")) < 2 {
			continue
		}
		for _, n := range own.values("capacity") {
			c, ok := own.having("capacity", n).one()
			if !ok || n == "0" {
				continue
			}
			line := fmt.Sprintf("%s, room for %s, beside no bound: events/s %s", impl, n, c.beside(free, stats.UnitEventsPerSec))
			for _, f := range []struct{ what, unit string }{{"p99 from release to handled", stats.UnitP99}, {"bytes allocated for each event", stats.UnitBytesPerOp}} {
				if len(c.samples[f.unit]) > 0 && len(free.samples[f.unit]) > 0 {
					line += fmt.Sprintf("; %s %s to %s, %s", f.what, show(free.median(f.unit), f.unit), show(c.median(f.unit), f.unit), c.beside(free, f.unit))
				}
			}
			out = append(out, line+".")
		}
	}
	best, ok := all.with("capacity").best(stats.UnitEventsPerSec)
	var short []string
	if ok {
		short = append(short, fmt.Sprintf("The most events/s, %s, were those of %s with %s.",
			strings.TrimSuffix(show(best.median(stats.UnitEventsPerSec), stats.UnitEventsPerSec), " events/s"), best.impl(), room(best.Label("capacity"))))
		short = append(short, slices.DeleteFunc(slices.Clone(out), func(l string) bool { return !strings.HasPrefix(l, best.impl()+", ") })...)
	}
	if len(out) == 0 {
		return Answer{}
	}
	return Answer{Short: short, More: out}
}

// room says what a capacity means.
func room(capacity string) string {
	if capacity == "0" {
		return "no bound"
	}
	return "room for " + capacity
}

// relist answers what a Replace of everything costs.
func relist(o *lab.Outcome) Answer {
	all := figuresOf(o)
	var short, out []string
	for _, delivery := range all.values("delivery") {
		cells := all.having("delivery", delivery)
		for _, c := range cells {
			var parts []string
			for _, f := range []struct{ what, unit string }{
				{"the heap grew by", stats.UnitHeapGrowth}, {"peak heap", stats.UnitPeakHeap}, {"longest pause of the collector", stats.UnitGCPauseMax},
				{"longest wait of an event", stats.UnitMax},
			} {
				if len(c.samples[f.unit]) > 0 {
					parts = append(parts, f.what+" "+show(c.median(f.unit), f.unit))
				}
			}
			if len(parts) > 0 {
				out = append(out, fmt.Sprintf("%s, %s: %s.", c.impl(), delivery, strings.Join(parts, "; ")))
			}
		}
		at := slices.IndexFunc(cells, func(c figure) bool { return c.Baseline })
		if at < 0 {
			continue
		}
		for _, unit := range []string{stats.UnitHeapGrowth, stats.UnitMax} {
			base := cells[at]
			rest := slices.DeleteFunc(slices.Clone(cells), func(c figure) bool { return c.Baseline || c.Class != base.Class })
			best, ok := rest.best(unit)
			if !ok || len(base.samples[unit]) == 0 {
				continue
			}
			what := "the growth of the heap"
			if unit == stats.UnitMax {
				what = "the longest wait"
			}
			short = append(short, fmt.Sprintf("%s, %s of %s beside that of %s: %s.", capital(delivery), what, best.impl(), base.impl(), best.beside(base, unit)))
		}
	}
	return Answer{Short: short, More: out}
}

// stamps answers what reading the clock costs.
func stamps(o *lab.Outcome) Answer {
	const unit = stats.UnitNsPerOp
	all := figuresOf(o).measured(unit)
	var out []string
	for _, impl := range all.values("impl") {
		for _, n := range all.values("producers") {
			own := all.having("impl", impl, "producers", n)
			bare, ok := own.having("stamps", "none").one()
			if !ok {
				continue
			}
			line := fmt.Sprintf("%s, %s: %s without stamps", impl, condition("producers", n), show(bare.median(unit), unit))
			for _, s := range own.values("stamps") {
				c, ok := own.having("stamps", s).one()
				if !ok || s == "none" {
					continue
				}
				d := c.beside(bare, unit)
				line += fmt.Sprintf("; %s: ", s)
				if d.told() {
					line += fmt.Sprintf("%+.0f ns, ", c.median(unit)-bare.median(unit))
				}
				line += d.String()
			}
			out = append(out, line+".")
		}
	}
	var short []string
	if best, ok := all.having("stamps", "none").best(unit); ok {
		short = slices.DeleteFunc(slices.Clone(out), func(l string) bool { return !strings.HasPrefix(l, best.impl()+", ") })
	}
	return Answer{Short: short, More: out}
}

// knees answers which rates are held.
func knees(o *lab.Outcome) Answer {
	if o == nil {
		return Answer{}
	}
	var out []string
	for _, k := range o.Knees {
		switch {
		case len(k.Points) == 0 || k.Held == 0 && k.Failed == 0:
			out = append(out, fmt.Sprintf("%s: no rate was played to the end.", k.Impl))
		case k.Limit == string(lab.CauseGenerator) && k.Held == 0:
			out = append(out, fmt.Sprintf("%s: not known, as the generator couldn't keep %s events/s, the lowest rate.", k.Impl, digits(k.Failed)))
		case k.Limit == string(lab.CauseGenerator):
			out = append(out, fmt.Sprintf("%s: %s events/s or more; %s the generator couldn't keep.", k.Impl, digits(k.Held), digits(k.Failed)))
		case k.Held == 0:
			out = append(out, fmt.Sprintf("%s: not even %s events/s (limit: %s).", k.Impl, digits(k.Failed), k.Limit))
		case k.Failed == 0:
			out = append(out, fmt.Sprintf("%s: %s events/s, and more was not tried (limit: %s).", k.Impl, digits(k.Held), k.Limit))
		default:
			out = append(out, fmt.Sprintf("%s: %s events/s; %s were too many (limit: %s).", k.Impl, digits(k.Held), digits(k.Failed), k.Limit))
		}
	}
	return Answer{Short: out}
}

// scalings answers how throughput goes with a number.
func scalings(o *lab.Outcome) Answer {
	if o == nil {
		return Answer{}
	}
	var short, out []string
	for _, s := range o.Scalings {
		if len(s.Points) == 0 {
			continue
		}
		first, last := s.Points[0], s.Points[len(s.Points)-1]
		d := difference{Comparison: stats.Compare(first.EventsPerSecond, last.EventsPerSecond)}
		line := fmt.Sprintf("%s: from %s to %s %s: %s", s.Impl, digits(first.N), digits(last.N), s.Over, d)
		switch {
		case s.Fit == nil:
			line += "; no law is fitted: " + s.Why
		default:
			line += fmt.Sprintf("; contention %.3f (%.3f to %.3f), coherency %.4f (%.4f to %.4f), off by %.0f %%",
				s.Fit.Sigma.Value, s.Fit.Sigma.Lo, s.Fit.Sigma.Hi, s.Fit.Kappa.Value, s.Fit.Kappa.Lo, s.Fit.Kappa.Hi, s.Fit.RMSE*100)
			if s.Fit.Peak > 0 {
				line += fmt.Sprintf(", highest at %s", digits(s.Fit.Peak))
				if s.Fit.Peak > last.N {
					line += " by extrapolation"
				}
			}
		}
		out = append(out, line+".")
	}
	if len(o.Scalings) > 0 && len(out) > 0 {
		over := o.Scalings[0].Over
		all := figuresOf(o)
		values := all.values(over)
		most := slices.MaxFunc(values, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
		cells := all.having(over, most)
		if best, ok := cells.best(stats.UnitEventsPerSec); ok {
			short = append(short, fmt.Sprintf("With %s, %s is the fastest: %s.", condition(over, most), best.impl(), show(best.median(stats.UnitEventsPerSec), stats.UnitEventsPerSec)))
		}
		short = append(short, besideBaseline(cells, "with "+condition(over, most))...)
	}
	return Answer{Short: short, More: out}
}
