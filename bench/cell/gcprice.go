package cell

import (
	"fmt"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"

	"watchlab/loadgen/storm"
)

// GCPrice is the CPU time that the collector takes for each allocated byte.
//
// With GOGC=100 the heap doubles between two collections, so that a byte allocated costs the marking
// of one live byte, whatever the size of the heap. The price therefore depends on the machine and on
// the shape of the live objects only.
type GCPrice struct {
	NsPerByte float64 // 0 if unknown, or if GOGC is off
	Measured  string  // how, in one line
}

const (
	pricePods  = 1000 // decoded pods in the heap, 20 to 30 MB
	priceTries = 5    // collections with the pods, and without
)

// MeasureGCPrice measures the price once a process, in about 150 ms; later calls return the same
// price. Call it before other objects fill the heap: they would blur it.
//
// The CPU time of forced collections is that of the system. The runtime's own metric
// (/cpu/classes/gc/total:cpu-seconds) counts the time between two readings of the clock: on a machine
// that others use it was three times too long.
var MeasureGCPrice = sync.OnceValue(func() GCPrice {
	empty, live := collection()
	pods := decodedPods(pricePods)
	full, with := collection()
	runtime.KeepAlive(pods)
	percent := gogc(RuntimeMetric(metricGOGC))
	p := GCPrice{Measured: fmt.Sprintf("CPU time to mark %d decoded pods, the least of %d collections, at GOGC=%.0f", pricePods, priceTries, percent)}
	if percent > 0 && with > live && full > empty {
		p.NsPerByte = (full - empty) / (with - live) * 100 / percent
	}
	return p
})

// collection returns the least CPU time of a collection in nanoseconds, and the bytes that it keeps.
func collection() (ns, live float64) {
	for i := range priceTries + 1 {
		before := cpuTime()
		runtime.GC()
		took := float64(cpuTime() - before)
		// The first one finds garbage of others.
		if i == 1 || i > 1 && took < ns {
			ns = took
		}
	}
	return ns, float64(RuntimeMetric(metricLive))
}

// decodedPods returns pods of a storm, each with memory of its own.
func decodedPods(n int) *storm.Storm {
	p, err := storm.NewProfile("ceiling")
	if err != nil {
		return nil
	}
	p.Resize(0, n, 0)
	p.Events = 1
	set, err := p.Set(1)
	if err != nil {
		return nil
	}
	return set.Storms[0].Fresh(true)
}

const (
	metricLive = "/gc/heap/live:bytes" // kept by the last collection
	metricGOGC = "/gc/gogc:percent"
)

// gogc returns the percentage in force; 0 if the collector is off.
func gogc(percent uint64) float64 {
	if percent == math.MaxUint64 {
		return 0
	}
	return float64(percent)
}

// RuntimeMetric reads a whole number of package runtime/metrics; 0 without it.
func RuntimeMetric(name string) uint64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return whole(s[0].Value)
}

// whole returns the value of a metric; 0 if the runtime lacks it.
func whole(v metrics.Value) uint64 {
	if v.Kind() != metrics.KindUint64 {
		return 0
	}
	return v.Uint64()
}

// PricedCPUSecondsPerEvent is the CPU time of an event with its garbage paid: collections pay for
// PaidBytesPerEvent, and the price is put on all other allocated bytes. 0 if it is unknown.
//
// A round that is short for the heap has no collection and would get its garbage for nothing. In a
// long round most bytes are paid, so that the figure is CPUSecondsPerEvent.
func (r Result) PricedCPUSecondsPerEvent() float64 {
	if r.GCNsPerByte == 0 || r.CPUSecondsPerEvent == 0 {
		return 0
	}
	return r.CPUSecondsPerEvent + (r.BytesPerEvent-r.PaidBytesPerEvent)*r.GCNsPerByte/1e9
}

// paidBytes returns the allocated bytes that the completed collections between two readings pay for:
// the bytes that they kept, times GOGC. The kept bytes of those before the last are interpolated.
// A collection in progress pays for none, though its CPU time so far counts: at most one a round.
func paidBytes(before, after usage) float64 {
	n := float64(after.gcs - before.gcs)
	first, last := float64(before.live), float64(after.live)
	return (n*first + (last-first)*(n+1)/2) * after.gogc / 100
}
