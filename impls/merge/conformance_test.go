package merge_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"watchlab/impls/conformance"
	"watchlab/impls/merge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range merge.Variants() {
		t.Run(v.Name, func(t *testing.T) { conformance.RunMerge(t, v) })
	}
}

// FuzzSameNotifications holds the variants against the reference on updates that a fuzzer makes up. A
// byte is a choice. bench/kubelet holds the reference against the real kubelet.
func FuzzSameNotifications(f *testing.F) {
	f.Fuzz(func(t *testing.T, choices []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		conformance.CompareMerge(t, choices, merge.Variants()...)
	})
}
