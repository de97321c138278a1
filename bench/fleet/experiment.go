package fleet

import (
	"os"
	"path"
	"path/filepath"
	"slices"

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

// SetExperiment sets the experiment of the pods, and packs its storm. To find errors early, it plans the experiment as the
// pods will. The error of a field of the experiment is a [*manifest.Error].
func (s *Spec) SetExperiment(e experiment.Spec) error {
	if path, why := refusedField(&e); path != "" {
		return manifest.Bad(path, "cannot be used in a load Job: %s", why)
	}
	if e.Search != nil {
		return manifest.Bad("experiment", "has a search: what it plays depends on its figures, and pods play the same")
	}
	if e.HasParts() {
		return manifest.Bad("family", "is needed, or --storm or --pipeline: the default experiment has several storms")
	}
	if _, err := experiment.New(e); err != nil {
		return err
	}
	s.Files = map[string][]byte{}
	if err := s.pack(&e); err != nil {
		return err
	}
	s.Plan.Experiment = e.JSON()
	return nil
}

// pack packs the file of a recorded storm and replaces its name by the path in a pod.
func (s *Spec) pack(e *experiment.Spec) error {
	name := e.Storm.Name
	if name == "" || slices.Contains(storm.Names(), name) || slices.Contains(trace.Names(), name) {
		return nil
	}
	data, err := os.ReadFile(name)
	base := filepath.Base(name)
	s.Files[base], e.Storm.Name = data, path.Join(PlanDir, base)
	return manifest.BadField("storm.name", err)
}
