package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls/conformance/clientgo"
	"watchlab/impls/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range store.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { clientgo.RunStore(t, v) })
	}
}
