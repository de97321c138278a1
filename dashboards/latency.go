package dashboards

import (
	"watchlab/bench/telemetry/metric"
)

// latency shows the time that events spend between stages.
func latency() dashboard {
	s := played()
	variables := append(playedPickers(),
		variable{Name: "boundary", Label: "boundary", Description: "The two stages of the second heat map and of the lines by variant", Query: histogramValues(ours().among("pipeline", "pipeline"), metric.StageLatency, metric.Boundary)},
		variable{Name: "from", Label: "from", Description: "The start of end-to-end latency: intended includes the generator's lag, released does not. Unpaced cells have no intended time", Query: histogramValues(ours().among("pipeline", "pipeline"), metric.EndToEndLatency, metric.From)},
	)
	whole, stage := s.among("from", "from"), s.among("boundary", "boundary")
	variant := "{{family}}/{{variant}} {{delivery}}"
	quantiles := func(s selector, m metric.Metric) []query {
		return []query{
			{Expr: s.quantile(0.5, m, over), Legend: "p50"},
			{Expr: s.quantile(0.9, m, over), Legend: "p90"},
			{Expr: s.quantile(0.99, m, over), Legend: "p99", Exemplars: true},
			{Expr: s.quantile(0.999, m, over), Legend: "p99.9"},
		}
	}
	return page(latencyUID, "watchlab / Stage latency",
		"Time that events spend between stages, with links to traces of single events.",
		variables, s,
		row{Title: "End to end, from $from", Panels: []panel{
			heatMap("End to end", "Events per second by end-to-end latency, from native histograms if Prometheus has them, else from classic buckets. Dots are exemplars; with tracing they link to the trace of an event.", "s", half, whole, metric.EndToEndLatency),
			lines("End to end, percentiles", "Quantiles over all selected variants, estimated from histograms.", "s", half, quantiles(whole, metric.EndToEndLatency), log, sized(half, tall+2), above(0.1, 1)),
			lines("End to end by variant, 99th percentile", "99th percentile of the end-to-end latency of each variant.", "s", half,
				[]query{{Expr: whole.quantile(0.99, metric.EndToEndLatency, over, byVariant...), Legend: variant, Exemplars: true}}, log, leads(compareUID, "Compare variants")),
			lines("Observed events", "Events per second in the histograms. A 99.9th percentile needs more than a thousand events.", eventsPerSecond, half,
				one(whole.observations(metric.EndToEndLatency, over, byVariant...), variant)),
		}},
		row{Title: "Stage by stage", Panels: []panel{
			lines("Mean time by stage", "Mean time between two stages. Boundaries can overlap.", "s", half,
				one(s.mean(metric.StageLatency, over, "boundary"), "{{boundary}}"), log),
			lines("99th percentile by stage", "99th percentile of each boundary. They do not add up to the end-to-end percentile.", "s", half,
				[]query{{Expr: s.quantile(0.99, metric.StageLatency, over, "boundary"), Legend: "{{boundary}}", Exemplars: true}}, log),
			heatMap("$boundary", "Events per second by the time between the two stages.", "s", half, stage, metric.StageLatency),
			lines("$boundary, percentiles", "Quantiles of the boundary over all selected variants.", "s", half, quantiles(stage, metric.StageLatency), log, sized(half, tall+2)),
			lines("$boundary by variant, 99th percentile", "99th percentile of the boundary for each variant.", "s", half,
				one(stage.quantile(0.99, metric.StageLatency, over, byVariant...), variant), log),
			lines("$boundary by variant, mean", "Mean time of the boundary for each variant.", "s", half,
				one(stage.mean(metric.StageLatency, over, byVariant...), variant), log),
		}},
	)
}
