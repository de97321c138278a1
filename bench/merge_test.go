package bench_test

import (
	"testing"

	"watchlab/impls/conformance/mergetest/mergebench"
	"watchlab/impls/merge"
)

// BenchmarkMerge measures a SET of all pods; see package mergebench. The real
// kubelet is measured by the same code in bench/kubelet.
func BenchmarkMerge(b *testing.B) {
	mergebench.Run(b, merge.Variants())
}
