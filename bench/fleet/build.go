package fleet

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"watchlab/scripts/deploy"
)

const (
	deployDir         = "scripts/deploy"
	baseDir           = deployDir + "/base"
	overlays          = "overlays"
	overlaysDir       = deployDir + "/" + overlays
	kustomizationFile = "kustomization.yaml"
	ownOverlay        = overlaysDir + "/own" // of a user; ../../base is the base there, too
)

// Overlays returns the names of the embedded overlays.
func Overlays() []string {
	entries, err := fs.ReadDir(deploy.Files, overlays)
	if err != nil {
		return nil // The files are embedded.
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Build returns the objects of a run in the order of their application: the namespace, the
// ConfigMap that claims the run's name, …, Jobs. It sends no request. The error is a [*manifest.Error].
func Build(s Spec) ([]*unstructured.Unstructured, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	objects, err := s.kustomize()
	if err != nil {
		return nil, badField("overlay", "%q: %w", s.Overlay, err)
	}
	for _, u := range objects {
		if s.rename(u); u.GetKind() == "Deployment" && u.GetNamespace() == s.Namespace {
			s.Plan.Deployments = append(s.Plan.Deployments, u.GetName())
		}
	}
	for _, u := range objects {
		if err := s.edit(u); err != nil {
			return nil, badField("overlay", "%s %s: %w", u.GetKind(), u.GetName(), err)
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
	return u.GetKind() == "ConfigMap" && u.GetName() == r.object("")
}

func (s Spec) kustomize() ([]*unstructured.Unstructured, error) {
	k := kustomizer{files: map[string][]byte{}, names: map[string]string{}}
	if err := k.load(deploy.Files, deployDir); err != nil {
		return nil, err
	}
	dir := baseDir
	switch {
	case s.Overlay == "":
	case slices.Contains(Overlays(), s.Overlay):
		dir = path.Join(overlaysDir, s.Overlay)
	default:
		dir = ownOverlay
		if _, err := os.Stat(filepath.Join(s.Overlay, kustomizationFile)); err != nil {
			return nil, fmt.Errorf("neither one of %s nor a directory with a %s", strings.Join(Overlays(), ", "), kustomizationFile)
		}
		if err := k.load(os.DirFS(s.Overlay), ownOverlay); err != nil {
			return nil, err
		}
	}
	err := k.add(dir, 0)
	for _, u := range k.objects {
		k.refer(u.Object)
	}
	return k.objects, err
}
