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

func TestPodsShareNothing(t *testing.T) {
	a, b := RealisticPod(3), RealisticPod(3)
	if !reflect.DeepEqual(a, b) {
		t.Error("two pods of one number differ")
	}
	a.Labels["app"] = "changed"
	a.Spec.Containers[0].Env[0].Value = "changed"
	a.ManagedFields[0].Operation = "changed"
	if !reflect.DeepEqual(b, RealisticPod(3)) {
		t.Error("two pods of one number share memory")
	}
}
