package deltafifo_test

import (
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/deltafifo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range deltafifo.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { clientgo.RunDeltaFIFO(t, v) })
	}
}
