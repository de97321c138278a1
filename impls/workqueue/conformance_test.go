package workqueue_test

import (
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls/conformance/workqueuetest"
	"watchlab/impls/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range workqueue.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { workqueuetest.Run(t, v) })
	}
}
