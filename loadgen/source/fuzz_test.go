package source

import (
	"errors"
	"testing"
	"time"

	"watchlab/loadgen/manifest"
)

// FuzzStatic: a manifest of static pods has pods that are bound to the node, or an error.
func FuzzStatic(f *testing.F) {
	for _, s := range []string{
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}], tolerations: [{operator: Exists}]}\n",
		"apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}, null]", "kind: Pod\napiVersion: v1\nmetadata: {generateName: a}", "{}", "a: &a [*a]",
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	opts := StaticOptions{NodeName: "Node-1"}.complete()
	f.Fuzz(func(t *testing.T, data []byte, isFile bool) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		pods, err := opts.read("f", data, isFile)
		var at *manifest.Error
		if err != nil && !errors.Is(err, ErrStaticPod) && !errors.As(err, &at) {
			t.Fatal(err)
		}
		for _, p := range pods {
			if p.Spec.NodeName != opts.NodeName || p.UID == "" || p.Namespace == "" || len(p.Spec.Containers) == 0 {
				t.Fatalf("%+v", p)
			}
		}
	})
}
