package merge_test

import (
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls/conformance/mergetest"
	"watchlab/impls/merge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range merge.Variants() {
		t.Run(v.Name, func(t *testing.T) { mergetest.Run(t, v) })
	}
}

// TestSameNotifications holds every variant against the reference. The real
// kubelet takes the reference's place in bench/kubelet.
func TestSameNotifications(t *testing.T) {
	reference, err := merge.Lookup("reference")
	if err != nil {
		t.Fatal(err)
	}
	mergetest.Compare(t, reference, mergetest.Others("reference")...)
}
