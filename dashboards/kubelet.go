package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// kubelet shows the kubelet's pod-config pipeline.
func kubelet() dashboard {
	s := ours().equal("pipeline", "kubelet").among("storm", "storm").among("variant", "variant")
	series := ours().equal("pipeline", "kubelet").of(metric.Events)
	variables := []variable{
		pickRun(),
		picker("storm", "The storm", labelValues(series, "storm")),
		picker("variant", "The merge", labelValues(series, "variant")),
	}
	released, handled := s.equal("stage", metric.Released), s.equal("stage", metric.Handled)
	boundary := func(b string) selector { return s.equal("boundary", b) }
	return page(kubeletUID, "watchlab / Kubelet pipeline",
		"The kubelet's pod-config pipeline under a storm: sources, mux, merge, configCh and sync loop.",
		variables, s,
		row{Title: "Through the pipeline", Panels: []panel{
			number("Released", "Pod events per second that the generator releases.", eventsPerSecond, query{Expr: sum(released.rate(metric.Events)), Legend: "released"}),
			number("Handled", "Pod events per second that the sync loop receives.", eventsPerSecond, query{Expr: sum(handled.rate(metric.Events)), Legend: "handled"}),
			number("99th percentile", "Time until the sync loop receives an event. A kubelet works at a scale of seconds: more than 100 ms is noticeable.", "s",
				query{Expr: s.endToEnd(0.99, over), Legend: "p99"}, above(0.1, 1), leads(latencyUID, "Stage latency")),
			number("Queue depth", "Notifications that the sync loop has not received yet.", "short", query{Expr: sum(s.of(metric.QueueDepth)), Legend: "queue depth"}),
			number("Notifications per update", "Pods in notifications per update of the sources. Below 1, updates changed nothing or were merged.", "short",
				query{Expr: fmt.Sprintf("%s / %s", sum(s.rate(metric.Deltas)), sum(s.equal(metric.Stage, metric.Enqueued).rate(metric.Events))), Legend: "deltas"}),
			number("Relists", "Lists of the Reflector after the first, per second.", "count:lists/s", query{Expr: orZero(sum(s.rate(metric.Relists)), ""), Legend: "relists"}, anyIsBad),
		}},
		row{Title: "Events", Panels: []panel{
			lines("Kubelet events by stage", "Events per second that reach each stage.", eventsPerSecond, half, one(sum(s.rate(metric.Events), "stage"), "{{stage}}")),
			lines("Kubelet events by type", "Types of the released events.", eventsPerSecond, half, one(sum(released.rate(metric.Events), "type"), "{{type}}"), stacked),
			lines("Handled by merge", "Events per second through the whole pipeline, while each merge is played.", eventsPerSecond, half, one(sum(handled.rate(metric.Events), "variant", "source"), "{{variant}} ({{source}})"), leads(compareUID, "Compare variants")),
			lines("Pods in a notification", "Mean number of pods in a notification of the merge.", "short", half, one(s.mean(metric.BatchSize, over, "variant"), "{{variant}}")),
		}},
		row{Title: "Latency", Panels: []panel{
			heatMap("Until the sync loop", "Time until the sync loop receives an event.", "s", half, s, metric.EndToEndLatency),
			lines("By stage, 99th percentile", "enqueued-merged: the merge compares each pod with the previous version; merged-handled: the notification waits in configCh.", "s", half,
				[]query{{Expr: s.quantile(0.99, metric.StageLatency, over, "boundary"), Legend: "{{boundary}}", Exemplars: true}}, log, sized(half, tall+2)),
			lines("Merging, 99th percentile", "Time from the source's channel to the notification of the merge.", "s", half,
				one(boundary(metric.EnqueuedMerged).quantile(0.99, metric.StageLatency, over, "variant"), "{{variant}}"), log),
			lines("Sync loop, 99th percentile", "Time that a notification waits in configCh.", "s", half,
				one(boundary(metric.MergedHandled).quantile(0.99, metric.StageLatency, over, "variant"), "{{variant}}"), log),
		}},
	)
}
