package patch

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestHostile: a patch of at most 3 MB, the limit of a body, that copies or nests without measure is refused, and so is
// one at which apimachinery panics.
func TestHostile(t *testing.T) {
	registry, widgets := withWidgets(t)
	e := New()
	configMaps := lookup(t, registry, "", "v1", "configmaps")
	made, err := e.Create(configMaps, []byte(`{"metadata":{"name":"x"},"data":{"a":"b"}}`), Request{Namespace: "ns", FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	panics := Request{Namespace: "ns", Name: "x", ContentType: string(types.StrategicMergePatchType), FieldManager: "m"}
	if _, err = e.Patch(configMaps, made.Object, []byte(`{"data":{"$retainKeys":[{}],"a":1}}`), panics); !apierrors.IsBadRequest(err) {
		t.Errorf("%v, want a bad request", err)
	}
	created, err := e.Create(widgets, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x","annotations":{"a":"`+strings.Repeat("x", 1000)+`"}},"spec":{"size":"small"}}`), Request{Namespace: "ns", FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	created.Object.(metav1.Object).SetResourceVersion("1")
	var copies []string
	for i := range 16 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/metadata","path":"/metadata/m%d"}`, i))
	}
	var members []string
	for i := range mostMembers + 1 {
		members = append(members, fmt.Sprintf(`"k%d":"v"`, i))
	}
	many := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"x","annotations":{` + strings.Join(members, ",") + `}}}`
	const deep = 9000
	for name, tc := range map[string]struct {
		kind       types.PatchType
		body, want string
	}{
		"copies":       {types.JSONPatchType, "[" + strings.Join(copies, ",") + "]", "rejected our request"},
		"members":      {types.MergePatchType, many, "members of a map"},
		"applied":      {types.ApplyYAMLPatchType, many, "members of a map"},
		"nested merge": {types.MergePatchType, strings.Repeat(`{"a":`, deep) + `"` + strings.Repeat("x", 2<<20) + `"` + strings.Repeat("}", deep), "too deeply nested"},
		"nested value": {types.JSONPatchType, `[{"op":"add","path":"/spec","value":` + strings.Repeat(`{"a":`, deep) + `"` + strings.Repeat("x", 2<<20) + `"` + strings.Repeat("}", deep) + "}]", "too deeply nested"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := e.Patch(widgets, created.Object, []byte(tc.body), Request{Namespace: "ns", Name: "x", ContentType: string(tc.kind), FieldManager: "m"})
			runtime.ReadMemStats(&after)
			var status apierrors.APIStatus
			if !errors.As(err, &status) || !strings.Contains(fmt.Sprint(err, status.Status().Details), tc.want) {
				t.Errorf("%.200v; want %q", err, tc.want)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
				t.Errorf("%d bytes allocated for a patch of %d", n, len(tc.body))
			}
		})
	}
}
