package workload

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestSubresource changes the status of an object with the time of each request.
func TestSubresource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	err := os.WriteFile(path, []byte(`objects:
- object: {apiVersion: v1, kind: Node, metadata: {name: a}}
  change:
  - {at: 1s, for: 2s, rate: 1, subresource: status, set: {status.conditions: [[{type: Ready, lastHeartbeatTime: "{now}"}]]}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Read(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		if err := w.Create(t.Context(), client, mapper); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := w.Play(t.Context(), 1, client, mapper); err != nil {
			t.Fatal(err)
		}
		actions := client.Actions()[1:]
		if len(actions) != 2 {
			t.Fatalf("%d requests, want 2: %v", len(actions), actions)
		}
		for i, a := range actions {
			if a.GetVerb() != "patch" || a.GetSubresource() != "status" {
				t.Errorf("request %d: %s of %q, want a patch of status", i, a.GetVerb(), a.GetSubresource())
			}
			var patch struct {
				Status struct {
					Conditions []struct{ LastHeartbeatTime time.Time }
				}
			}
			if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
				t.Fatal(err)
			}
			if got, want := patch.Status.Conditions[0].LastHeartbeatTime, began.Add(time.Duration(i+1)*time.Second); !got.Equal(want) {
				t.Errorf("request %d: time %v, want %v", i, got, want)
			}
		}
	})
}
