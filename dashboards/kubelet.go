package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// kubelet answers: does the kubelet's pod-config merge keep up?
func kubelet() grafana.Dashboard {
	s := ours().equal("pipeline", "kubelet").among("storm", "storm").among("variant", "variant")
	variables := []grafana.Variable{
		pickRun(),
		{Name: "storm", Label: "storm", Description: "The storm that is played", Query: labelValues(ours().equal("pipeline", "kubelet").of(metric.Events), "storm"), Multi: true, AllValue: ".+"},
		{Name: "variant", Label: "variant", Description: "The merge", Query: labelValues(ours().equal("pipeline", "kubelet").of(metric.Events), "variant"), Multi: true, AllValue: ".+"},
	}
	released, handled := s.equal("stage", metric.Released), s.equal("stage", metric.Handled)
	boundary := func(b string) selector { return s.equal("boundary", b) }
	return page(kubeletUID, "watchlab / Kubelet pipeline",
		"Sources, mux, merge, configCh and sync loop: the kubelet's pod-config pipeline under a storm.",
		variables, s,
		grafana.Row{Title: "Through the pipeline", Panels: []grafana.Panel{
			number("Released", "Pod events that the generator releases a second.", "cps", grafana.Query{Expr: sum(released.rate(metric.Events)), Legend: "released"}),
			number("Handled", "Pod events that the sync loop has seen a second.", "cps", grafana.Query{Expr: sum(handled.rate(metric.Events)), Legend: "handled"}),
			number("99th percentile", "Until the sync loop has seen an event. A kubelet's own pace is seconds; 100 ms is where it begins to be felt.", "s",
				grafana.Query{Expr: s.endToEnd(0.99, over), Legend: "p99"}, above(0.1, 1), leads(latencyUID, "Stage latency")),
			number("Waiting", "Notifications that the sync loop has not received yet.", "short", grafana.Query{Expr: sum(s.of(metric.QueueDepth)), Legend: "waiting"}),
			number("Handed over for an update", "What the merge hands over for each update that goes in. Below 1, updates had nothing to tell, or were merged.", "short",
				grafana.Query{Expr: fmt.Sprintf("%s / %s", sum(s.rate(metric.Deltas)), sum(s.equal(metric.Stage, metric.Enqueued).rate(metric.Events))), Legend: "deltas"}),
			number("Relists", "Lists that the Reflector made anew, a second.", "cps", grafana.Query{Expr: orZero(sum(s.rate(metric.Relists)), ""), Legend: "relists"}, anyIsBad),
		}},
		grafana.Row{Title: "Events", Panels: []grafana.Panel{
			lines("Kubelet events by stage", "Events that pass each stage a second.", "cps", half, one(sum(s.rate(metric.Events), "stage"), "{{stage}}")),
			lines("Kubelet events by type", "What the storm is made of.", "cps", half, one(sum(released.rate(metric.Events), "type"), "{{type}}"), stacked),
			lines("Handled by merge", "Events a second, while each merge is being played.", "cps", half, one(sum(handled.rate(metric.Events), "variant", "source"), "{{variant}} ({{source}})"), leads(compareUID, "Compare variants")),
			lines("Pods in a notification", "Mean number of pods that the merge hands on at once.", "short", half, one(s.mean(metric.BatchSize, over, "variant"), "{{variant}}")),
		}},
		grafana.Row{Title: "Latency", Panels: []grafana.Panel{
			heatMap("Until the sync loop", "How long events took until the sync loop had seen them.", "s", half, s, metric.EndToEndLatency),
			lines("By stage, 99th percentile", "Merging is where the kubelet compares each pod with what it has; handling is the sync loop's.", "s", half,
				[]grafana.Query{{Expr: s.quantile(0.99, metric.StageLatency, over, "boundary"), Legend: "{{boundary}}", Exemplars: true}}, log, sized(half, tall+2)),
			lines("Merging, 99th percentile", "From the source's channel until the merge has made its notification.", "s", half,
				one(boundary(metric.EnqueuedMerged).quantile(0.99, metric.StageLatency, over, "variant"), "{{variant}}"), log),
			lines("Sync loop, 99th percentile", "From the notification until the sync loop has seen it: what it waits in configCh.", "s", half,
				one(boundary(metric.MergedHandled).quantile(0.99, metric.StageLatency, over, "variant"), "{{variant}}"), log),
		}},
	)
}
