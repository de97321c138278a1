package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// queue shows the queues and their cost for the process.
func queue() dashboard {
	s, p := played(), process()
	variant := "{{family}}/{{variant}} {{delivery}}"
	released := s.equal("stage", metric.Released)
	// OpenMetrics and protobuf write 1.0 where the text format writes 1.
	pause := func(q string) string { return append(p, `quantile=~"`+q+`"`).of(collectorPauses) }
	return page(queueUID, "watchlab / Queue and memory",
		"Queue depth and batch sizes, and their cost: heap, garbage collector, locks.",
		playedPickers(), s,
		row{Title: "Queue", Panels: []panel{
			lines("Depth", "Events in each variant's queue.", "short", third, one(sum(s.of(metric.QueueDepth), byVariant...), variant)),
			lines("Queued bytes", "JSON size of the queued objects: the depth times the storm's mean object size.", "bytes", third, one(sum(s.of(metric.QueueBytes), byVariant...), variant)),
			lines("Growth", "Change of the depth per second. Above 0, events arrive faster than they are handled.", "short", third,
				one(sum("deriv("+s.of(metric.QueueDepth)+"["+over+"])", byVariant...), variant), func(p *panel) { p.FromZero = false }),
			heatMap("Batch size", "Deltas in a batch. client-go ends a batch at the first repeated key, so hot keys lead to small batches.", "short", half, s, metric.BatchSize),
			lines("Batch size by variant", "Mean and 99th percentile of the batch size.", "short", half, []query{
				{Expr: s.mean(metric.BatchSize, over, byVariant...), Legend: variant + " mean"},
				{Expr: s.quantile(0.99, metric.BatchSize, over, byVariant...), Legend: variant + " p99"},
			}, sized(half, tall+2)),
			lines("Deltas per event", "Deltas that the queue returns per enqueued event. Below 1, events are coalesced; above 1, a list or a resync adds deltas.", "short", third,
				one(fmt.Sprintf("%s / %s", sum(s.rate(metric.Deltas), byVariant...), sum(s.equal(metric.Stage, metric.Enqueued).rate(metric.Events), byVariant...)), variant)),
			lines("Staleness", "Events that the store is behind the newest released event when a worker looks up an object: median and 99th percentile.", "short", third, []query{
				{Expr: s.quantile(0.5, metric.Staleness, over, byVariant...), Legend: variant + " p50"},
				{Expr: s.quantile(0.99, metric.Staleness, over, byVariant...), Legend: variant + " p99"},
			}),
			lines("Enqueued and popped", "Events per second into and out of the queues. Coalesced events are only enqueued.", eventsPerSecond, third, []query{
				{Expr: sum(s.equal("stage", metric.Enqueued).rate(metric.Events)), Legend: "enqueued"},
				{Expr: sum(s.equal("stage", metric.Popped).rate(metric.Events)), Legend: "popped"},
			}),
		}},
		row{Title: "Memory and garbage collector", Panels: []panel{
			lines("Heap", "in use: spans with at least one object. next collection: the heap size that starts the collector. resident: the kernel's count.", "bytes", third, []query{
				{Expr: sum(p.of(heapBytes)), Legend: "in use"},
				{Expr: sum(p.of(nextGCBytes)), Legend: "next collection"},
				{Expr: sum(p.of(residentBytes)), Legend: "resident"},
			}),
			lines("Allocation", "Bytes that the process allocates per second.", "Bps", third, one(sum(p.rate(allocatedBytes), "instance"), "{{instance}}")),
			lines("Allocations per event", "Allocations of the whole process per released event, including the generator and the lab. The run's report has exact figures of the pipeline.", "short", third,
				one(fmt.Sprintf("%s / %s", sum(p.rate(allocations), "instance"), sum(released.rate(metric.Events), "instance")), "{{instance}}")),
			lines("GC pauses", "Longest and median stop-the-world pause of recent collections.", "s", third, []query{
				{Expr: maximum(pause(`1|1\\.0`)), Legend: "longest"},
				{Expr: maximum(pause(`0\\.5`)), Legend: "median"},
			}, log),
			lines("Collections", "Garbage collections per second.", "count:collections/s", third, one(sum(p.rate(collections), "instance"), "{{instance}}")),
			lines("Objects in the heap", "Live objects and unswept dead ones.", "short", third, one(sum(p.of(heapObjects), "instance"), "{{instance}}")),
		}},
		row{Title: "Locks and goroutines", Panels: []panel{
			lines("Mutex wait", "Time that goroutines wait for mutexes, per second. 1 is one goroutine that waits all the time.", "none", third, one(sum(p.rate(mutexWait), "instance"), "{{instance}}")),
			lines("Scheduling latency", "Time that runnable goroutines wait for a processor: median and 99th percentile.", "s", third, medianAndP99(p, schedLatencies), log),
			lines("Goroutines", "Number of goroutines.", "short", third, one(sum(p.of(goroutines), "instance"), "{{instance}}")),
		}},
		row{Title: "client-go's own metrics (paced cells of the informer pipeline)", Panels: []panel{
			lines("informer_queued_items", "Items in the queues of client-go's controllers.", "short", third, one(sum(p.of(metric.InformerQueuedItems), "name", "resource"), "{{name}} {{resource}}")),
			lines("informer_processing_latency_seconds", "Time that client-go's controllers take to process a popped batch: median and 99th percentile of every 16th batch.", "s", third, medianAndP99(p, metric.InformerProcessingLatency), log),
			lines("informer_store_resource_version", "Newest resourceVersion in the store.", "none", third, one(maximum(p.of(metric.InformerStoreResourceVersion), "name", "resource"), "{{name}} {{resource}}"), func(p *panel) { p.FromZero = false }),
			lines("workqueue_depth", "Keys in the workqueue.", "short", third, one(sum(p.of(metric.WorkqueueDepth), "name"), "{{name}}")),
			lines("workqueue_adds_total", "Keys added per second.", "count:keys/s", third, one(sum(p.rate(metric.WorkqueueAdds), "name"), "{{name}}")),
			lines("workqueue_retries_total", "Keys added again after a failure, per second.", "count:keys/s", third, one(sum(p.rate(metric.WorkqueueRetries), "name"), "{{name}}")),
			lines("workqueue_queue_duration_seconds", "Time that a key waits for a worker: median and 99th percentile of every 16th key.", "s", third, medianAndP99(p, metric.WorkqueueQueueDuration), log),
			lines("workqueue_work_duration_seconds", "Time that a worker takes for a key: median and 99th percentile of every 16th key.", "s", third, medianAndP99(p, metric.WorkqueueWorkDuration), log),
			lines("Work in progress", "Time that workers have spent on unfinished keys: sum and longest.", "s", third, []query{
				{Expr: sum(p.of(metric.WorkqueueUnfinishedWork)), Legend: "all"},
				{Expr: maximum(p.of(metric.WorkqueueLongestRunning)), Legend: "longest"},
			}),
		}},
	)
}
