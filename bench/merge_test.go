package bench_test

import (
	"testing"

	"watchlab/impls/conformance/mergetest"
	"watchlab/impls/merge"
)

// BenchmarkMerge measures a SET of all pods; see mergetest.Benchmark. The real
// kubelet is measured by the same code in bench/kubelet.
func BenchmarkMerge(b *testing.B) {
	mergetest.Benchmark(b, merge.Variants())
}
