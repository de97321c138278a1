package bench_test

import (
	"testing"

	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/workqueue"
)

// BenchmarkWorkqueue measures the workqueues alone; see [clientgo.BenchmarkWorkqueue].
func BenchmarkWorkqueue(b *testing.B) { clientgo.BenchmarkWorkqueue(b, workqueue.Variants()...) }
