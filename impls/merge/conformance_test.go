package merge_test

import (
	"testing"
	"time"

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
	mergetest.Compare(t, reference(t), mergetest.Others("reference")...)
}

// FuzzSameNotifications is the same with updates that a fuzzer makes up. A byte
// is a choice; see package mergetest.
func FuzzSameNotifications(f *testing.F) {
	f.Fuzz(func(t *testing.T, choices []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		mergetest.CompareBytes(t, choices, reference(t), mergetest.Others("reference")...)
	})
}

func reference(t *testing.T) merge.Variant {
	t.Helper()
	v, err := merge.Lookup("reference")
	if err != nil {
		t.Fatal(err)
	}
	return v
}
