package kubelet_test

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"watchlab/bench/kubelet"
	"watchlab/impls/conformance"
)

func TestMain(m *testing.M) {
	// kubelet logs every duplicate update.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// TestConformance also compares random updates with those of the variant reference.
func TestConformance(t *testing.T) {
	suite := conformance.MergeSuite{WritesReceived: true, FixedCapacity: true}
	suite.Run(t, kubelet.Variant())
}
