package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// cluster answers: are the pods of a load Job all at work, and what do they make
// together? A pod is an instance here: where Prometheus knows its name, that is
// shown, too.
func cluster() grafana.Dashboard {
	s, p := played(), process()
	pod := "{{pod}} {{instance}}"
	by := []string{"instance", "pod"}
	released, handled := s.equal("stage", metric.Released), s.equal("stage", metric.Handled)
	return page(clusterUID, "watchlab / Load Jobs in a cluster",
		"Many pods that make load at once: together, and each for itself, to find the one that is slow.",
		playedPickers(), s,
		grafana.Row{Title: "Together", Panels: []grafana.Panel{
			number("Pods", "Processes that export a run.", "short", grafana.Query{Expr: "count(count by (instance) (" + ours().of(metric.Phase) + "))", Legend: "pods"}),
			number("Released by all", "Events a second of all pods.", "cps", grafana.Query{Expr: sum(released.rate(metric.Events)), Legend: "released"}),
			number("Handled by all", "Events a second of all pods.", "cps", grafana.Query{Expr: sum(handled.rate(metric.Events)), Legend: "handled"}),
			number("99th percentile of all", "Of all pods' events together.", "s", grafana.Query{Expr: s.endToEnd(0.99, over), Legend: "p99"}, above(0.1, 1)),
			number("Late share", "Share of releases beyond their budget. Above 1 % a cell is invalid: use more pods, not a faster pace.", "percentunit",
				grafana.Query{Expr: fmt.Sprintf("%s / %s", sum(s.rate(metric.GeneratorLate)), sum(released.rate(metric.Events))), Legend: "late"}, above(lateShare/2, lateShare)),
			number("Least progress", "Of the pod that is the furthest behind.", "percentunit", grafana.Query{Expr: minimum(ours().of(metric.Progress)), Legend: "progress"}),
		}},
		grafana.Row{Title: "In total", Panels: []grafana.Panel{
			lines("Events by stage, all pods", "Events that pass each stage a second.", "cps", half, one(sum(s.rate(metric.Events), "stage"), "{{stage}}")),
			lines("End to end, all pods", "Quantiles of all pods' events together.", "s", half, []grafana.Query{
				{Expr: s.endToEnd(0.5, over), Legend: "p50"},
				{Expr: s.endToEnd(0.99, over), Legend: "p99", Exemplars: true},
			}, log),
		}},
		grafana.Row{Title: "Pod by pod", Panels: []grafana.Panel{
			lines("Released by pod", "Stacked, so that the top line is the total.", "cps", half, one(sum(released.rate(metric.Events), by...), pod), stacked),
			lines("Handled by pod", "Stacked, so that the top line is the total.", "cps", half, one(sum(handled.rate(metric.Events), by...), pod), stacked),
			lines("99th percentile by pod", "A pod that stands out is on a node that stands out.", "s", half, one(s.endToEnd(0.99, over, by...), pod), log),
			lines("Generator lag by pod, 99th percentile", "How much later than meant events are released.", "s", half, one(s.quantile(0.99, metric.GeneratorLag, over, by...), pod), log),
			lines("CPU by pod", "Cores that each process uses.", "none", third, one(sum(p.rate(cpuSeconds), by...), pod)),
			lines("Memory by pod", "Resident, as the kernel counts.", "bytes", third, one(sum(p.of(residentBytes), by...), pod)),
			lines("Watch errors by pod", "Watches that ended or were refused, a second. none: there were none.", "cps", third,
				one(orZero(sum(s.rate(metric.WatchErrors), by...), "pod"), pod)),
			{
				Kind: grafana.Table, Title: "Each pod now", Unit: "none", Width: wide, Height: tall, Decimals: auto,
				Description: "What each pod makes now.",
				Queries: []grafana.Query{
					{Expr: sum(released.rate(metric.Events), by...), Instant: true},
					{Expr: sum(handled.rate(metric.Events), by...), Instant: true},
					{Expr: sum(s.of(metric.QueueDepth), by...), Instant: true},
					{Expr: minimum(ours().of(metric.Progress), by...), Instant: true},
				},
				Columns: []grafana.Column{
					{Field: "pod", Name: "pod"}, {Field: "instance", Name: "instance"},
					{Field: "Value #A", Name: "released/s", Unit: "cps"}, {Field: "Value #B", Name: "handled/s", Unit: "cps"},
					{Field: "Value #C", Name: "waiting", Unit: "short"}, {Field: "Value #D", Name: "progress", Unit: "percentunit"},
				},
			},
		}},
	)
}
