package patch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestReplay makes a change on an object that other writers have changed.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct{ from, to, onto, want string }{
		"maps of a custom resource are merged, its lists are replaced": {
			from: `{kind: Widget, metadata: {name: w, resourceVersion: "1"}, spec: {size: 1, names: [a]}, status: {ready: 0, gone: 1}}`,
			to:   `{kind: Widget, metadata: {name: w, resourceVersion: "2"}, spec: {size: 1, names: [a, b]}, status: {ready: 1, nested: {a: b}}}`,
			onto: `{kind: Widget, metadata: {name: w, resourceVersion: "9", annotations: {x: y}}, spec: {size: 5, names: [c]}, status: {ready: 0, gone: 1, mine: [1]}}`,
			want: `{kind: Widget, metadata: {name: w, resourceVersion: "9", annotations: {x: y}}, spec: {size: 5, names: [a, b]}, status: {ready: 1, nested: {a: b}, mine: [1]}}`,
		},
		"heartbeat on a tainted node": {
			from: `{metadata: {resourceVersion: "1"}, status: {conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2026-01-01T00:00:00Z"}]}}`,
			to:   `{metadata: {resourceVersion: "2"}, status: {conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2026-01-01T00:00:10Z"}]}}`,
			onto: `{metadata: {resourceVersion: "7", labels: {a: b}}, spec: {taints: [{key: k, effect: NoExecute}]}, status: {conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2026-01-01T00:00:00Z"}]}}`,
			want: `{metadata: {resourceVersion: "7", labels: {a: b}}, spec: {taints: [{key: k, effect: NoExecute}]}, status: {conditions: [{type: Ready, status: "True", lastHeartbeatTime: "2026-01-01T00:00:10Z"}]}}`,
		},
		"both changed a condition": {
			from: `{status: {conditions: [{type: Ready, status: "True", reason: up, lastHeartbeatTime: "2026-01-01T00:00:00Z"}, {type: Disk, status: "False"}]}}`,
			to:   `{status: {conditions: [{type: Ready, status: "True", reason: up, lastHeartbeatTime: "2026-01-01T00:00:10Z"}, {type: Disk, status: "True"}]}}`,
			onto: `{status: {conditions: [{type: Ready, status: Unknown, reason: lost, lastHeartbeatTime: "2026-01-01T00:00:00Z"}, {type: Disk, status: "False"}, {type: Mine, status: "True"}]}}`,
			want: `{status: {conditions: [{type: Ready, status: Unknown, reason: lost, lastHeartbeatTime: "2026-01-01T00:00:10Z"}, {type: Disk, status: "True"}, {type: Mine, status: "True"}]}}`,
		},
		"labels": {
			from: `{metadata: {labels: {same: "1", gone: "1", theirs: "1", removed: "1", both: "1"}}}`,
			to:   `{metadata: {labels: {same: "1", new: "1", theirs: "1", removed: "1", both: "2"}}}`,
			onto: `{metadata: {labels: {same: "1", gone: "1", theirs: "2", both: "3", added: "1"}}}`,
			want: `{metadata: {labels: {same: "1", new: "1", theirs: "2", both: "2", added: "1"}}}`,
		},
		"finalizers": {
			from: `{metadata: {finalizers: [a/a, b/b]}}`,
			to:   `{metadata: {finalizers: [a/a]}}`,
			onto: `{metadata: {finalizers: [a/a, b/b, c/c]}}`,
			want: `{metadata: {finalizers: [a/a, c/c]}}`,
		},
		"a list without keys is replaced": {
			from: `{spec: {taints: [{key: a, effect: NoExecute}]}}`,
			to:   `{spec: {taints: []}}`,
			onto: `{spec: {taints: [{key: a, effect: NoExecute}, {key: b, effect: NoExecute}]}}`,
			want: `{}`,
		},
		"deletion, generation and managed fields stay": {
			from: `{metadata: {generation: 3, managedFields: [{manager: x}]}, spec: {unschedulable: true}}`,
			to:   `{metadata: {generation: 4, managedFields: [{manager: y}]}}`,
			onto: `{metadata: {generation: 7, deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 0, managedFields: [{manager: z}]}, spec: {unschedulable: true}}`,
			want: `{metadata: {generation: 8, deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 0, managedFields: [{manager: z}]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects [4]runtime.Object
			for i, text := range []string{c.from, c.to, c.onto, c.want} {
				objects[i] = &corev1.Node{}
				if strings.Contains(text, "Widget") {
					objects[i] = &unstructured.Unstructured{}
				}
				if err := yaml.UnmarshalStrict([]byte(text), objects[i]); err != nil {
					t.Fatal(err)
				}
			}
			before := objects[2].DeepCopyObject()
			got, err := Replay(objects[0], objects[1], objects[2])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plainOf(t, objects[3]), plainOf(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := Replay(objects[0], objects[1], &corev1.Pod{}); err == nil {
				t.Error("another type is taken")
			}
			// The result of a custom resource shares nothing with the object.
			if u, ok := got.(*unstructured.Unstructured); ok {
				u.SetAnnotations(map[string]string{"x": "z"})
			}
			if diff := cmp.Diff(before, objects[2]); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}

func plainOf(t *testing.T, o runtime.Object) (all map[string]any) {
	t.Helper()
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}
