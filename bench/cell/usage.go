package cell

import (
	"math"
	"runtime"
	"runtime/metrics"
	"syscall"
	"time"
)

// usage holds the totals of the process and the machine at one moment.
type usage struct {
	mallocs, bytes uint64
	gcs            uint32                    // completed collections
	live           uint64                    // bytes that the last collection kept
	gogc           float64                   // in percent
	gcPause        time.Duration             // total
	pauses         *metrics.Float64Histogram // histogram of stop-the-world pauses
	gcLimited      uint64                    // last GC cycle with the limiter enabled
	lockWait       time.Duration
	cpuTime        time.Duration
	cpu            *CPUTimes     // nil if unknown
	throttled      time.Duration // total of the control groups
}

// readMemory reads the allocation counters. ReadMemStats stops the world, so it counts every
// allocation. m is allocated by the caller, as an allocation here would be counted.
func (u *usage) readMemory(m *runtime.MemStats) {
	runtime.ReadMemStats(m)
	u.mallocs, u.bytes = m.Mallocs, m.TotalAlloc
	u.gcs, u.gcPause = m.NumGC, time.Duration(m.PauseTotalNs)
}

func (u *usage) readRuntime() {
	samples := []metrics.Sample{
		{Name: "/sync/mutex/wait/total:seconds"},
		{Name: "/sched/pauses/total/gc:seconds"},
		{Name: "/gc/limiter/last-enabled:gc-cycle"},
		{Name: metricLive},
		{Name: metricGOGC},
	}
	metrics.Read(samples)
	// A runtime without a metric leaves its zero value.
	for _, s := range samples {
		switch v := s.Value; v.Kind() {
		case metrics.KindFloat64:
			u.lockWait = time.Duration(v.Float64() * float64(time.Second))
		case metrics.KindFloat64Histogram:
			u.pauses = v.Float64Histogram()
		}
	}
	u.gcLimited, u.live, u.gogc = whole(samples[2].Value), whole(samples[3].Value), gogc(whole(samples[4].Value))
}

func (u *usage) readHost() { u.cpu, u.throttled = ReadCPUTimes(Root()), Throttled(Root()) }

// longest returns the upper bound of the last bucket that grew between two readings; 0 if none did.
func longest(before, after *metrics.Float64Histogram) time.Duration {
	if before == nil || after == nil || len(before.Counts) != len(after.Counts) {
		return 0
	}
	for i := len(after.Counts) - 1; i >= 0; i-- {
		if after.Counts[i] == before.Counts[i] {
			continue
		}
		// The last bucket has no upper bound.
		edge := after.Buckets[i+1]
		if math.IsInf(edge, 1) {
			edge = after.Buckets[i]
		}
		return time.Duration(edge * float64(time.Second))
	}
	return 0
}

// cpuTime returns the user and system time of all threads of the process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // It fails for other arguments only.
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
