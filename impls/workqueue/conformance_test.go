package workqueue_test

import (
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range workqueue.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { clientgo.RunWorkqueue(t, v) })
	}
}
