package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// alike has the labels that two compared cells share: all but the variant. The delivery
// is one of them, as variants of different deliveries give different guarantees.
const alike = "family, delivery, pipeline, storm, source, rate"

// compare shows two variants of a family and their ratios.
func compare() dashboard {
	family := variable{Name: "family", Label: "family", Description: "The family of both variants", Query: labelValues(ours().of(metric.Events), "family")}
	offered := labelValues(ours().among("family", "family").of(metric.Events), "variant")
	variables := []variable{
		pickRun(), pickPipeline(), pickStorm(), family,
		{Name: "left", Label: "left", Description: "The variant on the left, the numerator of the ratios", Query: offered, Descending: true},
		{Name: "right", Label: "right", Description: "The variant on the right, the denominator", Query: offered},
	}
	base := ours().among("pipeline", "pipeline").among("storm", "storm").among("family", "family")
	left, right := base.among("variant", "left"), base.among("variant", "right")

	side := func(s selector, name string) []panel {
		title := func(what string) string { return fmt.Sprintf("$%s: %s", name, what) }
		handled := s.equal("stage", metric.Handled)
		return []panel{
			lines(title("handled"), "Events per second through the whole pipeline, while the variant is played.", eventsPerSecond, half,
				one(sum(handled.rate(metric.Events), "delivery", "storm"), "{{delivery}} {{storm}}")),
			lines(title("end to end"), "Quantiles of the end-to-end latency, estimated from histograms.", "s", half,
				[]query{
					{Expr: s.endToEnd(0.5, over), Legend: "p50"},
					{Expr: s.endToEnd(0.99, over), Legend: "p99", Exemplars: true},
					{Expr: s.endToEnd(0.999, over), Legend: "p99.9"},
				}, log),
			lines(title("queue depth"), "Events in the variant's queue.", "short", half, one(sum(s.of(metric.QueueDepth), "delivery", "storm"), "{{delivery}} {{storm}}")),
			lines(title("batch size"), "Mean number of deltas in a batch.", "short", half, one(s.mean(metric.BatchSize, over, "delivery", "storm"), "{{delivery}} {{storm}}")),
		}
	}
	// Panels alternate, to place equal ones side by side.
	var sides []panel
	l, r := side(left, "left"), side(right, "right")
	for i := range l {
		sides = append(sides, l[i], r[i])
	}

	// finished selects the figures of finished cells, one for each set of equal labels.
	finished := func(s selector, m metric.Metric) string {
		return fmt.Sprintf("avg by (%s) (last_over_time(%s[$__range]))", alike, s.of(m))
	}
	throughput := finished(left, metric.EventsPerSecond) + " / " + finished(right, metric.EventsPerSecond)
	// Latencies can be compared before cells finish, over all observations of the time range.
	observed := func(s selector, q float64) string {
		return "(" + s.endToEnd(q, span, "family", "delivery", "pipeline", "storm", "source") + ")"
	}
	experiment := "{{storm}}, {{pipeline}} ({{source}}), {{delivery}} {{rate}}"
	together := "{{storm}}, {{pipeline}} ({{source}}), {{delivery}}" // all paces
	more := coloured(threshold{0.95, "blue"}, threshold{1.05, fine})
	longer := coloured(threshold{0.95, "blue"}, threshold{1.05, warn})
	return page(compareUID, "watchlab / Compare variants",
		"Two variants of a family side by side, and their ratios for equal deliveries.",
		variables, base,
		row{Title: "$left over $right", Panels: []panel{
			lines("Throughput, $left over $right", "Ratio of the median events per second of finished cells: 2 is twice as many. One bar for each pair of cells that differ in the variant only. Blue bars (0.95 to 1.05) show no relevant difference; the run's report has the significance.", "none", third,
				one(throughput, experiment), bars, more),
			lines("Median latency, $left over $right", "Ratio of the median end-to-end latencies in the time range. Below 1 the left variant is faster.", "none", third,
				one(observed(left, 0.5)+" / "+observed(right, 0.5), together), bars, longer),
			lines("99th percentile, $left over $right", "Ratio of the 99th percentiles in the time range. Both are estimates within a bucket: ignore small differences.", "none", third,
				one(observed(left, 0.99)+" / "+observed(right, 0.99), together), bars, longer),
		}},
		row{Title: "Side by side", Panels: sides},
		row{Title: "All variants of the family", Panels: []panel{
			lines("Throughput of finished cells", "Median events per second of finished cells. Do not compare bars of different deliveries.", eventsPerSecond, half,
				one(fmt.Sprintf("avg by (%s, variant) (last_over_time(%s[$__range]))", alike, base.of(metric.EventsPerSecond)), "{{variant}}, {{delivery}}, {{storm}}, {{pipeline}}, pace {{rate}}"),
				bars),
			{
				Kind: table, Title: "Verdicts of cells", Unit: "none", Width: half, Height: tall,
				Description: "Present verdict of each variant's cells, with its cause. Figures of invalid cells do not count.",
				Queries:     []query{{Expr: maximum(base.of(metric.Verdict), "variant", "delivery", "pipeline", "storm", "status", "cause") + " == 1", Instant: true}},
				Columns:     append(labels("variant", "delivery", "pipeline", "storm"), column{Field: "status", Name: "verdict"}, column{Field: "cause", Name: "cause"}),
			},
		}},
	)
}
