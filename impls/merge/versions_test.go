package merge_test

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"watchlab/impls/conformance"
	"watchlab/impls/merge"
)

// TestVersionsAreBelieved: a pod from the API server with its last
// resourceVersion is not compared. A pod from another source or without a version
// is. Here our variants deviate from kubelet, which would detect the difference.
func TestVersionsAreBelieved(t *testing.T) {
	lie := func(pod *v1.Pod) *v1.Pod {
		other := pod.DeepCopy()
		other.Status.Message = "changed"
		return other
	}
	for _, v := range merge.Variants() {
		if v.Baseline() {
			continue
		}
		for _, tt := range []struct {
			source, version string
			believed        bool
		}{
			{merge.APISource, "7", true},
			{merge.APISource, "", false},
			{merge.FileSource, "7", false},
			{merge.HTTPSource, "7", false},
			{"api2", "7", false},
		} {
			for _, op := range []merge.Op{merge.SET, merge.UPDATE} {
				pod := conformance.RealisticPod(1)
				pod.ResourceVersion = tt.version
				got := notifications(t, v, tt.source,
					merge.PodUpdate{Op: merge.SET, Pods: []*v1.Pod{pod}},
					merge.PodUpdate{Op: op, Pods: []*v1.Pod{lie(pod)}})
				if sent := len(got) == 2; sent == tt.believed {
					t.Errorf("%s: a %v from %s with version %q that lies was sent: %v", v.Name, op, tt.source, tt.version, sent)
				}
			}
		}
	}
}

// notifications returns the notifications of a source's updates.
func notifications(t *testing.T, v merge.Variant, source string, updates ...merge.PodUpdate) []merge.PodUpdate {
	t.Helper()
	m, err := v.New(merge.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, update := range updates {
		if err := m.Merge(context.Background(), source, update); err != nil {
			t.Fatal(err)
		}
	}
	m.Close()
	var got []merge.PodUpdate
	for update := range m.Updates() {
		got = append(got, update)
	}
	return got
}
