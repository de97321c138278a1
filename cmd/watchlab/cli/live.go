package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// The sources that are a live cluster: one whose events are listened to, and
// one in which a storm is made besides.
const (
	clusterSource = pipeline.ClusterSource
	applySource   = "apply"
)

func liveSource(name string) bool { return name == clusterSource || name == applySource }

// defaultLiveRounds of a comparison on a live cluster: a round is half a minute.
const defaultLiveRounds = 3

// liveFlags are the flags of run that say which cluster, and what of it.
type liveFlags struct {
	kubeconfig string
	context    string
	resource   string
	namespace  string
	window     time.Duration
}

// names of the flags, for those who refuse them.
var liveFlagNames = []string{"kubeconfig", "context", "resource", "namespace", "for"}

func (f *liveFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file, for --source cluster and apply (default: as kubectl finds it)")
	fl.StringVar(&f.context, "context", "", "context of the kubeconfig; --source apply demands that it is named (default: the current one)")
	fl.StringVar(&f.resource, "resource", "pods", "resource that is listened to, as kubectl names it; --source apply takes the storm's")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "namespace that is listened to (default: all)")
	fl.DurationVar(&f.window, "for", pipeline.DefaultWindow, "how long a round listens to the cluster; with --source apply at most, as it is over when the storm is")
}

// live plans a comparison on a live cluster.
func (f runFlags) live(cmd *cobra.Command, p *plan, load func() (*storm.Storm, error)) error {
	given := cmd.Flags().Changed
	if err := f.checkLive(cmd); err != nil {
		return err
	}
	refused := []string{"producers", "events"}
	if f.source == clusterSource {
		refused = append(refused, append([]string{"pace", "lag-budget", "storm"}, sizeFlagNames...)...)
	} else {
		refused = append(refused, "resource", "namespace")
	}
	for _, name := range refused {
		if given(name) {
			return badFlag(name, fmt.Errorf("is not for --source %s", f.source))
		}
	}
	if f.source == applySource && !given("context") {
		return badFlag("context", errors.New("--source apply writes into a cluster, and needs to be told which"))
	}
	c, err := cluster.Connect(f.of.kubeconfig, f.of.context)
	if err != nil {
		if given("context") {
			return badFlag("context", err)
		}
		return badFlag("kubeconfig", err)
	}
	spec := f.liveSpec()
	if f.source == clusterSource {
		err = f.listen(c, &spec)
	} else {
		err = f.apply(c, &spec, p, load)
	}
	if err != nil {
		return err
	}
	return p.live(spec)
}

// checkLive checks what is the same for all live streams.
func (f runFlags) checkLive(cmd *cobra.Command) error {
	switch {
	case f.family != string(impls.DeltaFIFO):
		return badFlag("source", fmt.Errorf("%s is for --family %s only", f.source, impls.DeltaFIFO))
	case cmd.Flags().Changed("pipeline") && f.pipeline != pipeline.InformerPipeline:
		return badFlag("pipeline", fmt.Errorf("source %s has the %s pipeline only", f.source, pipeline.InformerPipeline))
	case f.of.window <= 0:
		return badFlag("for", fmt.Errorf("%v is not more than 0", f.of.window))
	}
	return nil
}

// liveSpec is what the flags say of the variants, and of how long a round is.
func (f runFlags) liveSpec() pipeline.LiveConfig {
	spec := pipeline.LiveConfig{Modes: f.delivery, Knobs: f.knobs, Window: f.of.window}
	if !slices.Equal(f.impls, []string{allImpls}) {
		spec.Impls = f.impls
	}
	return spec
}

// live plans the comparisons of a live stream.
func (p *plan) live(spec pipeline.LiveConfig) (err error) {
	p.defaultRounds(defaultLiveRounds)
	p.comparisons, err = pipeline.CompareLive(spec)
	switch {
	case errors.Is(err, impls.ErrUnknownVariant):
		return badFlag("impl", err)
	case err != nil:
		return usageError{err}
	}
	return nil
}

// listen follows what happens in the cluster by itself.
func (f runFlags) listen(c *cluster.Cluster, spec *pipeline.LiveConfig) error {
	r, err := c.Resource(f.of.resource)
	if err != nil {
		return badFlag("resource", err)
	}
	spec.Of = c.Context + "-" + r.GroupVersionResource.Resource
	spec.Open = func() (*cluster.Tee, error) {
		return cluster.NewTee(c, r, cluster.Scope{Namespace: f.of.namespace}, pipeline.LiveRoom)
	}
	return nil
}

// apply makes a storm in the cluster and follows what comes of it.
func (f runFlags) apply(c *cluster.Cluster, spec *pipeline.LiveConfig, p *plan, load func() (*storm.Storm, error)) error {
	if len(f.paces) != 1 {
		return badFlag("pace", errors.New("--source apply takes one"))
	}
	rate, err := pace.ParseRate(f.paces[0])
	if err != nil {
		return badFlag("pace", err)
	}
	s, err := load()
	if err != nil {
		return err
	}
	resource := s.Resource.Resource
	if s.Resource.Group != "" {
		resource += "." + s.Resource.Group
	}
	r, err := c.Resource(resource)
	if err != nil {
		return badFlag("storm", err)
	}
	id := make([]byte, 4)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	w, err := cluster.NewWriter(c, r, hex.EncodeToString(id))
	if err != nil {
		return badFlag("storm", err)
	}
	spec.Of = s.Name
	spec.Open = func() (*cluster.Tee, error) {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		if err := w.Clear(ctx); err != nil {
			return nil, err
		}
		return cluster.NewTee(c, r, cluster.Scope{Selector: w.Selector()}, pipeline.LiveRoom)
	}
	spec.Drive = func(ctx context.Context, warmUp bool) (cluster.Written, error) {
		play := s
		if warmUp {

			play = beginning(s, warmUpEvents)
		}
		written, err := w.Play(ctx, play, rate)
		switch {
		case errors.Is(err, context.DeadlineExceeded):

			return written, nil
		case err != nil:
			return written, err
		case written.Refused > 0 && written.Applied == 0:
			return written, fmt.Errorf("the cluster took nothing: %w", written.FirstRefusal)
		}
		return written, nil
	}
	p.cleanup = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
		defer cancel()
		return w.Clean(ctx)
	}
	return nil
}

// warmUpEvents are how many events of a storm are made in a cluster to warm up.
const warmUpEvents = 500

// beginning is the first events of a storm, those of its initial list included.
func beginning(s *storm.Storm, events int) *storm.Storm {
	first := *s
	first.Events = s.Events[:min(events, len(s.Events))]
	first.Initial = min(s.Initial, len(first.Events))
	return &first
}

// cleanLimit is how long taking away what was made may last.
const cleanLimit = 2 * time.Minute
