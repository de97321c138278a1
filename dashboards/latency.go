package dashboards

import (
	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// latency answers: where does an event's time go?
func latency() grafana.Dashboard {
	s := played()
	variables := append(playedPickers(),
		grafana.Variable{Name: "boundary", Label: "boundary", Description: "From which stage to which, for the second heat map and the lines by variant", Query: histogramValues(ours().among("pipeline", "pipeline"), metric.StageLatency, metric.Boundary)},
		grafana.Variable{Name: "from", Label: "from", Description: "Where end-to-end latency begins: intended counts what an event waited for the generator, too; released doesn't. Unpaced cells have no intended time", Query: histogramValues(ours().among("pipeline", "pipeline"), metric.EndToEndLatency, metric.From)},
	)
	whole, stage := s.among("from", "from"), s.among("boundary", "boundary")
	variant := "{{family}}/{{variant}} {{delivery}}"
	quantiles := func(s selector, m metric.Metric) []grafana.Query {
		return []grafana.Query{
			{Expr: s.quantile(0.5, m, over), Legend: "p50"},
			{Expr: s.quantile(0.9, m, over), Legend: "p90"},
			{Expr: s.quantile(0.99, m, over), Legend: "p99", Exemplars: true},
			{Expr: s.quantile(0.999, m, over), Legend: "p99.9"},
		}
	}
	return page(latencyUID, "watchlab / Stage latency",
		"Where the time of an event goes, stage by stage, with traces of single events where tracing is on.",
		variables, s,
		grafana.Row{Title: "End to end, from $from", Panels: []grafana.Panel{
			heatMap("End to end", "How long events took until they were handled: each column is a moment, each cell how many events a second took that long. From native histograms where Prometheus has them, else from classic buckets. Dots are exemplars; with tracing on, they lead to the trace of an event.", "s", half, whole, metric.EndToEndLatency),
			lines("End to end, percentiles", "Quantiles over all that is selected, estimated from the histograms beside.", "s", half, quantiles(whole, metric.EndToEndLatency), log, sized(half, tall+2), above(0.1, 1)),
			lines("End to end by variant, 99th percentile", "One event in a hundred took longer.", "s", half,
				[]grafana.Query{{Expr: whole.quantile(0.99, metric.EndToEndLatency, over, byVariant...), Legend: variant, Exemplars: true}}, log, leads(compareUID, "Compare variants")),
			lines("Observed events", "How many events a second the quantiles are made of. A 99.9th percentile of fewer than a thousand says little.", "cps", half,
				one(whole.observations(metric.EndToEndLatency, over, byVariant...), variant)),
		}},
		grafana.Row{Title: "Stage by stage", Panels: []grafana.Panel{
			lines("Mean time by stage", "How long an event spends between two stages, on average. Boundaries overlap where one spans others.", "s", half,
				one(s.mean(metric.StageLatency, over, "boundary"), "{{boundary}}"), log),
			lines("99th percentile by stage", "The slowest hundredth of each stage. These don't add up to that of the whole.", "s", half,
				[]grafana.Query{{Expr: s.quantile(0.99, metric.StageLatency, over, "boundary"), Legend: "{{boundary}}", Exemplars: true}}, log),
			heatMap("$boundary", "As above, for one boundary.", "s", half, stage, metric.StageLatency),
			lines("$boundary, percentiles", "Quantiles of one boundary over all that is selected.", "s", half, quantiles(stage, metric.StageLatency), log, sized(half, tall+2)),
			lines("$boundary by variant, 99th percentile", "One boundary, variant against variant.", "s", half,
				one(stage.quantile(0.99, metric.StageLatency, over, byVariant...), variant), log),
			lines("$boundary by variant, mean", "One boundary, variant against variant.", "s", half,
				one(stage.mean(metric.StageLatency, over, byVariant...), variant), log),
		}},
	)
}
