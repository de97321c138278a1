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
	"watchlab/loadgen/source/cluster"
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

// clusterRefuses are fields of a Spec that a load Job cannot use, beside [podRefuses].
var clusterRefuses = map[string]string{
	"cluster.kubeconfig": "put --kubeconfig before --",
	"cluster.context":    "put --context before --",
}

// modeRefuses are fields that mode cluster cannot use.
var modeRefuses = map[string]string{"source": "mode cluster sets it", "cluster.resource": "the storm sets it"}

func refusedField(s *experiment.Spec, refuses map[string]string) (path, why string) {
	for _, f := range experiment.Given(s) {
		if why, refused := refuses[f.Path]; refused {
			return f.Path, why
		}
	}
	return "", ""
}

// SetExperiment sets the experiment of the pods, and packs its files. To find errors early, it plans the experiment as the
// pods will, for mode cluster in c; at names c. The error of a field of the experiment is a [*manifest.Error].
func (s *Spec) SetExperiment(ctx context.Context, e experiment.Spec, c *cluster.Cluster, at experiment.Cluster) error {
	refused := []map[string]string{podRefuses, clusterRefuses}
	if s.Plan.Mode == ModeCluster {
		refused = append(refused, modeRefuses)
	}
	for _, refuses := range refused {
		if path, why := refusedField(&e, refuses); path != "" {
			return manifest.BadField(path, fmt.Errorf("cannot be used in a load Job: %s", why))
		}
	}
	if slices.Contains(e.Manifests, "-") {
		return manifest.BadField("manifests", errors.New("- cannot be used in a load Job: pods have no standard input"))
	}
	if s.Plan.Mode == ModeCluster {
		e.Source = experiment.ApplySource
		checked := e
		checked.Cluster = at
		checked.Cluster.For = e.Cluster.For
		p, err := experiment.New(ctx, checked, nil)
		if err != nil {
			return err
		}
		w, err := p.Spec.Written(ctx, c)
		if err != nil {
			return err
		}
		s.Resource = w.Storm.Resource.GroupResource()
	} else if err := checkSelf(ctx, e); err != nil {
		return err
	}
	s.Files, s.from = map[string][]byte{}, map[string]packed{}
	if err := s.pack(&e); err != nil {
		return err
	}
	s.Plan.Experiment = e.JSON()
	return nil
}

func checkSelf(ctx context.Context, spec experiment.Spec) error {
	switch {
	case spec.Source == experiment.ClusterSource || spec.Source == experiment.ApplySource:
		return manifest.BadField("source", fmt.Errorf("%s needs --mode %s", spec.Source, ModeCluster))
	case spec.HasParts():
		return manifest.BadField("family", errors.New("is needed, or --storm or --pipeline: the default experiment has several storms"))
	}
	_, err := experiment.New(ctx, spec, nil)
	return err
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
