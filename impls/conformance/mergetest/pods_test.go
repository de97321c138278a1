package mergetest

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestRealisticPodIsAboutTenKilobytes(t *testing.T) {
	encoded, err := json.Marshal(RealisticPod(3))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(encoded); n < 9_000 || n > 12_000 {
		t.Errorf("%d bytes", n)
	}
}

func TestChangesChangeWhatTheySay(t *testing.T) {
	same, status, spec := RealisticPod(3), RealisticPod(3), RealisticPod(3)
	ChangeStatus(status)
	ChangeSpec(spec)
	base := RealisticPod(3)
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

func TestPodsShareNothing(t *testing.T) {
	a, b := RealisticPod(3), RealisticPod(3)
	a.Labels["app"] = "changed"
	a.Spec.Containers[0].Env[0].Value = "changed"
	a.ManagedFields[0].Operation = "changed"
	if !reflect.DeepEqual(b, RealisticPod(3)) {
		t.Error("two pods of one number share memory")
	}
}
