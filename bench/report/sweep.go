package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// sweeps returns the tables of knees, scalings and surfaces.
func sweeps(o *lab.Outcome) []table {
	var out []table
	if len(o.Knees) > 0 {
		out = append(out, knees(o.Knees))
	}
	if len(o.Scalings) > 0 {
		out = append(out, scalings(o.Scalings)...)
	}
	for i := range o.Surfaces {
		out = append(out, surface(&o.Surfaces[i]))
	}
	return out
}

// named makes a row from a cell's name, so that splitLabels works on it.
func named(name, impl string) row {
	parts := strings.Split(name, "/")
	c := &lab.CellResult{Name: parts[0], Labels: []lab.Label{{Key: "impl", Value: impl}}}
	for _, p := range parts[1:] {
		if key, value, _ := strings.Cut(p, "="); key != "impl" {
			c.Labels = append(c.Labels, lab.Label{Key: key, Value: value})
		}
	}
	return row{throughput: c, latency: c}
}

// limits describes what prevented higher rates.
var limits = map[string]string{
	"latency":   "latency",
	"generator": "the generator: the variant may hold more",
	"invariant": "an invariant was broken",
	"search":    "none up to the search's end",
	"time":      "time ran out: the variant may hold more",
}

// knees returns the table of the highest rates within the objective.
func knees(all []stats.Knee) table {
	t := table{title: "Knee: the highest rate that holds the objective"}
	var rows []row
	for _, k := range all {
		rows = append(rows, named(k.Cell, k.Impl))
	}
	varying, shared := splitLabels(rows)
	t.shared = strings.Join(shared, ", ")
	rowNames(&t.grid, varying)
	t.grid.column("objective", true)
	for _, h := range []string{"holds", "fails at", "there"} {
		t.grid.column(h, false)
	}
	t.grid.column("limit", true)
	for i, k := range all {
		there := none
		at := slices.IndexFunc(k.Points, func(p stats.KneePoint) bool { return p.Rate == k.Held })
		if v, ok := latencyAt(k, at); ok {
			there = nanoseconds(v)
		}
		limit, ok := limits[k.Limit]
		if !ok {
			limit = k.Limit
		}
		t.grid.rows = append(t.grid.rows, append(rowName(rows[i], varying),
			fmt.Sprintf("%s ≤ %s", strings.TrimSuffix(k.Objective.Unit, "-ns"), nanoseconds(float64(k.Objective.Most))),
			rateOrNone(k.Held), rateOrNone(k.Failed), there, limit))
	}
	t.legend = []string{"holds, fails at: events a second; there: the objective's quantile at the former, median of the rounds."}
	return t
}

func latencyAt(k stats.Knee, point int) (float64, bool) {
	if point < 0 {
		return 0, false
	}
	v, ok := k.Points[point].Latency[k.Objective.Unit]
	return v, ok
}

func rateOrNone(v float64) string {
	if v <= 0 {
		return none
	}
	return benchunit.Scale(v, benchunit.Decimal)
}

// scalings returns two tables for each varied parameter: the throughputs, and the
// fitted scaling laws.
func scalings(all []stats.Scaling) []table {
	var overs []string
	for _, s := range all {
		if !slices.Contains(overs, s.Over) {
			overs = append(overs, s.Over)
		}
	}
	var out []table
	for _, over := range overs {
		var of []stats.Scaling
		for _, s := range all {
			if s.Over == over {
				of = append(of, s)
			}
		}
		out = append(out, throughputs(over, of), fits(over, of))
	}
	return out
}

// labelled returns the scalings as rows, without the varied label.
func labelled(over string, all []stats.Scaling) (rows []row, varying, shared []string) {
	for _, s := range all {
		r := named(s.Cell, s.Impl)
		r.throughput.Labels = r.throughput.Without(over)
		rows = append(rows, r)
	}
	varying, shared = splitLabels(rows)
	return rows, varying, shared
}

// throughputs returns the table of the measured throughputs.
func throughputs(over string, all []stats.Scaling) table {
	t := table{title: "Scaling over " + over + ", events/s"}
	rows, varying, shared := labelled(over, all)
	t.shared = strings.Join(shared, ", ")
	rowNames(&t.grid, varying)
	var ns []float64
	for _, s := range all {
		for _, p := range s.Points {
			if !slices.Contains(ns, p.N) {
				ns = append(ns, p.N)
			}
		}
	}
	slices.Sort(ns)
	for _, n := range ns {
		t.grid.column(over+"="+trimmed(n), false)
	}
	for i, s := range all {
		line := rowName(rows[i], varying)
		for _, n := range ns {
			at := slices.IndexFunc(s.Points, func(p stats.ScalePoint) bool { return p.N == n })
			if at < 0 {
				line = append(line, none)
				continue
			}
			line = append(line, perSecond(stats.Samples{stats.UnitEventsPerSec: s.Points[at].EventsPerSecond}))
		}
		t.grid.rows = append(t.grid.rows, line)
	}
	return t
}

// fits returns the table of the fitted laws.
func fits(over string, all []stats.Scaling) table {
	t := table{title: "Scaling over " + over + ", the Universal Scalability Law"}
	rows, varying, _ := labelled(over, all)
	rowNames(&t.grid, varying)
	for _, h := range []string{"λ (of one)", "σ (contention)", "κ (coherency)", "peak at", "peak", "RMSE", "R²"} {
		t.grid.column(h, false)
	}
	for i, s := range all {
		line := rowName(rows[i], varying)
		if s.Fit == nil {
			t.grid.rows = append(t.grid.rows, append(line, none, none, none, none, none, none, none))
			t.legend = append(t.legend, fmt.Sprintf("%s: no fit: %s", strings.Join(line, " "), s.Why))
			continue
		}
		u := s.Fit
		peak, rate := "none", none
		if u.Peak > 0 {
			peak, rate = number(u.Peak), benchunit.Scale(u.PeakRate, benchunit.Decimal)
			if last := s.Points[len(s.Points)-1].N; u.Peak > last {
				peak += " (beyond)"
			}
		}
		t.grid.rows = append(t.grid.rows, append(line,
			estimate(u.Lambda, decimal),
			estimate(u.Sigma, coefficient), estimate(u.Kappa, coefficient),
			peak, rate, percent(u.RMSE), strconv.FormatFloat(u.R2, 'f', 3, 64)))
	}
	t.legend = append(t.legend,
		"X(N) = λN / (1 + σ(N−1) + κN(N−1)), fitted to the medians; in brackets 95 % intervals (bootstrap); (beyond): further than what was measured; RMSE: of the relative residuals.")
	return t
}

// trimmed writes a number without trailing zeros, like a label.
func trimmed(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func surface(s *stats.Surface) table {
	t := table{title: fmt.Sprintf("Surface of %s, %s", s.Impl, s.Unit), shared: s.Cell}
	t.grid.column(s.Y+" \\ "+s.X, true)
	for _, x := range s.Xs {
		t.grid.column(x, false)
	}
	for i, y := range s.Ys {
		line := []string{y}
		for j := range s.Xs {
			text := none
			if i < len(s.Points) && j < len(s.Points[i]) && s.Points[i][j] != nil {
				text = unitFormat(s.Unit)(s.Points[i][j].Median)
			}
			line = append(line, text)
		}
		t.grid.rows = append(t.grid.rows, line)
	}
	return t
}
