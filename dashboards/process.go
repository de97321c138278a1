package dashboards

import "watchlab/bench/telemetry/metric"

// Metrics of client_golang's collectors of the Go runtime and of the process, as far as
// they are charted. They have no labels of a run.
var (
	cpuSeconds      = metric.Metric{Name: "process_cpu_seconds_total", Kind: metric.Counter}
	residentBytes   = metric.Metric{Name: "process_resident_memory_bytes", Kind: metric.Gauge}
	heapBytes       = metric.Metric{Name: "go_memstats_heap_inuse_bytes", Kind: metric.Gauge}
	heapObjects     = metric.Metric{Name: "go_memstats_heap_objects", Kind: metric.Gauge}
	nextGCBytes     = metric.Metric{Name: "go_memstats_next_gc_bytes", Kind: metric.Gauge}
	allocatedBytes  = metric.Metric{Name: "go_memstats_alloc_bytes_total", Kind: metric.Counter}
	allocations     = metric.Metric{Name: "go_memstats_mallocs_total", Kind: metric.Counter}
	collectorPauses = metric.Metric{Name: "go_gc_duration_seconds", Kind: metric.Gauge} // a summary: quantile picks one
	collections     = metric.Metric{Name: "go_gc_duration_seconds_count", Kind: metric.Counter}
	goroutines      = metric.Metric{Name: "go_goroutines", Kind: metric.Gauge}
	mutexWait       = metric.Metric{Name: "go_sync_mutex_wait_total_seconds_total", Kind: metric.Counter}
	schedLatencies  = metric.Metric{Name: "go_sched_latencies_seconds", Kind: metric.Histogram}
)
