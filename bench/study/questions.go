package study

import (
	"watchlab/bench/stats"
)

// Questions are those that the lab was built for, in the order in which they are
// asked. Each ends soon: a round of all of them takes a few minutes on two cores.
func Questions() []Question {
	throughput := []string{stats.UnitEventsPerSec, stats.UnitAllocsPerOp, stats.UnitBytesPerOp}
	return []Question{
		{
			Name: "batch-size",
			Asks: "How large should the batches be that an informer takes from its queue, by who else reads the store, and by what the handler costs?",
			About: "client-go's informers take up to 1,000 deltas at a time, so that the store is locked once for all of them. " +
				"Here readers list the store without a pause while events come in as fast as they go: 1,000 nodes renew their leases in turn, so that no batch is cut short by a key that is in it already.",
			Parts: []Part{
				{
					Name: "readers", Weight: 3, Shows: "batches of four sizes, beside no, one and four readers",
					Args: []string{
						"surface", "--family", "deltafifo", "--delivery", "in-order", "--pipeline", "informer", "--impl", "clientgo-realfifo-batch,cond,ring",
						"--storm", "leases", "--nodes", "1000", "--events", "8000", "--x", "batch-size=1,10,100,1000", "--y", "readers=0,1,4",
					},
					Columns: append([]string{"reads/s"}, throughput...),
				},
				{
					Name: "handler", Weight: 3, Shows: "batches of four sizes, beside one reader, with handlers that keep a processor busy",
					Args: []string{
						"surface", "--family", "deltafifo", "--delivery", "in-order", "--pipeline", "informer", "--impl", "clientgo-realfifo-batch,cond,ring",
						"--storm", "leases", "--nodes", "1000", "--events", "8000", "--readers", "1", "--x", "batch-size=1,10,100,1000", "--y", "handler-cost=0,10us,100us",
					},
					Columns: append([]string{"reads/s"}, throughput...),
				},
			},
			Tell: func(found Found) Answer {
				a, b := batches(found["readers"], "readers"), batches(found["handler"], "handler")
				return Answer{Short: append(a.Short, b.Short...), More: append(a.More, b.More...)}
			},
		},
		{
			Name: "hot-keys",
			Asks: "How badly do hot keys defeat batches?",
			About: "client-go's RealFIFO ends a batch at the first key that is in it already, so that one object that changes all the time makes all batches short. " +
				"Leases change here, drawn evenly or by Zipf's law.",
			Parts: []Part{{
				Name: "skew", Weight: 3, Shows: "four skews, and batches of three sizes where they can be chosen",
				Args: []string{
					"surface", "--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond,ring",
					"--storm", "hotkey", "--events", "100000", "--x", "skew=uniform,zipf:0.8,zipf:1.1,zipf:1.5", "--y", "batch-size=10,100,1000",
				},
				Columns: append([]string{"hand-overs"}, throughput...),
			}},
			Tell: func(found Found) Answer { return hotKeys(found["skew"]) },
		},
		{
			Name: "coalescing",
			Asks: "What did it cost to stop folding the changes of a key together (DeltaFIFO to RealFIFO), in memory and in handler calls?",
			About: "client-go's DeltaFIFO kept the waiting deltas of a key together and handed them over at once; RealFIFO hands over one after the other. " +
				"Where the consumer is held up, everything piles up: what each waiting event takes is measured then, and how long it takes to drain. Their guarantees differ, so that no ratio is taken between deliveries.",
			Parts: []Part{
				{
					Name: "stalled", Weight: 2, Shows: "leases by Zipf's law, all of them queued before the consumer is let go",
					Args: []string{
						"run", "--family", "deltafifo", "--impl", "clientgo-deltafifo,clientgo-realfifo,clientgo-realfifo-batch,cond,ring",
						"--storm", "hotkey", "--events", "50000", "--stalled",
					},
					Columns: []string{"B/queued-event", "fill-ns/event", "drain-ns/event", "hand-overs", stats.UnitDeltasPerEvent},
				},
				{
					Name: "latest", Weight: 1, Shows: "the same, where only the newest waiting delta of a key is kept",
					Args: []string{
						"run", "--family", "deltafifo", "--impl", "cond,ring", "--compaction", "latest",
						"--storm", "hotkey", "--events", "50000", "--stalled",
					},
					Columns: []string{"B/queued-event", "fill-ns/event", "drain-ns/event", "hand-overs", stats.UnitDeltasPerEvent},
				},
			},
			Tell: coalescing,
		},
		{
			Name: "readers",
			Asks: "What do readers of the store cost the writer, and how stale is what they see?",
			About: "Controllers list from the informer's store, which is one map behind one lock (kubernetes#130767). " +
				"Staleness is how many events the source was ahead of the store when a reader listed and when the worker looked a key up.",
			Parts: []Part{
				{
					Name: "throughput", Weight: 2, Shows: "up to four readers, with a handler that costs nothing and one that takes 10 µs",
					Args: []string{
						"surface", "--family", "deltafifo", "--delivery", "in-order", "--pipeline", "informer", "--impl", "clientgo-realfifo-batch,cond,ring",
						"--storm", "leases", "--nodes", "1000", "--events", "8000", "--x", "readers=0,1,2,4", "--y", "handler-cost=0,10us",
					},
					Columns: append([]string{"reads/s", "objects/read"}, throughput...),
				},
				{
					Name: "staleness", Weight: 1, Shows: "two readers, at a rate that all can hold",
					Args: []string{
						"run", "--family", "deltafifo", "--delivery", "in-order", "--pipeline", "informer", "--impl", "clientgo-realfifo-batch,cond,ring",
						"--storm", "leases", "--nodes", "1000", "--readers", "2", "--pace", "1000",
					},
					Columns: []string{stats.UnitP99, "list-staleness-p50-events", "list-staleness-p99-events", "staleness-p99-events", "reads/s"},
				},
			},
			Tell: readers,
		},
		{
			Name: "backpressure",
			Asks: "What does a bound on the queue cost, and what does it save?",
			About: "Upstream's queues have none: what the consumer can't take in is kept, and memory grows. With a bound, producers wait instead, and the queue stays short. " +
				"Two producers run ahead of a consumer that takes 2 µs an event; latency is from the release.",
			Parts: []Part{{
				Name: "capacity", Weight: 2, Shows: "no bound, and three",
				Args: []string{
					"scale", "--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,channel,cond,ring",
					"--storm", "ceiling", "--producers", "2", "--handler-cost", "2us", "--over", "capacity=0,64,1024,16384",
				},
				Columns: append([]string{stats.UnitP50, stats.UnitP99}, throughput...),
			}},
			Tell: func(found Found) Answer { return bounds(found["capacity"]) },
		},
		{
			Name: "relist",
			Asks: "What does it cost to replace 150,000 objects at once, in peak heap and pauses?",
			About: "A watch that has expired ends in a list of everything, which the queue is handed as one Replace in the middle of a storm. " +
				"Each cell is played in a process of its own, so that nobody else's leavings are in its heap.",
			Parts: []Part{{
				Name: "replace", Weight: 3, Shows: "150,000 pods, replaced once in a storm of updates",
				Args: []string{
					"run", "--family", "deltafifo", "--impl", "clientgo-deltafifo,clientgo-realfifo-batch,cond,ring,sharded",
					"--storm", "relist", "--events", "30000", "--memory",
				},
				Columns: []string{stats.UnitHeapGrowth, stats.UnitPeakHeap, stats.UnitPeakRSS, stats.UnitGCPauseMax, stats.UnitMax, stats.UnitEventsPerSec},
			}},
			Tell: func(found Found) Answer { return relist(found["replace"]) },
		},
		{
			Name: "telemetry",
			Asks: "What does it cost to look at the clock for every event?",
			About: "The stamps are the lab's own: two readings of the clock for each event, as metrics and timestamps in a queue would take. " +
				"sampled, one in 64 events, is what unpaced cells do otherwise.",
			Parts: []Part{{
				Name: "stamps", Weight: 2, Shows: "no stamps, one in 64 and all, from one producer and from four",
				Args: []string{
					"surface", "--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond,ring",
					"--storm", "ceiling", "--x", "stamps=none,sampled,all", "--y", "producers=1,4", "--unit", stats.UnitNsPerOp,
				},
				Columns: append([]string{stats.UnitNsPerOp}, throughput...),
			}},
			Tell: func(found Found) Answer { return stamps(found["stamps"]) },
		},
		{
			Name: "knee",
			Asks: "Up to which rate is the 99th percentile of latency below a millisecond?",
			About: "Events are released on an open loop at one rate after the other, into queues whose consumer takes 10 µs an event; " +
				"latency is from when each was meant to be released.",
			Parts: []Part{{
				Name: "p99", Weight: 3, Shows: "the highest rate of each, to 10 %",
				Args: []string{
					"knee", "--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond,ring",
					"--storm", "ceiling", "--handler-cost", "10us", "--slo", "p99=1ms", "--from", "2000", "--to", "200000", "--resolution", "10%", "--duration", "500ms",
				},
				Columns: []string{stats.UnitP50, stats.UnitP99, stats.UnitP999},
			}},
			Tell: func(found Found) Answer { return knees(found["p99"]) },
		},
		{
			Name: "producers",
			Asks: "How does throughput go with the number of producers?",
			About: "Producers call the queue at the same time, each with keys of its own, and one consumer takes. " +
				"The Universal Scalability Law says how much of the work is done one after the other, and how much goes into agreeing with each other.",
			Parts: []Part{{
				Name: "producers", Weight: 2, Shows: "one to eight producers",
				Args: []string{
					"scale", "--family", "deltafifo", "--delivery", "per-key", "--impl", "clientgo-deltafifo,cond,ring,sharded",
					"--storm", "ceiling", "--over", "producers=1,2,4,8",
				},
				Columns: append([]string{stats.UnitLockWait}, throughput...),
			}},
			Tell: func(found Found) Answer { return scalings(found["producers"]) },
		},
	}
}
