package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// history shows the figures of finished cells by commit.
func history() dashboard {
	s := played()
	commits := labelValues(ours().of(metric.EventsPerSecond), "commit")
	variables := append(playedPickers(),
		variable{Name: "new", Label: "new commit", Description: "The commit under test", Query: commits, Descending: true},
		variable{Name: "old", Label: "old commit", Description: "The baseline", Query: commits},
	)
	cellOf := "family, variant, delivery, pipeline, storm, source, rate"
	name := "{{family}}/{{variant}} {{delivery}}, {{storm}}, {{pipeline}} ({{source}}), pace {{rate}}"
	cellLabels := []string{metric.Commit, metric.Family, metric.Variant, metric.Delivery, metric.Pipeline, metric.Storm, metric.Source, metric.Rate}
	last := func(s selector, m metric.Metric, by string) string {
		return fmt.Sprintf("avg by (%s) (last_over_time(%s[$__range]))", by, s.of(m))
	}
	ratio := func(m metric.Metric, match ...string) string {
		at := func(commit string) string {
			c := s.among("commit", commit)
			if len(match) == 2 {
				c = c.equal(match[0], match[1])
			}
			return last(c, m, cellOf)
		}
		return at("new") + " / " + at("old")
	}
	p99 := s.equal("quantile", "0.99")
	d := page(historyUID, "watchlab / Regression history",
		"Medians of finished cells by commit. `watchlab compare` and `watchlab gate` test differences for significance.",
		variables, s,
		row{Title: "$new against $old", Panels: []panel{
			lines("Throughput, $new over $old", "Ratio of the medians of finished cells; below 0.95 is red. Runs on shared machines differ: `watchlab gate` takes the noise into account.", "none", half,
				one(ratio(metric.EventsPerSecond), name), bars, coloured(threshold{-1, alarm}, threshold{0.95, fine})),
			lines("99th percentile, $new over $old", "Ratio of the 99th percentiles of finished cells over their rounds; above 1.05 is red.", "none", half,
				one(ratio(metric.LatencyQuantile, "quantile", "0.99"), name), bars, coloured(threshold{1.05, alarm})),
		}},
		row{Title: "Over time", Panels: []panel{
			lines("Throughput by commit", "Median events per second of finished cells, at the time they finished.", eventsPerSecond, wide,
				one(maximum(s.of(metric.EventsPerSecond), cellLabels...), name+" @ {{commit}}"), points),
			lines("99th percentile by commit", "99th percentile of finished cells over their rounds, at the time they finished.", "s", wide,
				one(maximum(p99.of(metric.LatencyQuantile), cellLabels...), name+" @ {{commit}}"), points, log),
		}},
		row{Title: "Figures", Panels: []panel{{
			Kind: table, Title: "All commits", Unit: "none", Width: wide, Height: tall + 4,
			Description: "The latest figures of each cell and commit in the time range.",
			Queries: []query{
				{Expr: last(s, metric.EventsPerSecond, "commit, "+cellOf), Instant: true},
				{Expr: last(s.equal("quantile", "0.5"), metric.LatencyQuantile, "commit, "+cellOf), Instant: true},
				{Expr: last(p99, metric.LatencyQuantile, "commit, "+cellOf), Instant: true},
			},
			Columns: append(labels("commit", "family", "variant", "delivery", "pipeline", "storm", "source"), []column{
				{Field: "rate", Name: "pace"}, {Field: "Value #A", Name: "events/s", Unit: eventsPerSecond},
				{Field: "Value #B", Name: "p50", Unit: "s", Decimals: 6}, {Field: "Value #C", Name: "p99", Unit: "s", Decimals: 6},
			}...),
		}}},
	)
	d.From, d.Refresh = "now-7d", "1m"
	return d
}
