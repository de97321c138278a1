package experiment

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

const (
	warmUpEvents = 500             // number of events that a warm-up round writes
	CleanLimit   = 2 * time.Minute // bounds the removal of written objects from a cluster
)

func (p *planner) planLive(plan *Plan) error {
	s := plan.Spec
	c, err := cluster.Connect(s.Cluster.Kubeconfig, s.Cluster.Context)
	if err != nil {
		if s.Cluster.Context != "" {
			return manifest.BadField("cluster.context", err)
		}
		return manifest.BadField("cluster.kubeconfig", err)
	}
	var stream pipeline.LiveConfig
	if s.Source == ClusterSource {
		err = s.listen(c, &stream)
	} else {
		err = p.apply(plan, c, &stream)
	}
	if err != nil {
		return err
	}
	plan.Comparisons, err = compareLive(s, stream)
	return err
}

// NewLive plans an experiment on a live stream that the caller opens. Of the Spec's cluster it uses
// only the length of a round.
func NewLive(spec Spec, stream pipeline.LiveConfig) (*Plan, error) {
	checked := spec
	if checked.Source == ApplySource {
		checked.Cluster.Context = "the caller's"
	}
	if err := checked.Validate(); err != nil {
		return nil, err
	}
	plan := &Plan{Spec: spec.withDefaults()}
	var err error
	plan.Comparisons, err = compareLive(plan.Spec, stream)
	plan.Options = plan.Spec.options()
	return plan, err
}

func compareLive(s Spec, stream pipeline.LiveConfig) ([]lab.Comparison, error) {
	stream.Impls, stream.Modes, stream.Knobs = s.variants(), s.Modes, s.Knobs
	stream.Store, stream.Workqueue = s.Store, s.Workqueue
	stream.Window = s.Cluster.For.Duration
	comparisons, err := pipeline.CompareLive(stream)
	if errors.Is(err, impls.ErrUnknownVariant) {
		return nil, manifest.BadField("variants", err)
	}
	return comparisons, err
}

// listen follows the cluster's own events, without writing.
func (s Spec) listen(c *cluster.Cluster, spec *pipeline.LiveConfig) error {
	r, err := c.Resource(s.Cluster.Resource)
	if err != nil {
		return manifest.BadField("cluster.resource", err)
	}
	spec.Stream = c.Context + "-" + r.GroupVersionResource.Resource
	spec.Open = func() (*cluster.Tee, error) {
		return cluster.NewTee(c, r, cluster.Scope{Namespace: s.Cluster.Namespace}, pipeline.LiveRoom)
	}
	return nil
}

// Written describes a storm to write into a cluster.
type Written struct {
	Storm    *storm.Storm     // has the events to write
	Rate     pace.Rate        // of the writes
	Resource cluster.Resource // storm's resource in the cluster
}

// Written loads the Spec's storm and finds its resource in the cluster.
func (s Spec) Written(ctx context.Context, c *cluster.Cluster) (Written, error) {
	p := &planner{ctx: ctx, storms: map[string]*storm.Storm{}}
	return p.written(s.withDefaults(), c)
}

func (p *planner) written(s Spec, c *cluster.Cluster) (w Written, err error) {
	if len(s.Paces) != 1 {
		return w, manifest.BadField("paces", fmt.Errorf("--source %s takes one", ApplySource))
	}
	if w.Rate, err = pace.ParseRate(s.Paces[0]); err != nil {
		return w, manifest.BadField("paces", err)
	}
	if w.Storm, err = p.load(s); err != nil {
		return w, err
	}
	if w.Resource, err = c.Resource(w.Storm.Resource.GroupResource().String()); err != nil {
		return w, manifest.BadField("storm.name", err)
	}
	return w, nil
}

// apply writes a storm into the cluster and follows the resulting events.
func (p *planner) apply(plan *Plan, c *cluster.Cluster, spec *pipeline.LiveConfig) error {
	what, err := p.written(plan.Spec, c)
	if err != nil {
		return err
	}
	id := make([]byte, 4)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	w, err := cluster.NewWriter(c, what.Resource, hex.EncodeToString(id))
	if err != nil {
		return manifest.BadField("storm.name", err)
	}
	spec.Stream = what.Storm.Name
	spec.Open = func() (*cluster.Tee, error) {
		ctx, cancel := context.WithTimeout(context.Background(), CleanLimit)
		defer cancel()
		if err := w.Clear(ctx); err != nil {
			return nil, err
		}
		return cluster.NewTee(c, what.Resource, cluster.Scope{Selector: w.Selector()}, pipeline.LiveRoom)
	}
	spec.Drive = func(ctx context.Context, warmUp bool) (cluster.Written, error) {
		s := what.Storm
		if warmUp {
			s = beginning(s, warmUpEvents)
		}
		written, err := w.Play(ctx, s, what.Rate)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return written, nil // The report shows the unwritten events.
		case err != nil:
			return written, err
		}
		return written, nil
	}
	plan.close = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), CleanLimit)
		defer cancel()
		return w.Clean(ctx)
	}
	return nil
}

func beginning(s *storm.Storm, events int) *storm.Storm {
	first := *s
	first.Events = s.Events[:min(events, len(s.Events))]
	first.Initial = min(s.Initial, len(first.Events))
	return &first
}
