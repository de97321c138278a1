package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestScale(t *testing.T) {
	theirs := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	client := fake.NewClientset(theirs)
	nodes := client.CoreV1().Nodes()
	for _, step := range []struct{ n, made, removed int }{{20, 20, 0}, {20, 0, 0}, {25, 5, 0}, {7, 0, 18}, {0, 0, 7}} {
		made, removed, err := scale(t.Context(), nodes, step.n)
		if err != nil || made != step.made || removed != step.removed {
			t.Fatalf("to %d: created %d, removed %d, %v; want %+v", step.n, made, removed, err, step)
		}
		list, err := nodes.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != step.n+1 {
			t.Errorf("to %d: %d own nodes", step.n, len(list.Items)-1)
		}
	}
	if _, err := nodes.Get(t.Context(), "theirs", metav1.GetOptions{}); err != nil {
		t.Errorf("a node that isn't ours: %v", err)
	}
}

// TestNode checks that a node has KWOK's annotation, and the taint that keeps
// the scheduler away.
func TestNode(t *testing.T) {
	n := node(name(3))
	if n.Annotations["kwok.x-k8s.io/node"] != "fake" {
		t.Errorf("annotations %v", n.Annotations)
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("taints %v", n.Spec.Taints)
	}
}

func TestBadInput(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--count", "5"}, "--context"},
		{[]string{"--context", "x", "--count", "-1"}, "--count"},
		{[]string{"--context", "x", "--count", "10001"}, "--count"},
		{[]string{"--context", "x", "more"}, "more"},
		{[]string{"--kubeconfig", config, "--context", "none-such"}, "none-such"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), tc.args, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), tc.want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit code %d, stderr %q; want 2 and %q", tc.args, code, &stderr, tc.want)
		}
	}
}
