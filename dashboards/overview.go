package dashboards

import (
	"fmt"

	"watchlab/bench/telemetry/metric"
	"watchlab/dashboards/grafana"
)

// UIDs of the dashboards: links and bookmarks hold on to them.
const (
	overviewUID = "watchlab-overview"
	compareUID  = "watchlab-compare"
	latencyUID  = "watchlab-latency"
	queueUID    = "watchlab-queue"
	kubeletUID  = "watchlab-kubelet"
	clusterUID  = "watchlab-cluster"
	historyUID  = "watchlab-history"
)

// overview answers: how is the run doing, and does anything keep its figures from
// being believed?
func overview() grafana.Dashboard {
	s := played()
	handled, released := s.equal("stage", metric.Handled), s.equal("stage", metric.Released)
	variant := "{{family}}/{{variant}} {{delivery}}"
	phase := func(p string) string {
		return maximum(s.equal(metric.PhaseLabel, p).of(metric.Phase), byVariant...)
	}
	return page(overviewUID, "watchlab / Storm overview",
		"A storm in progress: what comes in, what comes out, how late, and whether the figures may be believed.",
		playedPickers(), s,
		grafana.Row{Title: "Now", Panels: []grafana.Panel{
			number("Released", "Events that the generator releases a second, over all that is selected.", "cps",
				grafana.Query{Expr: sum(released.rate(metric.Events)), Legend: "released"}),
			number("Handled", "Events that have gone all the way a second. Where a variant coalesces, several released events are handled as one.", "cps",
				grafana.Query{Expr: sum(handled.rate(metric.Events)), Legend: "handled"}),
			number("Waiting", "Events in queues now. Growing means that handling doesn't keep up.", "short",
				grafana.Query{Expr: sum(s.of(metric.QueueDepth)), Legend: "waiting"}, leads(queueUID, "Queue and memory")),
			number("99th percentile", "Time from when an event was meant to be released until it was handled; of unpaced cells, from when it was released. Over all variants: see the lines below for each.", "s",
				grafana.Query{Expr: s.endToEnd(0.99, over), Legend: "p99"}, above(0.1, 1), leads(latencyUID, "Stage latency")),
			number("Verdicts", "Cells by their verdict so far. Invalid ones have no figures that count.", "short",
				grafana.Query{Expr: "count by (status) (" + s.of(metric.Verdict) + " == 1)", Legend: "{{status}}"}),
			number("Progress", "How much of the run is done, by what has been played and what is left.", "percentunit",
				grafana.Query{Expr: minimum(ours().of(metric.Progress), metric.Run), Legend: "{{run}}"}),
		}},
		grafana.Row{Title: "The run", Panels: []grafana.Panel{
			number("Cells", "Cells of the run: each is a variant with a storm and a set of knobs.", "short", grafana.Query{Expr: maximum(ours().of(metric.Cells), metric.Run), Legend: "{{run}}"}),
			number("Rounds", "Counted rounds of cells that were finished in the time range.", "short",
				grafana.Query{Expr: "round(" + sum("increase("+s.named(metric.Rounds.Name)+"["+span+"])") + ")", Legend: "rounds"}),
			{
				Kind: grafana.StateTimeline, Title: "What is being played", Unit: "none", Width: wide - 2*small, Height: tall, Decimals: auto,
				Description: "Variants are played in turn, in an order that is shuffled anew each round. A warm-up isn't counted.",
				Queries:     one(fmt.Sprintf("%s + 2 * %s", phase(metric.WarmUp), phase(metric.Measure)), variant),
				Values:      []grafana.Value{{Number: 0, Text: "idle", Color: "rgba(128, 128, 128, 0.15)"}, {Number: 1, Text: "warm-up", Color: "blue"}, {Number: 2, Text: "measured", Color: fine}},
			},
		}},
		grafana.Row{Title: "Events", Panels: []grafana.Panel{
			lines("Events by stage", "Events that pass each stage a second. Where one line falls below the one before it, events wait, or are coalesced.", "cps", half,
				one(sum(s.rate(metric.Events), "stage"), "{{stage}}"), leads(latencyUID, "Stage latency")),
			lines("Handled by variant", "Events that each variant handles a second, while it is being played. Variants are played in turn, so that lines don't run side by side.", "cps", half,
				one(sum(handled.rate(metric.Events), byVariant...), variant), leads(compareUID, "Compare variants")),
			lines("Released by type", "What the storm is made of. REPLACED, SYNC and BOOKMARK are lists, resyncs and bookmarks.", "cps", half,
				one(sum(released.rate(metric.Events), "type"), "{{type}}"), stacked),
			lines("Deltas out per event in", "Below 1, events were coalesced. Above 1, a list or a resync gave out what nobody sent.", "short", half,
				one(fmt.Sprintf("%s / %s", sum(s.rate(metric.Deltas), byVariant...), sum(s.equal(metric.Stage, metric.Enqueued).rate(metric.Events), byVariant...)), variant)),
		}},
		grafana.Row{Title: "Latency", Panels: []grafana.Panel{
			lines("End to end, median", "Half of the events were handled within this time. Estimated from histograms.", "s", half,
				[]grafana.Query{{Expr: s.endToEnd(0.5, over, byVariant...), Legend: variant}}, log, leads(latencyUID, "Stage latency")),
			lines("End to end, 99th percentile", "One event in a hundred took longer. Dots are exemplars; where traces are on, they lead to a trace.", "s", half,
				[]grafana.Query{{Expr: s.endToEnd(0.99, over, byVariant...), Legend: variant, Exemplars: true}}, log, above(0.1, 1), leads(latencyUID, "Stage latency")),
		}},
		grafana.Row{Title: "May the figures be believed?", Panels: []grafana.Panel{
			lines("Generator lag, 99th percentile", "How much later than meant events are released. A generator that lags measures itself; latencies count from the time meant.", "s", third,
				one(s.quantile(0.99, metric.GeneratorLag, over, byVariant...), variant), log, above(0.001, 0.01)),
			lines("Late and missed releases", "late: beyond the budget of the pace. missed: never released. More than 1 % late makes a cell invalid.", "cps", third,
				[]grafana.Query{
					{Expr: sum(s.rate(metric.GeneratorLate)), Legend: "late"},
					{Expr: sum(s.rate(metric.GeneratorMissed)), Legend: "missed"},
				}, anyIsBad),
			lines("Staleness, 99th percentile", "How many events the store is behind the newest released one when a worker looks an object up.", "short", third,
				one(s.quantile(0.99, metric.Staleness, over, byVariant...), variant), above(1000, 10000)),
			lines("Watch errors by fault", "Watches that ended or were refused, by the fault that did it; other: nothing explains it. none: there were none.", "cps", third,
				one(orZero(sum(s.rate(metric.WatchErrors), "fault"), "fault"), "{{fault}}")),
			lines("Faults injected", "What --faults did to the source. none: there were none.", "cps", third,
				one(orZero(sum(s.rate(metric.Faults), "fault"), "fault"), "{{fault}}")),
			lines("Relists", "Lists that a Reflector had to make anew, a second. none: there were none.", "cps", third,
				one(orZero(sum(s.rate(metric.Relists), byVariant...), "variant"), variant)),
		}},
		grafana.Row{Title: "What it costs", Panels: []grafana.Panel{
			lines("CPU", "Cores that the process uses, generator, pipeline and telemetry together.", "none", third,
				one(sum(process().rate(cpuSeconds), "instance"), "{{instance}}")),
			lines("Memory", "Live heap, and what the process has resident. The prepared storm is part of both.", "bytes", third,
				[]grafana.Query{
					{Expr: sum(process().of(heapBytes), "instance"), Legend: "heap {{instance}}"},
					{Expr: sum(process().of(residentBytes), "instance"), Legend: "resident {{instance}}"},
				}, leads(queueUID, "Queue and memory")),
			lines("Waiting for locks", "Time that goroutines spend waiting for mutexes, a second: 1 is one goroutine waiting all the time.", "none", third,
				one(sum(process().rate(mutexWait), "instance"), "{{instance}}")),
		}},
	)
}
