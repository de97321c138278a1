package kubelet_test

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"watchlab/bench/kubelet"
	"watchlab/impls/conformance/mergetest"
	"watchlab/impls/merge"
)

func TestMain(m *testing.M) {
	// kubelet logs each duplicate.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	suite := mergetest.Suite{WritesReceived: true, FixedCapacity: true, OwnedOnly: true}
	suite.Run(t, kubelet.Variant())
}

// TestDifferential: the real kubelet and every variant tell the same.
func TestDifferential(t *testing.T) {
	mergetest.Compare(t, kubelet.Variant(), mergetest.Others(kubelet.Name)...)
}

// BenchmarkMergeSet is BenchmarkMergeSet of the root module with the real kubelet
// among the variants.
func BenchmarkMergeSet(b *testing.B) {
	mergetest.Benchmark(b, merge.Variants())
}
