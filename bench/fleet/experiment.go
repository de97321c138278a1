package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"watchlab/bench/experiment"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// podRefuses are fields of an experiment that pods cannot use.
var podRefuses = map[string]string{
	"profiles": "pods have no results folder",
	"memory":   "a pod is one process",
	"share":    "each pod has its own",
	"budget":   "all pods play the same --rounds",
}

func refusedField(s *experiment.Spec) (path, why string) {
	for _, f := range experiment.Given(s) {
		if why, refused := podRefuses[f.Path]; refused {
			return f.Path, why
		}
	}
	return "", ""
}

// SetExperiment sets the experiment of the pods, and packs its files. To find errors early, it plans the experiment as the
// pods will. The error of a field of the experiment is a [*manifest.Error].
func (s *Spec) SetExperiment(ctx context.Context, e experiment.Spec) error {
	if path, why := refusedField(&e); path != "" {
		return manifest.BadField(path, fmt.Errorf("cannot be used in a load Job: %s", why))
	}
	if slices.Contains(e.Manifests, "-") {
		return manifest.BadField("manifests", errors.New("- cannot be used in a load Job: pods have no standard input"))
	}
	if e.HasParts() {
		return manifest.BadField("family", errors.New("is needed, or --storm or --pipeline: the default experiment has several storms"))
	}
	if _, err := experiment.New(ctx, e, nil); err != nil {
		return err
	}
	s.Files, s.from = map[string][]byte{}, map[string]packed{}
	if err := s.pack(&e); err != nil {
		return err
	}
	s.Plan.Experiment = e.JSON()
	return nil
}

// packed is a file of the user, and the field of the Spec that names it.
type packed struct{ path, field string }

// pack packs the files of a Spec and replaces their names by the paths in a pod.
func (s *Spec) pack(e *experiment.Spec) (err error) {
	if name := e.Storm.Name; name != "" && !slices.Contains(storm.Names(), name) && !slices.Contains(trace.Names(), name) {
		if e.Storm.Name, err = s.add(name, "storm.name"); err != nil {
			return manifest.BadField("storm.name", err)
		}
	}
	e.Manifests = slices.Clone(e.Manifests)
	for i, name := range e.Manifests {
		if strings.Contains(name, "://") {
			continue
		}
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a directory; name its files", name)
		}
		if err == nil {
			e.Manifests[i], err = s.add(name, "manifests")
		}
		if err != nil {
			return manifest.BadField("manifests", err)
		}
	}
	return nil
}

func (s *Spec) add(name, field string) (string, error) {
	base := filepath.Base(name)
	if other, taken := s.from[base]; taken && other.path != name {
		return "", fmt.Errorf("%s and %s have the same name", other.path, name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	s.Files[base], s.from[base] = data, packed{name, field}
	return path.Join(PlanDir, base), nil
}

// badFile names the field of the experiment that has the file.
func (s *Spec) badFile(name, format string, args ...any) error {
	if of, ok := s.from[name]; ok {
		return manifest.BadField(of.field, fmt.Errorf("%s: %w", of.path, fmt.Errorf(format, args...)))
	}
	return badField("files."+name, format, args...)
}
