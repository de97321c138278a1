package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"watchlab/bench/internal/golden"
	"watchlab/loadgen/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSpec returns a valid Spec.
func testSpec() Spec {
	return Spec{
		Plan: Plan{
			Run: "mine", Pods: 3, Experiment: json.RawMessage(`{"storm":{"name":"/etc/watchlab/mine.yaml"},"paces":["max","2000"]}`),
			Barrier: metav1.Duration{Duration: time.Minute},
		},
		Files:     map[string][]byte{"mine.yaml": []byte("profiles:\n- profile: gang\n")},
		Namespace: "lab", Image: "registry.example/watchlab:1", Overlay: "kind",
	}
}

// TestBuild compares the objects with a golden file.
func TestBuild(t *testing.T) {
	objects, err := Build(testSpec())
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
		got.Write(data)
	}
	golden.Check(t, "run.yaml", got.String())
	if strings.Contains(got.String(), "watchlab-example") || strings.Contains(got.String(), "namespace: watchlab\n") {
		t.Error("the example's names remain")
	}
}

// jobOf returns the Job of the playing pods.
func jobOf(t *testing.T, objects []*unstructured.Unstructured) *batchv1.Job {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == "Job" && o.GetName() == "watchlab-mine" {
			j := &batchv1.Job{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, j); err != nil {
				t.Fatal(err)
			}
			return j
		}
	}
	t.Fatal("there is no Job")
	return nil
}

// TestOverlays: each overlay builds for any number of pods, and patches their Job.
func TestOverlays(t *testing.T) {
	if have := Overlays(); !slices.Contains(have, "kind") || !slices.Contains(have, "large") {
		t.Fatalf("overlays %q", have)
	}
	for _, overlay := range append(Overlays(), "") {
		s := testSpec()
		s.Overlay, s.Plan.Pods = overlay, 7
		objects, err := Build(s)
		if err != nil {
			t.Errorf("%s: %v", overlay, err)
			continue
		}
		j := jobOf(t, objects).Spec
		if *j.Completions != 7 || *j.Parallelism != 7 || *j.MaxFailedIndexes > 7 || j.Template.Spec.Containers[0].Image != s.Image {
			t.Errorf("%s: %d completions, %d at once, %d may fail, of image %s", overlay,
				*j.Completions, *j.Parallelism, *j.MaxFailedIndexes, j.Template.Spec.Containers[0].Image)
		}
		guaranteed := map[string]bool{}
		for _, o := range objects {
			if o.GetLabels()[RunLabel] != "mine" || o.GetKind() != "Job" && o.GetKind() != "Deployment" {
				continue
			}
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			if err != nil {
				t.Fatal(err)
			}
			var c corev1.Container
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(containers[0].(map[string]any), &c); err != nil {
				t.Fatal(err)
			}
			guaranteed[c.Resources.Requests.Cpu().String()+"/"+c.Resources.Limits.Cpu().String()] = true
		}
		if overlay != "" && len(guaranteed) != 1 {
			t.Errorf("%s: pods of different sizes: %v", overlay, guaranteed)
		}

	}
	// The overlay large allows five failed indexes, for any number of pods.
	s := testSpec()
	s.Overlay, s.Plan.Pods = "large", 1000
	objects, err := Build(s)
	if err != nil {
		t.Fatal(err)
	}
	if n := *jobOf(t, objects).Spec.MaxFailedIndexes; n != 5 {
		t.Errorf("of 1000 pods %d may fail, want 5", n)
	}
}

// TestOwnOverlay: the manifests of a user become those of the run.
func TestOwnOverlay(t *testing.T) {
	kind, err := built.ReadFile(builtDir + "/kind.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := testSpec()
	s.Overlay = filepath.Join(t.TempDir(), "mine.yaml")
	build := func(old, text string) ([]*unstructured.Unstructured, error) {
		t.Helper()
		changed := strings.Replace(string(kind), old, text, 1)
		if changed == string(kind) {
			t.Fatalf("the manifests have no %q", old)
		}
		if err := os.WriteFile(s.Overlay, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		return Build(s)
	}
	const pod = "    spec:\n      automount"
	objects, err := build(pod, "    spec:\n      nodeSelector: {pool: x}\n      automount")
	if err != nil {
		t.Fatal(err)
	}
	j := jobOf(t, objects)
	if j.Spec.Template.Spec.NodeSelector["pool"] != "x" || j.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String() != "250m" {
		t.Errorf("the overlay is not in the Job: %+v", j.Spec.Template.Spec)
	}
	for name, change := range map[string][2]string{
		"a field too many":  {pod, "    spec:\n      replicas: 3\n      automount"},
		"another container": {"        name: watchlab\n", "        name: other\n"},
		"no object":         {"kind: Namespace\n", ""},
		"no YAML":           {"kind: Namespace\n", "kind: [\n"},
	} {
		if _, err := build(change[0], change[1]); !errorOf(err, "overlay") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// errorOf reports whether an error is that of a field.
func errorOf(err error, field string) bool {
	bad, ok := errors.AsType[*manifest.Error](err)
	return ok && bad.Field == field
}

// FuzzParsePlan: a plan is valid and reads the same when it is written, or the error names the file.
func FuzzParsePlan(f *testing.F) {
	for _, s := range []string{
		"run: a\npods: 4\nexperiment: {rounds: 1}\nbarrier: 10s\n",
		"{run: a, pods: 1, pyroscope: 'http://x'}",
		"run: a\nrun: b\n", "pods: 99999999999999999999", "experiment: &a [*a]", "barrier: -1ns", "[]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		p, err := ParsePlan("plan.yaml", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "plan.yaml") {
				t.Fatal(err)
			}
			return
		}
		text, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParsePlan("plan.yaml", text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if other, err := again.YAML(); err != nil || string(other) != string(text) {
			t.Fatalf("%s reads as %s, %v", text, other, err)
		}
	})
}
