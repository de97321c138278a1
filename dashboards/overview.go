package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
)

// UIDs of the dashboards. Links and bookmarks use them.
const (
	overviewUID = "watchlab-overview"
	compareUID  = "watchlab-compare"
	latencyUID  = "watchlab-latency"
	queueUID    = "watchlab-queue"
	kubeletUID  = "watchlab-kubelet"
	clusterUID  = "watchlab-cluster"
	historyUID  = "watchlab-history"
)

// overview shows a run in progress and the conditions that affect its verdicts.
func overview() dashboard {
	s := played()
	handled, released := s.equal("stage", metric.Handled), s.equal("stage", metric.Released)
	variant := "{{family}}/{{variant}} {{delivery}}"
	phase := func(p string) string {
		return maximum(s.equal(metric.PhaseLabel, p).of(metric.Phase), byVariant...)
	}
	return page(overviewUID, "watchlab / Storm overview",
		"A run in progress: rates, latencies, and the conditions that affect its verdicts.",
		playedPickers(), s,
		row{Title: "Now", Panels: []panel{
			number("Released", "Events per second that the generator releases, over all selected variants.", eventsPerSecond,
				query{Expr: sum(released.rate(metric.Events)), Legend: "released"}),
			number("Handled", "Events per second through the whole pipeline. Variants that coalesce handle several released events as one.", eventsPerSecond,
				query{Expr: sum(handled.rate(metric.Events)), Legend: "handled"}),
			number("Queue depth", "Events in queues now. It grows while events arrive faster than they are handled.", "short",
				query{Expr: sum(s.of(metric.QueueDepth)), Legend: "queue depth"}, leads(queueUID, "Queue and memory")),
			number("99th percentile", "Time from the intended release of an event until it is handled, over all variants. Unpaced cells count from the actual release.", "s",
				query{Expr: s.endToEnd(0.99, over), Legend: "p99"}, above(0.1, 1), leads(latencyUID, "Stage latency")),
			number("Verdicts", "Cells by their present verdict. Figures of invalid cells do not count.", "short",
				query{Expr: "count by (status) (" + s.of(metric.Verdict) + " == 1)", Legend: "{{status}}"}),
			number("Progress", "Finished share of the run.", "percentunit",
				query{Expr: minimum(ours().of(metric.Progress), metric.Run), Legend: "{{run}}"}),
		}},
		row{Title: "The run", Panels: []panel{
			number("Cells", "Cells of the run: a variant with a storm and a set of knobs.", "short", query{Expr: maximum(ours().of(metric.Cells), metric.Run), Legend: "{{run}}"}),
			number("Rounds", "Counted rounds that finished in the time range.", "short",
				query{Expr: "round(" + sum("increase("+s.named(metric.Rounds.Name)+"["+span+"])") + ")", Legend: "rounds"}),
			{
				Kind: stateTimeline, Title: "Phases", Unit: "none", Width: wide - 2*small, Height: tall,
				Description: "The phase of each variant. The lab plays one variant at a time and shuffles the order each round; warm-ups do not count.",
				Queries:     one(fmt.Sprintf("%s + 2 * %s", phase(metric.WarmUp), phase(metric.Measure)), variant),
				Values:      []value{{Number: 0, Text: "idle", Color: "rgba(128, 128, 128, 0.15)"}, {Number: 1, Text: "warm-up", Color: "blue"}, {Number: 2, Text: "measure", Color: fine}},
			},
		}},
		row{Title: "Events", Panels: []panel{
			lines("Events by stage", "Events per second that reach each stage. A line below the previous stage's means that events wait or are coalesced.", eventsPerSecond, half,
				one(sum(s.rate(metric.Events), "stage"), "{{stage}}"), leads(latencyUID, "Stage latency")),
			lines("Handled by variant", "Events per second through the whole pipeline, while each variant is played.", eventsPerSecond, half,
				one(sum(handled.rate(metric.Events), byVariant...), variant), leads(compareUID, "Compare variants")),
			lines("Released by type", "Types of the released events. REPLACED, SYNC and BOOKMARK are lists, resyncs and bookmarks.", eventsPerSecond, half,
				one(sum(released.rate(metric.Events), "type"), "{{type}}"), stacked),
			lines("Deltas per event", "Deltas that the queue returns per enqueued event. Below 1, events are coalesced; above 1, a list or a resync adds deltas.", "short", half,
				one(fmt.Sprintf("%s / %s", sum(s.rate(metric.Deltas), byVariant...), sum(s.equal(metric.Stage, metric.Enqueued).rate(metric.Events), byVariant...)), variant)),
		}},
		row{Title: "Latency", Panels: []panel{
			lines("End to end, median", "Median end-to-end latency of each variant, estimated from histograms.", "s", half,
				[]query{{Expr: s.endToEnd(0.5, over, byVariant...), Legend: variant}}, log, leads(latencyUID, "Stage latency")),
			lines("End to end, 99th percentile", "99th percentile of the end-to-end latency of each variant. Dots are exemplars; with tracing they link to a trace.", "s", half,
				[]query{{Expr: s.endToEnd(0.99, over, byVariant...), Legend: variant, Exemplars: true}}, log, above(0.1, 1), leads(latencyUID, "Stage latency")),
		}},
		row{Title: "Conditions", Panels: []panel{
			lines("Generator lag, 99th percentile", "Time between the intended and the actual release. Latencies start at the intended time.", "s", third,
				one(s.quantile(0.99, metric.GeneratorLag, over, byVariant...), variant), log, above(0.001, 0.01)),
			lines("Late and missed releases", "late: released beyond the lag budget. missed: never released. More than 1 % late makes a cell invalid.", eventsPerSecond, third,
				[]query{
					{Expr: sum(s.rate(metric.GeneratorLate)), Legend: "late"},
					{Expr: sum(s.rate(metric.GeneratorMissed)), Legend: "missed"},
				}, anyIsBad),
			lines("Staleness, 99th percentile", "Events that the store is behind the newest released event when a worker looks up an object.", "short", third,
				one(s.quantile(0.99, metric.Staleness, over, byVariant...), variant), above(1000, 10000)),
			lines("Watch errors by fault", "Watches that ended or were refused, by fault. other: without a known cause. The series none stands for zero.", "count:errors/s", third,
				one(orZero(sum(s.rate(metric.WatchErrors), "fault"), "fault"), "{{fault}}")),
			lines("Faults injected", "Faults that --faults injected. The series none stands for zero.", "count:faults/s", third,
				one(orZero(sum(s.rate(metric.Faults), "fault"), "fault"), "{{fault}}")),
			lines("Relists", "Lists of the Reflector after the first, per second. The series none stands for zero.", "count:lists/s", third,
				one(orZero(sum(s.rate(metric.Relists), byVariant...), "variant"), variant)),
		}},
		row{Title: "Cost", Panels: []panel{
			lines("CPU", "CPU cores that the process uses for generator, pipeline and telemetry.", "none", third,
				one(sum(process().rate(cpuSeconds), "instance"), "{{instance}}")),
			lines("Memory", "Heap in use and resident memory. Both include the prepared storm.", "bytes", third,
				[]query{
					{Expr: sum(process().of(heapBytes), "instance"), Legend: "heap {{instance}}"},
					{Expr: sum(process().of(residentBytes), "instance"), Legend: "resident {{instance}}"},
				}, leads(queueUID, "Queue and memory")),
			lines("Mutex wait", "Time that goroutines wait for mutexes, per second. 1 is one goroutine that waits all the time.", "none", third,
				one(sum(process().rate(mutexWait), "instance"), "{{instance}}")),
		}},
	)
}
