package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet"
)

// specOf returns the Spec of a run with two pods.
func specOf(overlay, namespace, run string) fleet.Spec {
	return fleet.Spec{
		Plan: fleet.Plan{
			Run: run, Pods: 2, Experiment: json.RawMessage(`{"storm":{"name":"gang"}}`),
		},
		Files:     map[string][]byte{"mine.yaml": []byte("profiles: []\n"), "trace.jsonl.zst": {0xff, 0xfe}},
		Namespace: namespace, Overlay: overlay,
	}
}

// TestManifests applies the objects of each overlay, and each folder as `kubectl apply -k` does, to a real
// API server with strict field validation. The namespaces accept our pods, and none that is not restricted.
func TestManifests(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	client := kubernetes.NewForConfigOrDie(cp.Config())
	program := programs.Pinned(t, "kubectl")
	try := func(stdin []byte, args ...string) error {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--kubeconfig", cp.Kubeconfig()}, args...)...)
		cmd.Stdin = bytes.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return err
	}
	kubectl := func(stdin []byte, args ...string) {
		t.Helper()
		if err := try(stdin, args...); err != nil {
			t.Fatal(err)
		}
	}
	folders, err := filepath.Glob("../../scripts/deploy/overlays/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("overlays %q, %v", folders, err)
	}
	overlays := []string{""}
	for _, folder := range append(folders, "../../scripts/deploy/base") {
		name := filepath.Base(folder)
		now := must(exec.CommandContext(t.Context(), program, "kustomize", folder).Output())(t)
		switch built, err := os.ReadFile("../fleet/built/" + name + ".yaml"); {
		case err != nil: // kind-observed
			overlays = append(overlays, filepath.Join(t.TempDir(), name+".yaml"))
			if err := os.WriteFile(overlays[len(overlays)-1], now, 0o600); err != nil {
				t.Fatal(err)
			}
		case !bytes.Equal(now, built):
			t.Errorf("%s was changed after make manifests", folder)
		}
	}
	var namespaces []string
	for _, overlay := range append(overlays, fleet.Overlays()...) {
		n := len(namespaces)
		namespaces = append(namespaces, fmt.Sprintf("lab-%d", n))
		kubectl(documents(t, specOf(overlay, namespaces[n], fmt.Sprintf("run-%d", n)), nil), "apply", "--server-side", "--validate=strict", "-f", "-")
	}
	wrong := documents(t, specOf("kind", namespaces[0], "wrong"), func(job *unstructured.Unstructured) error {
		return unstructured.SetNestedField(job.Object, int64(3), "spec", "replicas")
	})
	if err := try(wrong, "apply", "--server-side", "--validate=strict", "-f", "-"); err == nil || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("a Job with spec.replicas: %v", err)
	}
	kubectl(nil, "create", "namespace", "watchlab") // All other objects need it; theirs are dry runs.
	for _, folder := range append(folders, "../../scripts/deploy/base") {
		kubectl(nil, "apply", "--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server", "-k", folder)
	}

	bad := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, namespace := range namespaces {
		programs.Eventually(t, "the pods of "+namespace+" are made", func() error {
			jobs, err := client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
			deployments, otherErr := client.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
			if err := errors.Join(err, otherErr); err != nil || len(jobs.Items) == 0 {
				return errors.Join(errors.New("no Job"), err)
			}
			for _, j := range jobs.Items {
				if j.Status.Active != *j.Spec.Completions {
					return fmt.Errorf("job %s: %d of %d pods", j.Name, j.Status.Active, *j.Spec.Completions)
				}
			}
			for _, d := range deployments.Items {
				if d.Status.Replicas != *d.Spec.Replicas {
					return fmt.Errorf("deployment %s: %d of %d pods", d.Name, d.Status.Replicas, *d.Spec.Replicas)
				}
			}
			return nil
		})
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), bad, metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s accepted a privileged pod: %v", namespace, err)
		}
	}
}

// documents returns the objects of a run as YAML. change, if not nil, changes the last one, the Job.
func documents(t *testing.T, spec fleet.Spec, change func(*unstructured.Unstructured) error) []byte {
	t.Helper()
	objects, err := fleet.Build(spec)
	if err == nil && change != nil {
		err = change(objects[len(objects)-1])
	}
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, o := range objects {
		text := must(yaml.Marshal(o.Object))(t)
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return out.Bytes()
}
