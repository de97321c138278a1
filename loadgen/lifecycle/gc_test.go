package lifecycle

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// configMap creates a config map with owners. A name with a ! blocks the deletion of that owner.
func (w *world) configMap(name string, owners ...string) *corev1.ConfigMap {
	w.Helper()
	c := &corev1.ConfigMap{ObjectMeta: named(name)}
	for _, o := range owners {
		owner, blocks := strings.CutSuffix(o, "!")
		uid := types.UID("absent-" + owner)
		if found, err := w.users.CoreV1().ConfigMaps("default").Get(w.Context(), owner, metav1.GetOptions{}); err == nil {
			uid = found.UID
		}
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: uid, BlockOwnerDeletion: &blocks,
		})
	}
	created, err := w.users.CoreV1().ConfigMaps("default").Create(w.Context(), c, metav1.CreateOptions{})
	return must(w, created, err)
}

// state has each config map, with the owners that it names and a + if it is being deleted.
func (w *world) state() string {
	w.Helper()
	list, err := w.users.CoreV1().ConfigMaps("default").List(w.Context(), metav1.ListOptions{})
	var out []string
	for _, c := range must(w, list, err).Items {
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
	return strings.Join(out, " ")
}

// TestCollector plays the rules of the garbage collector.
func TestCollector(t *testing.T) {
	data, err := os.ReadFile("testdata/collector.txt")
	if err != nil {
		t.Fatal(err)
	}
	scripts := strings.Split(string(data), "\n## ")[1:]
	if len(scripts) < 10 {
		t.Errorf("%d rules", len(scripts))
	}
	for _, text := range scripts {
		name, script, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, nil, "", func(w *world) {
				for line := range strings.Lines(strings.TrimSpace(script)) {
					step, want, _ := strings.Cut(strings.TrimSpace(line), "->")
					w.step(strings.Fields(step))
					w.settle()
					if got := w.state(); got != strings.TrimSpace(want) {
						t.Errorf("%s: %q, want %q", strings.TrimSpace(step), got, strings.TrimSpace(want))
					}
				}
			})
		})
	}
}

func (w *world) step(words []string) {
	w.Helper()
	maps := w.users.CoreV1().ConfigMaps("default")
	patch := func(name, patch string) {
		_, err := maps.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(w, 0, err)
	}
	switch words[0] {
	case "-":
		opts := metav1.DeleteOptions{}
		if len(words) > 2 {
			opts.PropagationPolicy = new(metav1.DeletionPropagation(words[2]))
		}
		must(w, 0, maps.Delete(w.Context(), words[1], opts))
	case "hold":
		patch(words[1], `{"metadata":{"finalizers":["example.com/hold"]}}`)
	case "free":
		c, err := maps.Get(w.Context(), words[1], metav1.GetOptions{})
		must(w, c, err).Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == "example.com/hold" })
		_, err = maps.Update(w.Context(), c, metav1.UpdateOptions{})
		must(w, 0, err)
	case "disown":
		patch(words[1], `{"metadata":{"ownerReferences":null}}`)
	default:
		w.configMap(words[0], words[min(len(words), 2):]...)
	}
}

// TestCollectorRaces: other writers change dependents at the same time, and none is left behind.
func TestCollectorRaces(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		inWorld(t, Options{}, nil, "", func(w *world) {
			w.configMap("a")
			for i := range 20 {
				w.configMap("b"+string(rune('a'+i)), "a!")
			}
			w.settle()
			maps := w.users.CoreV1().ConfigMaps("default")
			must(w, 0, maps.Delete(w.Context(), "a", metav1.DeleteOptions{PropagationPolicy: &policy}))
			for n := range 200 {
				name := "b" + string(rune('a'+n%20))
				c, err := maps.Get(w.Context(), name, metav1.GetOptions{})
				if err != nil {
					continue
				}
				c.Labels = map[string]string{"n": string(rune('a' + n/20))}
				_, _ = maps.Update(w.Context(), c, metav1.UpdateOptions{}) // a conflict, or gone
			}
			w.settle()
			got := strings.Fields(w.state())
			left := 0
			if policy == metav1.DeletePropagationOrphan {
				left = 20
			}
			if len(got) != left || slices.ContainsFunc(got, func(s string) bool { return len(s) != 2 }) {
				t.Errorf("%s: %v, want %d config maps without owners", policy, got, left)
			}
		})
	}
}
