package kubelet_test

import (
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"watchlab/bench/kubelet"
	"watchlab/impls/conformance/mergetest"
)

func TestMain(m *testing.M) {
	// kubelet logs every duplicate update.
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	suite := mergetest.Suite{WritesReceived: true, FixedCapacity: true}
	suite.Run(t, kubelet.Variant())
}

// TestDifferential compares the updates of the real kubelet with those of every other variant.
func TestDifferential(t *testing.T) {
	mergetest.Compare(t, kubelet.Variant(), mergetest.Others(kubelet.Name)...)
}
