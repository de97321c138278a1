package pods_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"watchlab/impls/conformance/mergetest/pods"
)

func TestRealisticPodIsAboutTenKilobytes(t *testing.T) {
	encoded, err := json.Marshal(pods.Realistic(3))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(encoded); n < 9_000 || n > 11_500 {
		t.Errorf("%d bytes", n)
	}
}

func TestChangesChangeWhatTheySay(t *testing.T) {
	same, status, spec := pods.Realistic(3), pods.Realistic(3), pods.Realistic(3)
	pods.ChangeStatus(status)
	pods.ChangeSpec(spec)
	base := pods.Realistic(3)
	if !reflect.DeepEqual(base, same) {
		t.Error("two pods of one number differ")
	}
	if reflect.DeepEqual(base.Status, status.Status) || !reflect.DeepEqual(base.Spec, status.Spec) {
		t.Error("ChangeStatus changes something else than the status")
	}
	if reflect.DeepEqual(base.Spec, spec.Spec) || !reflect.DeepEqual(base.Status, spec.Status) {
		t.Error("ChangeSpec changes something else than the spec")
	}
}
