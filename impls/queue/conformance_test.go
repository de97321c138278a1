package queue_test

import (
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range queue.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { clientgo.RunQueue(t, v) })
	}
}
