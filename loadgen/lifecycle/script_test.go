package lifecycle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// TestScripts plays testdata/script: a line creates an object or, after a minus, deletes one; others say what an
// expression finds in an object once the cluster is quiet.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split(string(data), "\n## ")[1:] {
			name, script, _ := strings.Cut(text, "\n")
			t.Run(name, func(t *testing.T) {
				inWorld(t, Options{}, nil, "", func(w *world) {
					for line := range strings.Lines(strings.TrimSpace(script)) {
						w.play(strings.TrimSpace(line))
					}
				})
			})
		}
	}
}

// play plays a line: an object, "- VERSION KIND [NAMESPACE/]NAME [POLICY]", or "VERSION KIND [NAMESPACE/]NAME EXPRESSION -> RESULTS".
func (w *world) play(line string) {
	w.Helper()
	if strings.HasPrefix(line, "{") {
		u := &unstructured.Unstructured{}
		must(w, 0, yaml.Unmarshal([]byte(line), &u.Object))
		must(w, 0, w.server.Create(u))
		return
	}
	rest, remove := strings.CutPrefix(line, "- ")
	words := strings.SplitN(rest, " ", 4)
	version, err := schema.ParseGroupVersion(words[0])
	resource, _ := meta.UnsafeGuessKindToResource(must(w, version, err).WithKind(words[1]))
	namespace, name, namespaced := strings.Cut(words[2], "/")
	var objects dynamic.ResourceInterface = w.dynamic.Resource(resource)
	if namespaced {
		objects = w.dynamic.Resource(resource).Namespace(namespace)
	} else {
		name = namespace
	}
	if remove {
		opts := metav1.DeleteOptions{}
		if len(words) > 3 {
			opts.PropagationPolicy = new(metav1.DeletionPropagation(words[3]))
		}
		must(w, 0, objects.Delete(w.Context(), name, opts))
		return
	}
	w.settle()
	expression, want, _ := strings.Cut(words[3], " ->")
	compiled, err := compile(expression)
	code := must(w, compiled, err)
	got := []string{"gone"}
	if o, err := objects.Get(w.Context(), name, metav1.GetOptions{}); err == nil {
		got = results(code, o.Object)
	} else if name == "*" && apierrors.IsNotFound(err) {
		list, err := objects.List(w.Context(), metav1.ListOptions{})
		got = results(code, map[string]any{"items": must(w, list, err).UnstructuredContent()["items"]})
	}
	if slices.Sort(got); strings.Join(got, " ") != strings.TrimSpace(want) {
		w.Errorf("%s: %q", line, strings.Join(got, " "))
	}
}
