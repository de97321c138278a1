package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"watchlab/scripts/deploy"
)

const (
	// The paths match the source tree, because overlays refer to the dashboards.
	deployDir     = "scripts/deploy"
	dashboardsDir = "dashboards"
	baseDir       = deployDir + "/base"
	overlays      = "overlays"
	overlaysDir   = deployDir + "/" + overlays
	kustomization = "kustomization.yaml"
	// ownOverlay is the location of a user's overlay. ../../base is the base there,
	// too.
	ownOverlay = overlaysDir + "/own"
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

// Build returns the objects of a run in the order of their application: the namespace
// first, Jobs last. It sends no request. The error wraps [ErrSpec], [ErrPlan] or
// [ErrOverlay].
func Build(s Spec) ([]*unstructured.Unstructured, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	objects, err := s.kustomize()
	if err != nil {
		return nil, err
	}
	for _, u := range objects {
		if err := s.edit(u); err != nil {
			return nil, fmt.Errorf("%w: %s %s: %w", ErrOverlay, u.GetKind(), u.GetName(), err)
		}
	}
	if s.Plan.Mode == ModeSharedServer {
		objects = append(objects, s.token())
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, nil
}

// rank orders objects after those that they refer to.
func rank(u *unstructured.Unstructured) int {
	switch u.GetKind() {
	case "Namespace":
		return 0
	case "Deployment":
		return 2
	case "Job":
		return 3
	}
	return 1
}

// kustomize builds the manifests.
func (s Spec) kustomize() ([]*unstructured.Unstructured, error) {
	memory := filesys.MakeFsInMemory()
	if err := load(memory, deploy.Files, deployDir); err != nil {
		return nil, err
	}
	if s.Dashboards != nil {
		if err := load(memory, s.Dashboards, dashboardsDir); err != nil {
			return nil, err
		}
	}
	// Components are added to the base, so that the overlay patches their pods, too.
	if err := compose(memory, s.components()); err != nil {
		return nil, err
	}
	dir := baseDir
	switch {
	case s.Overlay == "":
	case slices.Contains(Overlays(), s.Overlay):
		dir = path.Join(overlaysDir, s.Overlay)
	default:
		dir = ownOverlay
		if err := s.loadOverlay(memory); err != nil {
			return nil, err
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(memory, dir)
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrOverlay, s.Overlay, err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range built.Resources() {
		data, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrOverlay, s.Overlay, err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrOverlay, s.Overlay, err)
		}
		objects = append(objects, u)
	}
	return objects, nil
}

// components returns the names of the components for the mode, the upload target and
// the PodMonitor.
func (s Spec) components() []string {
	var names []string
	switch s.Plan.Mode {
	case ModeSharedServer:
		names = append(names, "shared-server")
	case ModeCluster:
		names = append(names, "cluster")
	}
	switch kind, _, _ := strings.Cut(s.Plan.Upload, "="); kind {
	case "dir":
		names = append(names, "results-volume")
	case "s3":
		names = append(names, "s3")
	}
	if s.PodMonitor {
		names = append(names, "podmonitor")
	}
	return names
}

// compose adds components to the base.
func compose(memory filesys.FileSystem, components []string) error {
	if len(components) == 0 {
		return nil
	}
	file := path.Join(baseDir, kustomization)
	data, err := memory.ReadFile(file)
	if err != nil {
		return err
	}
	var base map[string]any
	if err := yaml.Unmarshal(data, &base); err != nil {
		return err
	}
	var paths []string
	for _, c := range components {
		paths = append(paths, "../components/"+c)
	}
	base["components"] = paths
	if data, err = json.Marshal(base); err != nil { // JSON is YAML.
		return err
	}
	return memory.WriteFile(file, data)
}

// loadOverlay reads the user's overlay.
func (s Spec) loadOverlay(memory filesys.FileSystem) error {
	if _, err := os.Stat(filepath.Join(s.Overlay, kustomization)); err != nil {
		return fmt.Errorf("%w: %q is neither one of %s nor a directory with a %s", ErrOverlay, s.Overlay, strings.Join(Overlays(), ", "), kustomization)
	}
	if err := load(memory, os.DirFS(s.Overlay), ownOverlay); err != nil {
		return fmt.Errorf("%w: %w", ErrOverlay, err)
	}
	return nil
}

// maxOverlay limits the size of a user's overlay in bytes, in case of a wrong
// directory.
const maxOverlay = 16 << 20

// load copies files into memory, below dir.
func load(memory filesys.FileSystem, files fs.FS, dir string) error {
	size := 0
	return fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if size += len(data); size > maxOverlay {
			return errors.New("more than 16 MiB of files")
		}
		return memory.WriteFile(path.Join(dir, name), data)
	})
}
