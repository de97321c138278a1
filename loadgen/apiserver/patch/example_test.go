package patch_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
)

// Two managers apply the same field. The second one gets a conflict that names the first.
func ExampleEditor_Patch() {
	settings, _ := resources.New().Lookup("", "v1", "configmaps")
	editor := patch.New()
	apply := func(current *corev1.ConfigMap, manager, level string) (patch.Result, error) {
		body := fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {level: %s}}", level)
		req := patch.Request{Namespace: "default", Name: "settings", ContentType: "application/apply-patch+yaml", FieldManager: manager}
		if current == nil {
			return editor.Patch(settings, nil, []byte(body), req)
		}
		return editor.Patch(settings, current, []byte(body), req)
	}
	made, err := apply(nil, "alice", "high")
	fmt.Println(made.Unchanged, err)
	current := made.Object.(*corev1.ConfigMap)
	current.ResourceVersion = "1" // set by the store
	_, err = apply(current, "bob", "low")
	fmt.Println(err)
	same, err := apply(current, "alice", "high")
	fmt.Println(same.Unchanged, err)
	// Output:
	// false <nil>
	// Apply failed with 1 conflict: conflict with "alice": .data.level
	// true <nil>
}
