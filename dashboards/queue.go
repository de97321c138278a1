package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// queue answers: how deep is the queue, what does it hold, and what does that cost
// the process?
func queue() grafana.Dashboard {
	s, p := played(), process()
	variant := "{{family}}/{{variant}} {{delivery}}"
	released := s.equal("stage", metric.Released)
	// OpenMetrics and protobuf write 1.0 where the text format writes 1.
	pause := func(q string) string { return append(p, `quantile=~"`+q+`"`).of(collectorPauses) }
	return page(queueUID, "watchlab / Queue and memory",
		"What waits, in what portions it is taken, and what the process pays: heap, collector, locks.",
		playedPickers(), s,
		grafana.Row{Title: "Queue", Panels: []grafana.Panel{
			lines("Depth", "Events that wait in each variant's queue.", "short", third, one(sum(s.of(metric.QueueDepth), byVariant...), variant)),
			lines("Queued bytes", "What the objects that wait would take as JSON: the depth times the storm's mean object size.", "bytes", third, one(sum(s.of(metric.QueueBytes), byVariant...), variant)),
			lines("Growth", "Change of the depth a second. Above zero for long: handling doesn't keep up.", "short", third,
				one(sum("deriv("+s.of(metric.QueueDepth)+"["+over+"])", byVariant...), variant), func(p *grafana.Panel) { p.FromZero = false }),
			heatMap("Batch size", "How many deltas are taken at once. client-go closes a batch at the first repeated key, so that hot keys make small ones.", "short", half, s, metric.BatchSize),
			lines("Batch size by variant", "The mean, and the 99th percentile.", "short", half, []grafana.Query{
				{Expr: s.mean(metric.BatchSize, over, byVariant...), Legend: variant + " mean"},
				{Expr: s.quantile(0.99, metric.BatchSize, over, byVariant...), Legend: variant + " p99"},
			}, sized(half, tall+2)),
			lines("Deltas handed over for an event in", "Below 1, events were coalesced; above 1, a list or a resync gave out what nobody sent.", "short", third,
				one(fmt.Sprintf("%s / %s", sum(s.rate(metric.Deltas), byVariant...), sum(s.equal(metric.Stage, metric.Enqueued).rate(metric.Events), byVariant...)), variant)),
			lines("Staleness", "Events that the store is behind the newest released one when a worker looks an object up: median and 99th percentile.", "short", third, []grafana.Query{
				{Expr: s.quantile(0.5, metric.Staleness, over, byVariant...), Legend: variant + " p50"},
				{Expr: s.quantile(0.99, metric.Staleness, over, byVariant...), Legend: variant + " p99"},
			}),
			lines("Enqueued and popped", "What goes into queues a second and what comes out. Coalesced events go in and never come out.", "cps", third, []grafana.Query{
				{Expr: sum(s.equal("stage", metric.Enqueued).rate(metric.Events)), Legend: "enqueued"},
				{Expr: sum(s.equal("stage", metric.Popped).rate(metric.Events)), Legend: "popped"},
			}),
		}},
		grafana.Row{Title: "Memory and collector", Panels: []grafana.Panel{
			lines("Heap", "in use: spans with at least one object. next collection: the size at which the collector starts. resident: as the kernel counts.", "bytes", third, []grafana.Query{
				{Expr: sum(p.of(heapBytes)), Legend: "in use"},
				{Expr: sum(p.of(nextGCBytes)), Legend: "next collection"},
				{Expr: sum(p.of(residentBytes)), Legend: "resident"},
			}),
			lines("Allocation", "Bytes that the process allocates a second.", "Bps", third, one(sum(p.rate(allocatedBytes), "instance"), "{{instance}}")),
			lines("Allocations for an event", "Allocations of the whole process for each released event, the pipeline's and the lab's. The lab's own figures are more exact: it subtracts nothing, but measures where nothing else runs.", "short", third,
				one(fmt.Sprintf("%s / %s", sum(p.rate(allocations), "instance"), sum(released.rate(metric.Events), "instance")), "{{instance}}")),
			lines("Collector's pauses", "The longest and the median stop of the world among the last collections.", "s", third, []grafana.Query{
				{Expr: maximum(pause(`1|1\\.0`)), Legend: "longest"},
				{Expr: maximum(pause(`0\\.5`)), Legend: "median"},
			}, log),
			lines("Collections", "Collections a second.", "cps", third, one(sum(p.rate(collections), "instance"), "{{instance}}")),
			lines("Objects in the heap", "Live objects and those that aren't swept yet.", "short", third, one(sum(p.of(heapObjects), "instance"), "{{instance}}")),
		}},
		grafana.Row{Title: "Locks and goroutines", Panels: []grafana.Panel{
			lines("Waiting for mutexes", "Time that goroutines spend waiting, a second: 1 is one goroutine waiting all the time.", "none", third, one(sum(p.rate(mutexWait), "instance"), "{{instance}}")),
			lines("Waiting for a processor", "How long runnable goroutines wait until they run: median and 99th percentile.", "s", third, []grafana.Query{
				{Expr: p.quantile(0.5, schedLatencies, over), Legend: "p50"},
				{Expr: p.quantile(0.99, schedLatencies, over), Legend: "p99"},
			}, log),
			lines("Goroutines", "How many there are.", "short", third, one(sum(p.of(goroutines), "instance"), "{{instance}}")),
		}},
		grafana.Row{Title: "Upstream's own metrics, of paced cells in the informer pipeline", Panels: []grafana.Panel{
			lines("informer_queued_items", "What client-go's controllers say waits in their queues.", "short", third, one(sum(p.of(metric.InformerQueuedItems), "name", "resource"), "{{name}} {{resource}}")),
			lines("informer_processing_latency_seconds", "How long client-go's controllers take to process what they popped: median and 99th percentile of one hand-over in 16.", "s", third, []grafana.Query{
				{Expr: p.quantile(0.5, metric.InformerProcessingLatency, over), Legend: "p50"},
				{Expr: p.quantile(0.99, metric.InformerProcessingLatency, over), Legend: "p99"},
			}, log),
			lines("informer_store_resource_version", "The resourceVersion up to which the store has everything.", "none", third, one(maximum(p.of(metric.InformerStoreResourceVersion), "name", "resource"), "{{name}} {{resource}}"), func(p *grafana.Panel) { p.FromZero = false }),
			lines("workqueue_depth", "Keys that wait for a worker.", "short", third, one(sum(p.of(metric.WorkqueueDepth), "name"), "{{name}}")),
			lines("workqueue_adds_total", "Keys added a second.", "cps", third, one(sum(p.rate(metric.WorkqueueAdds), "name"), "{{name}}")),
			lines("workqueue_retries_total", "Keys added again after a failure, a second.", "cps", third, one(sum(p.rate(metric.WorkqueueRetries), "name"), "{{name}}")),
			lines("workqueue_queue_duration_seconds", "How long a key waits for a worker: median and 99th percentile of one key in 16.", "s", third, []grafana.Query{
				{Expr: p.quantile(0.5, metric.WorkqueueQueueDuration, over), Legend: "p50"},
				{Expr: p.quantile(0.99, metric.WorkqueueQueueDuration, over), Legend: "p99"},
			}, log),
			lines("workqueue_work_duration_seconds", "How long a worker takes for a key: median and 99th percentile of one key in 16.", "s", third, []grafana.Query{
				{Expr: p.quantile(0.5, metric.WorkqueueWorkDuration, over), Legend: "p50"},
				{Expr: p.quantile(0.99, metric.WorkqueueWorkDuration, over), Legend: "p99"},
			}, log),
			lines("Work in progress", "How long workers have been at keys that they aren't done with: of all together, and the longest.", "s", third, []grafana.Query{
				{Expr: sum(p.of(metric.WorkqueueUnfinishedWork)), Legend: "all"},
				{Expr: maximum(p.of(metric.WorkqueueLongestRunning)), Legend: "longest"},
			}),
		}},
	)
}
