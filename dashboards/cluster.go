package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// cluster shows the pods of a load Job, in total and one by one. A pod is an instance
// here; the legend adds its name if Prometheus knows it.
func cluster() dashboard {
	s, p := played(), process()
	pod := "{{pod}} {{instance}}"
	by := []string{"instance", "pod"}
	released, handled := s.equal("stage", metric.Released), s.equal("stage", metric.Handled)
	return page(clusterUID, "watchlab / Load Jobs in a cluster",
		"The pods of a load Job, in total and one by one, to find a slow one.",
		playedPickers(), s,
		row{Title: "All pods now", Panels: []panel{
			number("Pods", "Processes that export a run.", "short", query{Expr: "count(count by (instance) (" + ours().of(metric.Phase) + "))", Legend: "pods"}),
			number("Released by all", "Events per second that the generators of all pods release.", eventsPerSecond, query{Expr: sum(released.rate(metric.Events)), Legend: "released"}),
			number("Handled by all", "Events per second through the whole pipeline, all pods.", eventsPerSecond, query{Expr: sum(handled.rate(metric.Events)), Legend: "handled"}),
			number("99th percentile of all", "End-to-end latency over the events of all pods.", "s", query{Expr: s.endToEnd(0.99, over), Legend: "p99"}, above(0.1, 1)),
			number("Late share", "Share of releases beyond the lag budget. Above 1 % a cell is invalid: use more pods, not a faster pace.", "percentunit",
				query{Expr: fmt.Sprintf("%s / %s", sum(s.rate(metric.GeneratorLate)), sum(released.rate(metric.Events))), Legend: "late"}, above(lateShare/2, lateShare)),
			number("Least progress", "Progress of the slowest pod.", "percentunit", query{Expr: minimum(ours().of(metric.Progress)), Legend: "progress"}),
		}},
		row{Title: "All pods over time", Panels: []panel{
			lines("Events by stage, all pods", "Events per second that reach each stage.", eventsPerSecond, half, one(sum(s.rate(metric.Events), "stage"), "{{stage}}")),
			lines("End to end, all pods", "Quantiles over the events of all pods.", "s", half, []query{
				{Expr: s.endToEnd(0.5, over), Legend: "p50"},
				{Expr: s.endToEnd(0.99, over), Legend: "p99", Exemplars: true},
			}, log),
		}},
		row{Title: "Pod by pod", Panels: []panel{
			lines("Released by pod", "Stacked: the top line is the total.", eventsPerSecond, half, one(sum(released.rate(metric.Events), by...), pod), stacked),
			lines("Handled by pod", "Stacked: the top line is the total.", eventsPerSecond, half, one(sum(handled.rate(metric.Events), by...), pod), stacked),
			lines("99th percentile by pod", "A single slow pod points to its node.", "s", half, one(s.endToEnd(0.99, over, by...), pod), log),
			lines("Generator lag by pod, 99th percentile", "Time between the intended and the actual release.", "s", half, one(s.quantile(0.99, metric.GeneratorLag, over, by...), pod), log),
			lines("CPU by pod", "CPU cores in use by each process.", "none", third, one(sum(p.rate(cpuSeconds), by...), pod)),
			lines("Memory by pod", "Resident memory of each process.", "bytes", third, one(sum(p.of(residentBytes), by...), pod)),
			lines("Watch errors by pod", "Watches that ended or were refused, per second. The series none stands for zero.", "count:errors/s", third,
				one(orZero(sum(s.rate(metric.WatchErrors), by...), "pod"), pod)),
			{
				Kind: table, Title: "Each pod now", Unit: "none", Width: wide, Height: tall,
				Description: "Present rates, queue depth and progress of each pod.",
				Queries: []query{
					{Expr: sum(released.rate(metric.Events), by...), Instant: true},
					{Expr: sum(handled.rate(metric.Events), by...), Instant: true},
					{Expr: sum(s.of(metric.QueueDepth), by...), Instant: true},
					{Expr: minimum(ours().of(metric.Progress), by...), Instant: true},
				},
				Columns: []column{
					{Field: "pod", Name: "pod"}, {Field: "instance", Name: "instance"},
					{Field: "Value #A", Name: "released/s", Unit: eventsPerSecond}, {Field: "Value #B", Name: "handled/s", Unit: eventsPerSecond},
					{Field: "Value #C", Name: "queue depth", Unit: "short"}, {Field: "Value #D", Name: "progress", Unit: "percentunit"},
				},
			},
		}},
	)
}
