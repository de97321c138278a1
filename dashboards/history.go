package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// history answers: since which commit is it slower?
func history() grafana.Dashboard {
	s := played()
	commits := labelValues(ours().of(metric.EventsPerSecond), "commit")
	variables := append(playedPickers(),
		grafana.Variable{Name: "new", Label: "new commit", Description: "The commit that is judged", Query: commits, Descending: true},
		grafana.Variable{Name: "old", Label: "old commit", Description: "The commit that it is compared with", Query: commits},
	)
	cellOf := "family, variant, delivery, pipeline, storm, source, rate"
	name := "{{family}}/{{variant}} {{delivery}}, {{storm}}, {{pipeline}} ({{source}}), pace {{rate}}"
	cellLabels := []string{metric.Commit, metric.Family, metric.Variant, metric.Delivery, metric.Pipeline, metric.Storm, metric.Source, metric.Rate}
	last := func(s selector, m metric.Metric, by string) string {
		return fmt.Sprintf("avg by (%s) (last_over_time(%s[$__range]))", by, s.of(m))
	}
	ratio := func(m metric.Metric, match ...string) string {
		of := func(commit string) string {
			c := s.among("commit", commit)
			if len(match) == 2 {
				c = c.equal(match[0], match[1])
			}
			return last(c, m, cellOf)
		}
		return of("new") + " / " + of("old")
	}
	p99 := s.equal("quantile", "0.99")
	bar := func(warnFrom float64, better string) func(*grafana.Panel) {
		return func(p *grafana.Panel) {
			p.Kind, p.Calcs = grafana.BarGauge, nil
			p.Queries[0].Instant = true
			if better == "more" {
				p.Thresholds = []grafana.Threshold{{From: -1, Color: alarm}, {From: warnFrom, Color: fine}}
			} else {
				p.Thresholds = []grafana.Threshold{{From: warnFrom, Color: alarm}}
			}
		}
	}
	d := page(historyUID, "watchlab / Regression history",
		"Medians of finished cells, by the commit that was measured. What may be believed of a difference says `watchlab compare` and `watchlab gate`.",
		variables, s,
		grafana.Row{Title: "$new against $old", Panels: []grafana.Panel{
			lines("Throughput, $new over $old", "Medians of finished cells: below 0.95 is red. Machines and neighbours differ from run to run; a gate that counts noise is `watchlab gate`.", "none", half,
				one(ratio(metric.EventsPerSecond), name), bar(0.95, "more")),
			lines("99th percentile, $new over $old", "Medians over rounds of finished cells' 99th percentile: above 1.05 is red.", "none", half,
				one(ratio(metric.LatencyQuantile, "quantile", "0.99"), name), bar(1.05, "less")),
		}},
		grafana.Row{Title: "Over time", Panels: []grafana.Panel{
			lines("Throughput by commit", "Medians of finished cells, when they were finished.", "cps", wide,
				one(maximum(s.of(metric.EventsPerSecond), cellLabels...), name+" @ {{commit}}"), points),
			lines("99th percentile by commit", "Medians over rounds of finished cells' 99th percentile.", "s", wide,
				one(maximum(p99.of(metric.LatencyQuantile), cellLabels...), name+" @ {{commit}}"), points, log),
		}},
		grafana.Row{Title: "Figures", Panels: []grafana.Panel{{
			Kind: grafana.Table, Title: "All commits", Unit: "none", Width: wide, Height: tall + 4, Decimals: auto,
			Description: "The last figures of each cell for each commit in the time range.",
			Queries: []grafana.Query{
				{Expr: last(s, metric.EventsPerSecond, "commit, "+cellOf), Instant: true},
				{Expr: last(s.equal("quantile", "0.5"), metric.LatencyQuantile, "commit, "+cellOf), Instant: true},
				{Expr: last(p99, metric.LatencyQuantile, "commit, "+cellOf), Instant: true},
			},
			Columns: []grafana.Column{
				{Field: "commit", Name: "commit"}, {Field: "family", Name: "family"}, {Field: "variant", Name: "variant"}, {Field: "delivery", Name: "delivery"},
				{Field: "pipeline", Name: "pipeline"}, {Field: "storm", Name: "storm"}, {Field: "source", Name: "source"}, {Field: "rate", Name: "pace"},
				{Field: "Value #A", Name: "events/s", Unit: "cps"}, {Field: "Value #B", Name: "p50", Unit: "s", Decimals: 6}, {Field: "Value #C", Name: "p99", Unit: "s", Decimals: 6},
			},
		}}},
	)
	d.From = "now-7d"
	d.Refresh = "1m"
	return d
}
