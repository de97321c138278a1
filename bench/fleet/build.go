package fleet

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"watchlab/loadgen/manifest"
)

// built has the objects of the base and of overlays in scripts/deploy (make manifests).
//
//go:embed built
var built embed.FS

const (
	builtDir = "built"
	plain    = "base" // name of the manifests without an overlay
	// Namespace and exampleRun are the names in the manifests. Build replaces them.
	Namespace  = "watchlab"
	exampleRun = "example"
)

// Overlays returns the names of the embedded overlays.
func Overlays() []string { return manifest.BuiltIn(built, builtDir+"/*.yaml", plain) }

// Build returns the objects of a run in the order of their application: the namespace, the
// ConfigMap that claims the run's name, …, Jobs. It sends no request. The error is a [*manifest.Error].
func Build(s Spec) ([]*unstructured.Unstructured, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	objects, err := s.manifests()
	if err != nil {
		return nil, manifest.Bad("overlay", "%q: %w", s.Overlay, err)
	}
	for _, u := range objects {
		s.rename(u)
		if err := s.edit(u); err != nil {
			return nil, manifest.Bad("overlay", "%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	// Objects come after those that they refer to.
	ref := s.Ref()
	rank := func(u *unstructured.Unstructured) int {
		switch kind := u.GetKind(); {
		case kind == "Namespace":
			return 0
		case ref.isClaim(u):
			return 1
		case kind == "Deployment":
			return 3
		case kind == "Job":
			return 4
		}
		return 2
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, nil
}

// isClaim reports whether u is the ConfigMap that claims the name of the run.
func (r Ref) isClaim(u *unstructured.Unstructured) bool {
	return u.GetKind() == "ConfigMap" && u.GetName() == r.object()
}

// manifests reads the objects of the overlay.
func (s Spec) manifests() (objects []*unstructured.Unstructured, err error) {
	var data []byte
	if name := cmp.Or(s.Overlay, plain); s.Overlay == "" || slices.Contains(Overlays(), name) {
		data, err = built.ReadFile(path.Join(builtDir, name+".yaml"))
	} else if data, err = os.ReadFile(name); err != nil {
		err = fmt.Errorf("neither one of %s nor a file of manifests, as kubectl kustomize writes it: %w", strings.Join(Overlays(), ", "), err)
	}
	if err != nil {
		return nil, err
	}
	for in := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		switch err := in.Decode(u); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		}
		objects = append(objects, u)
	}
}
