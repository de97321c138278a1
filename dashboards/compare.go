package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// alike are the labels by which two cells are of the same experiment, save for
// the variant. The delivery is one of them: a ratio across deliveries would be of
// unequal guarantees.
const alike = "family, delivery, pipeline, storm, source, rate"

// compare answers: which of two variants does better here, and by how much?
func compare() grafana.Dashboard {
	family := grafana.Variable{Name: "family", Label: "family", Description: "The family of both variants", Query: labelValues(ours().of(metric.Events), "family")}
	offered := labelValues(ours().among("family", "family").of(metric.Events), "variant")
	variables := []grafana.Variable{
		pickRun(), pickPipeline(), pickStorm(), family,
		{Name: "left", Label: "left", Description: "The variant on the left; ratios are of it to the other", Query: offered, Descending: true},
		{Name: "right", Label: "right", Description: "The variant on the right", Query: offered},
	}
	base := ours().among("pipeline", "pipeline").among("storm", "storm").among("family", "family")
	left, right := base.among("variant", "left"), base.among("variant", "right")

	side := func(s selector, name string) []grafana.Panel {
		title := func(what string) string { return fmt.Sprintf("$%s: %s", name, what) }
		handled := s.equal("stage", metric.Handled)
		return []grafana.Panel{
			lines(title("handled"), "Events that it handles a second while it is being played.", "cps", half,
				one(sum(handled.rate(metric.Events), "delivery", "storm"), "{{delivery}} {{storm}}")),
			lines(title("end to end"), "Quantiles of the time until an event was handled, estimated from histograms.", "s", half,
				[]grafana.Query{
					{Expr: s.endToEnd(0.5, over), Legend: "p50"},
					{Expr: s.endToEnd(0.99, over), Legend: "p99", Exemplars: true},
					{Expr: s.endToEnd(0.999, over), Legend: "p99.9"},
				}, log),
			lines(title("waiting"), "Events in its queue.", "short", half, one(sum(s.of(metric.QueueDepth), "delivery", "storm"), "{{delivery}} {{storm}}")),
			lines(title("batch size"), "Deltas that it hands over at once: the mean.", "short", half, one(s.mean(metric.BatchSize, over, "delivery", "storm"), "{{delivery}} {{storm}}")),
		}
	}
	// Panels alternate, so that what is compared stands side by side.
	var sides []grafana.Panel
	l, r := side(left, "left"), side(right, "right")
	for i := range l {
		sides = append(sides, l[i], r[i])
	}

	// finished is what finished cells measured, experiment by experiment.
	finished := func(s selector, m metric.Metric) string {
		return fmt.Sprintf("avg by (%s) (last_over_time(%s[$__range]))", alike, s.of(m))
	}
	throughput := finished(left, metric.EventsPerSecond) + " / " + finished(right, metric.EventsPerSecond)
	// During a run, latencies can be compared before cells are finished, by all that
	// was observed in the time range.
	observed := func(s selector, q float64) string {
		return "(" + s.endToEnd(q, span, "family", "delivery", "pipeline", "storm", "source") + ")"
	}
	experiment := "{{storm}}, {{pipeline}} ({{source}}), {{delivery}} {{rate}}"
	together := "{{storm}}, {{pipeline}} ({{source}}), {{delivery}}" // all paces of them
	faster := func(p *grafana.Panel) {
		p.Thresholds = []grafana.Threshold{{From: 0.95, Color: "blue"}, {From: 1.05, Color: fine}}
		p.Kind, p.Calcs, p.FromZero = grafana.BarGauge, nil, true
		p.Queries[0].Instant = true
	}
	shorter := func(p *grafana.Panel) {
		p.Thresholds = []grafana.Threshold{{From: 0.95, Color: "blue"}, {From: 1.05, Color: warn}}
		p.Kind, p.Calcs, p.FromZero = grafana.BarGauge, nil, true
		p.Queries[0].Instant = true
	}
	return page(compareUID, "watchlab / Compare variants",
		"Two variants of a family, side by side, and their ratios where they promise the same.",
		variables, base,
		grafana.Row{Title: "$left over $right", Panels: []grafana.Panel{
			lines("Throughput, $left over $right", "Events a second of finished cells, median over median: 2 is twice as many. One bar for each experiment in which both were played with the same delivery; where their deliveries differ there is none, because their guarantees do. Between 0.95 and 1.05 (blue) it is no difference to look at; whether one is significant says the run's report.", "none", third,
				one(throughput, experiment), faster),
			lines("Median latency, $left over $right", "Medians of the end-to-end latency of all that was observed in the time range: below 1, the left one is faster.", "none", third,
				one(observed(left, 0.5)+" / "+observed(right, 0.5), together), shorter),
			lines("99th percentile, $left over $right", "As beside, of the 99th percentiles. Both are estimates within a bucket, so that small differences say nothing.", "none", third,
				one(observed(left, 0.99)+" / "+observed(right, 0.99), together), shorter),
		}},
		grafana.Row{Title: "Side by side", Panels: sides},
		grafana.Row{Title: "All variants of the family", Panels: []grafana.Panel{
			lines("Throughput of finished cells", "Medians of finished cells, in events a second. Deliveries are apart: they promise different things.", "cps", half,
				[]grafana.Query{{Expr: fmt.Sprintf("avg by (%s, variant) (last_over_time(%s[$__range]))", alike, base.of(metric.EventsPerSecond)), Legend: "{{variant}}, {{delivery}}, {{storm}}, {{pipeline}}, pace {{rate}}", Instant: true}},
				func(p *grafana.Panel) { p.Kind, p.Calcs = grafana.BarGauge, nil }),
			{
				Kind: grafana.Table, Title: "Verdicts of cells", Unit: "none", Width: half, Height: tall, Decimals: 0,
				Description: "The present verdict of each variant's cells. Of invalid ones no figures count; the cause says why.",
				Queries:     []grafana.Query{{Expr: maximum(base.of(metric.Verdict), "variant", "delivery", "pipeline", "storm", "status", "cause") + " == 1", Instant: true}},
				Columns: []grafana.Column{
					{Field: "variant", Name: "variant"}, {Field: "delivery", Name: "delivery"}, {Field: "pipeline", Name: "pipeline"},
					{Field: "storm", Name: "storm"}, {Field: "status", Name: "verdict"}, {Field: "cause", Name: "cause"},
				},
			},
		}},
	)
}
