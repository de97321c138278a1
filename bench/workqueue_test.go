package bench_test

import (
	"testing"

	"watchlab/impls/conformance/workqueuetest"
	"watchlab/impls/workqueue"
)

// BenchmarkWorkqueue measures the workqueues alone; see [workqueuetest.Benchmark].
func BenchmarkWorkqueue(b *testing.B) { workqueuetest.Benchmark(b, workqueue.Variants()...) }
