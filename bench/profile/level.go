package profile

import (
	"runtime"
	"runtime/metrics"
)

// liveHeap is what the last collection found to be live: it is of that collection
// that a heap profile tells.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

func goroutines() uint64 { return uint64(runtime.NumGoroutine()) }
