package patch

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestReplay makes a change on an object that others have changed.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct{ from, to, onto, want string }{
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
			var typed [4]runtime.Object
			for i, text := range []string{c.from, c.to, c.onto, c.want} {
				typed[i] = &corev1.Node{}
				if err := yaml.UnmarshalStrict([]byte(text), typed[i]); err != nil {
					t.Fatal(err)
				}
			}
			before := typed[2].DeepCopyObject()
			got, err := Replay(typed[0], typed[1], typed[2])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plainOf(t, typed[3]), plainOf(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, typed[2]); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}

// TestReplayUntyped: maps of custom resources are merged, their lists are replaced.
func TestReplayUntyped(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	from := object(`{metadata: {name: w, resourceVersion: "1"}, spec: {size: 1, names: [a]}, status: {ready: 0, gone: 1}}`)
	to := object(`{metadata: {name: w, resourceVersion: "2"}, spec: {size: 1, names: [a, b]}, status: {ready: 1, nested: {a: b}}}`)
	onto := object(`{metadata: {name: w, resourceVersion: "9", annotations: {x: y}}, spec: {size: 5, names: [c]}, status: {ready: 0, gone: 1, mine: [1]}}`)
	want := object(`{metadata: {name: w, resourceVersion: "9", annotations: {x: y}}, spec: {size: 5, names: [a, b]}, status: {ready: 1, nested: {a: b}, mine: [1]}}`)
	before := onto.DeepCopy()
	got, err := Replay(from, to, onto)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plainOf(t, want), plainOf(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := unstructured.SetNestedField(got.(*unstructured.Unstructured).Object, "z", "metadata", "annotations", "x"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, onto); diff != "" {
		t.Errorf("the object was changed:\n%s", diff)
	}
	if _, err := Replay(from, to, &corev1.Pod{}); err == nil {
		t.Error("another type is taken")
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

// BenchmarkReplay measures a storm's change of a node's status after a client's write of its spec, or of
// the same conditions.
func BenchmarkReplay(b *testing.B) {
	node := func(beat, ready, taint string) *corev1.Node {
		n := &corev1.Node{}
		text := `{metadata: {name: n, labels: {a: b, c: d}}, spec: {taints: [` + taint + `]}, status: {conditions: [
{type: Ready, status: "` + ready + `", lastHeartbeatTime: "` + beat + `"}, {type: Disk, status: "False"}, {type: Memory, status: "False"}]}}`
		if err := yaml.UnmarshalStrict([]byte(text), n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	const one, two = "2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"
	for name, onto := range map[string]*corev1.Node{
		"other": node(one, "True", "{key: k, effect: NoExecute}"), "same": node(one, "Unknown", ""),
	} {
		b.Run("fields="+name, func(b *testing.B) {
			from, to := node(one, "True", ""), node(two, "True", "")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Replay(from, to, onto); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
