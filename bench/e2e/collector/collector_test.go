// Package collector plays the rules of loadgen/lifecycle's garbage collector to the real one.
package collector

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
)

// TestRules: kube-controller-manager's collector leaves the state that the stand-in leaves after each step.
func TestRules(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "loadgen", "lifecycle", "testdata", "collector.txt"))
	if err != nil {
		t.Fatal(err)
	}
	cp := controlplane.ForTest(t, controlplane.Options{})
	programs.Start(t, exec.Command(programs.Pinned(t, "kube-controller-manager"),
		"--kubeconfig", cp.Kubeconfig(), "--secure-port", "0", "--leader-elect=false", "--controllers", "garbage-collector-controller",
		"--authentication-skip-lookup"), -1) // the interrupt ends it
	config := cp.Config()
	config.QPS = -1
	client := kubernetes.NewForConfigOrDie(config)
	scripts := strings.Split(string(data), "\n## ")[1:]
	t.Run("rules", func(t *testing.T) {
		for i, text := range scripts {
			name, script, _ := strings.Cut(text, "\n")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				space := fmt.Sprint("rule-", i)
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}
				if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				play(t, client.CoreV1().ConfigMaps(space), script)
			})
		}
	})
}

// play plays a script. Each state is awaited.
func play(t *testing.T, maps typed.ConfigMapInterface, script string) {
	for line := range strings.Lines(strings.TrimSpace(script)) {
		text, want, _ := strings.Cut(strings.TrimSpace(line), "->")
		if err := step(t, maps, strings.Fields(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want = strings.TrimSpace(want)
		programs.Eventually(t, strings.TrimSpace(text), func() error {
			got, err := state(t, maps)
			if err == nil && got != want {
				err = fmt.Errorf("the state is %q, want %q", got, want)
			}
			return err
		})
	}
}

func step(t *testing.T, maps typed.ConfigMapInterface, words []string) error {
	patch := func(text string) error {
		_, err := maps.Patch(t.Context(), words[1], types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	switch words[0] {
	case "-":
		opts := metav1.DeleteOptions{}
		if len(words) > 2 {
			opts.PropagationPolicy = new(metav1.DeletionPropagation(words[2]))
		}
		return maps.Delete(t.Context(), words[1], opts)
	case "hold":
		return patch(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	case "disown":
		return patch(`{"metadata":{"ownerReferences":null}}`)
	case "free":
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			c, err := maps.Get(t.Context(), words[1], metav1.GetOptions{})
			if err != nil {
				return err
			}
			c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == "example.com/hold" })
			_, err = maps.Update(t.Context(), c, metav1.UpdateOptions{})
			return err
		})
	}
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: words[0]}}
	for _, o := range words[min(len(words), 2):] {
		owner, blocks := strings.CutSuffix(o, "!")
		uid := types.UID("absent-" + owner)
		if found, err := maps.Get(t.Context(), owner, metav1.GetOptions{}); err == nil {
			uid = found.UID
		}
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: uid, BlockOwnerDeletion: &blocks,
		})
	}
	_, err := maps.Create(t.Context(), c, metav1.CreateOptions{})
	return err
}

// state has each config map, as collector.txt writes it.
func state(t *testing.T, maps typed.ConfigMapInterface) (string, error) {
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var out []string
	for _, c := range list.Items {
		text := c.Name
		if c.DeletionTimestamp != nil {
			text += "+"
		}
		for _, ref := range c.OwnerReferences {
			text += "<" + ref.Name
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " "), nil
}
