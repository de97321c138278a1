package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"watchlab/bench/cell"
	"watchlab/bench/report/chart"
	"watchlab/bench/stats"
)

// wholeLatency returns the latency distribution over all rounds of a row's latency
// cell, at its headline boundary. It returns false if a histogram is missing.
func wholeLatency(r row, wanted cell.Boundary) (cell.Quantiles, bool, error) {
	if r.wait.Count == 0 {
		return cell.Quantiles{}, false, nil
	}
	if r.wait.Histogram != "" {
		return r.wait, true, nil
	}
	at := stats.Headline(cell.Result{Latency: r.latency.Latency}, wanted)
	var parts []cell.Quantiles
	for _, round := range r.latency.Rounds {
		l, ok := round.Result.At(at)
		if !ok {
			continue
		}
		if l.Histogram == "" {
			return cell.Quantiles{}, false, nil
		}
		parts = append(parts, l.Quantiles)
	}
	if len(parts) == 0 {
		return cell.Quantiles{}, false, nil
	}
	q, err := cell.MergeHistograms(parts...)
	if err != nil {
		return cell.Quantiles{}, false, fmt.Errorf("%s: %w", r.latency.BenchName(), err)
	}
	return q, true, nil
}

// saidQuantiles are the percentiles with marks.
var saidQuantiles = []float64{50, 75, 90, 95, 99, 99.9, 99.99, 99.999}

// stepsPerDecade is the number of points of a curve per decade.
const stepsPerDecade = 16

// distributionOf returns a row's latency as a curve over 1/(1-q), from the shortest to
// the longest. It returns nil without histograms, and an error for an unreadable
// histogram.
func distributionOf(r row, wanted cell.Boundary) ([]chart.Point, error) {
	q, ok, err := wholeLatency(r, wanted)
	if err != nil || !ok {
		return nil, err
	}
	h, err := hdrhistogram.Decode([]byte(q.Histogram))
	if err != nil {
		return nil, fmt.Errorf("%s: histogram: %w", r.latency.BenchName(), err)
	}
	count := float64(q.Count)
	var percentiles []float64
	for i := 0; ; i++ {
		left := math.Pow(10, float64(i)/stepsPerDecade)
		if left > count {
			break
		}
		percentiles = append(percentiles, 100-100/left)
	}
	for _, p := range saidQuantiles {
		// A quantile needs events beyond it.
		if 100/(100-p) <= count {
			percentiles = append(percentiles, p)
		}
	}
	slices.Sort(percentiles)
	percentiles = slices.Compact(percentiles)
	values := h.ValueAtPercentilesSlice(percentiles)
	var points []chart.Point
	for i, p := range percentiles {
		point := chart.Point{X: 100 / (100 - p), Y: max(1, min(float64(values[i]), float64(q.Max)))}
		if slices.Contains(saidQuantiles, p) {
			point.Mark = true
			point.Tip = fmt.Sprintf("p%g is %s", p, nanoseconds(point.Y))
		}
		points = append(points, point)
	}
	longest := max(1, float64(q.Max))
	points = append(points, chart.Point{X: count, Y: longest, Mark: true, Tip: fmt.Sprintf("the longest of %s is %s", Plural(int(q.Count), "event"), nanoseconds(longest))})
	return points, nil
}

// typicalTimeline returns the timeline of the round with the median p99; nil if no
// timeline was kept.
func typicalTimeline(r row, wanted cell.Boundary) []cell.Moment {
	type timed struct {
		p99     float64
		moments []cell.Moment
	}
	if r.broken() {
		return nil
	}
	var rounds []timed
	for _, round := range r.latency.Rounds {
		if len(round.Result.Timeline) == 0 {
			continue
		}
		l, _ := round.Result.At(stats.Headline(round.Result, wanted))
		rounds = append(rounds, timed{float64(l.P99), round.Result.Timeline})
	}
	if len(rounds) == 0 {
		return nil
	}
	slices.SortStableFunc(rounds, func(a, b timed) int {
		switch {
		case a.p99 < b.p99:
			return -1
		case a.p99 > b.p99:
			return 1
		}
		return 0
	})
	return rounds[(len(rounds)-1)/2].moments
}

// stagesOf returns the boundaries that are not sums of others, in pipeline order. Of
// a→b, b→c and a→c it returns the first two.
func stagesOf(latency []cell.Latency) []cell.Boundary {
	type edge struct{ from, to string }
	var edges []edge
	for _, l := range latency {
		from, to, ok := strings.Cut(string(l.Boundary), "→")
		if ok {
			edges = append(edges, edge{from, to})
		}
	}
	// reaches looks for a path of at least two edges.
	var reaches func(from, to string, steps int) bool
	reaches = func(from, to string, steps int) bool {
		if steps > len(edges) {
			return false
		}
		for _, e := range edges {
			if e.from == from && (e.to == to && steps > 0 || e.to != to && reaches(e.to, to, steps+1)) {
				return true
			}
		}
		return false
	}
	starts := map[string]bool{}
	var steps []edge
	for _, e := range edges {
		if !reaches(e.from, e.to, 0) {
			steps = append(steps, e)
			starts[e.from] = true
		}
	}
	// If edges have several starts, one that starts at the intended time is the total,
	// not a stage.
	if len(starts) > 1 {
		steps = slices.DeleteFunc(steps, func(e edge) bool { return e.from == "intended" && e.to != "released" })
	}
	var out []cell.Boundary
	for _, e := range steps {
		out = append(out, cell.Boundary(e.from+"→"+e.to))
	}
	return out
}

// stages draws the share of each stage in an event's latency.
func (g group) stages(id, rate, choice string) (figure, bool) {
	c := chart.Shares{
		Name:        "Where the time goes " + rateTitle(rate),
		Description: "The share of each stage in the mean time that an event takes, a bar for each variant.",
		Unit:        "mean",
		Format:      nanoseconds,
	}
	for _, r := range g.rows {
		if r.broken() {
			continue
		}
		for _, b := range stagesOf(r.latency.Latency) {
			if !slices.Contains(c.Parts, string(b)) {
				c.Parts = append(c.Parts, string(b))
			}
		}
	}
	if len(c.Parts) < 2 {
		return figure{}, false
	}
	for _, r := range g.rows {
		s := chart.Share{Name: r.variant(), Style: g.styles[r.variant()], Values: make([]float64, len(c.Parts)), Note: r.verdict(0)}
		if !r.broken() {
			sum := 0.0
			for i, b := range c.Parts {
				l, _ := cell.Result{Latency: r.latency.Latency}.At(cell.Boundary(b))
				s.Values[i] = float64(l.Mean)
				sum += s.Values[i]
			}
			if sum > 0 {
				s.Note = nanoseconds(sum)
			}
		}
		c.Rows = append(c.Rows, s)
	}
	return draw(id+"-stages", "stages", "Where the time goes, "+rateTitle(rate),
		"Shares of the mean, which stands at the right. A stage's mean is of the events that passed it: what was coalesced away before it is not among them."+unpacedCaution(rate), choice, c)
}
