package cell

import (
	"math"
	"runtime"
	"runtime/metrics"
	"time"
)

// usage are the process's and the machine's totals at one moment.
type usage struct {
	mallocs, bytes uint64
	gcs            uint32
	gcPause        time.Duration
	pauses         *metrics.Float64Histogram
	gcLimited      uint64
	lockWait       time.Duration
	rusage         rusage
	cpu            *CPUTimes
	throttled      time.Duration
}

// readMemory reads what was allocated. ReadMemStats stops the world and so sees
// every allocation; m is where it writes, since making room would be one itself.
func (u *usage) readMemory(m *runtime.MemStats) {
	runtime.ReadMemStats(m)
	u.mallocs, u.bytes = m.Mallocs, m.TotalAlloc
	u.gcs, u.gcPause = m.NumGC, time.Duration(m.PauseTotalNs)
}

// readRuntime reads the runtime's metrics.
func (u *usage) readRuntime() {
	samples := []metrics.Sample{
		{Name: "/sync/mutex/wait/total:seconds"},
		{Name: "/sched/pauses/total/gc:seconds"},
		{Name: "/gc/limiter/last-enabled:gc-cycle"},
	}
	metrics.Read(samples)
	if v := samples[0].Value; v.Kind() == metrics.KindFloat64 {
		u.lockWait = time.Duration(v.Float64() * float64(time.Second))
	}
	if v := samples[1].Value; v.Kind() == metrics.KindFloat64Histogram {
		u.pauses = v.Float64Histogram()
	}
	if v := samples[2].Value; v.Kind() == metrics.KindUint64 {
		u.gcLimited = v.Uint64()
	}
}

// readHost reads what the machine tells.
func (u *usage) readHost() {
	root := Root()
	u.cpu, u.throttled = ReadCPUTimes(root), Throttled(root)
}

// longest returns the upper edge of the last bucket that has grown between two
// readings; 0 where none has.
func longest(before, after *metrics.Float64Histogram) time.Duration {
	if before == nil || after == nil || len(before.Counts) != len(after.Counts) {
		return 0
	}
	for i := len(after.Counts) - 1; i >= 0; i-- {
		if after.Counts[i] == before.Counts[i] {
			continue
		}
		// The last bucket has no upper edge.
		edge := after.Buckets[i+1]
		if math.IsInf(edge, 1) {
			edge = after.Buckets[i]
		}
		return time.Duration(edge * float64(time.Second))
	}
	return 0
}

// hostBetween says what befell the machine between two readings.
func hostBetween(before, after usage) Host {
	h := Host{Throttled: max(after.throttled-before.throttled, 0), GCLimited: after.gcLimited != before.gcLimited}
	h.StealShare, _ = StealShare(before.cpu, after.cpu)
	return h
}
