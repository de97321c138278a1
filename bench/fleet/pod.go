package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/telemetry"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// PodOptions configure a pod of a load Job.
type PodOptions struct {
	Plan       string // path of the plan
	Kubeconfig string // empty for the service account
	Build      lab.Build
	Args       []string // command line, for the results

	// Telemetry starts the server of metrics and health probes, and pprof profiles to a Pyroscope URL.
	Telemetry func(ctx context.Context, run, pyroscope string) (*telemetry.Session, error)
	Progress  func(lab.Progress)
	Warn      func(text string)
}

// jobPod is a pod of a load Job.
type jobPod struct {
	PodOptions
	plan  Plan
	index int // in the Job, from 0

	namespace string
	cluster   *cluster.Cluster
	mine      lab.Share // the result
}

// RunPod plays one share of a load Job. The environment names the pod. The error of an option is a
// [*manifest.Error] with its flag; a cancelled ctx ends the pod after the upload of what is finished.
func RunPod(ctx context.Context, o PodOptions) error {
	s := &jobPod{PodOptions: o}
	spec, err := s.read()
	if err != nil {
		return err
	}
	if s.cluster, err = cluster.Connect(s.Kubeconfig, ""); err != nil {
		return manifest.BadField("kubeconfig", err)
	}
	s.namespace = cmp.Or(os.Getenv(NamespaceVar), s.cluster.Namespace)
	p, err := s.share(spec)
	if err != nil {
		return manifest.Bad("plan", "%s: experiment: %w", s.Plan, err)
	}
	// The health probes need this server, also while the pod waits at the barrier.
	session, err := s.Telemetry(ctx, s.plan.Run, s.plan.Pyroscope)
	if err != nil {
		return err
	}
	err = s.play(ctx, p, session)
	session.Close(ctx, err)
	return err
}

// read reads the plan with its experiment, and which pod of it this is. The error is a [*manifest.Error].
func (s *jobPod) read() (spec experiment.Spec, err error) {
	if s.plan, err = ReadPlan(s.Plan); err != nil {
		return spec, manifest.BadField("plan", err)
	}
	text := os.Getenv(IndexVar)
	s.index, err = strconv.Atoi(text)
	if err != nil || s.index < 0 || s.index >= s.plan.Pods {
		return spec, &manifest.Error{Err: fmt.Errorf("%s is %q, where %s has pods 0 to %d", IndexVar, text, s.Plan, s.plan.Pods-1)}
	}
	if spec, err = experiment.Parse(s.Plan+": experiment", s.plan.Experiment); err != nil {
		return spec, manifest.BadField("plan", err)
	}
	if path, why := refusedField(&spec); path != "" {
		err = fmt.Errorf("%s: experiment: %s is not for pods: %s", s.Plan, path, why)
	}
	return spec, manifest.BadField("plan", err)
}

// share plans this pod's share of the experiment.
func (s *jobPod) share(spec experiment.Spec) (*experiment.Plan, error) {
	// A field that the quick experiment refuses, which has parts of its own.
	spec.Share = storm.Share{Index: s.index, Count: s.plan.Pods}.String()
	if spec.HasParts() {
		return nil, errors.New("an experiment with parts has several storms")
	}
	cell.MeasureGCPrice() // before the storm is in the heap
	return experiment.New(spec)
}

// Timeouts of the end of a pod. endLimit applies after an interruption.
const (
	uploadLimit = 5 * time.Minute
	endLimit    = 40 * time.Second
)

func (s *jobPod) play(ctx context.Context, p *experiment.Plan, session *telemetry.Session) (err error) {
	opts := p.Options
	opts.Name, opts.Build, opts.Args = s.plan.Run, s.Build, s.Args
	// The Job controller counts the earlier pods of this index.
	failures, _ := strconv.Atoi(os.Getenv(FailuresVar))
	ignored, _ := strconv.Atoi(os.Getenv(IgnoredVar))
	s.mine = lab.Share{
		Index: s.index, Of: s.plan.Pods, Pod: os.Getenv(PodVar), Node: os.Getenv(NodeVar), Attempt: failures + ignored,
	}
	if s.plan.Barrier.Duration > 0 {
		leases, err := NewLeases(s.cluster.Config(), s.namespace)
		if err != nil {
			return err
		}
		b, err := JoinBarrier(ctx, BarrierOptions{
			Leases: leases, Run: s.plan.Run, Self: s.index, Pods: s.plan.Pods, Plays: lab.Plays(p.Comparisons, opts),
			Wait: s.plan.Barrier.Duration, Warn: s.Warn,
		})
		if err != nil {
			return err
		}
		defer b.Leave()
		opts.BeforeRun = func(ctx context.Context, p lab.Play) error { return s.meet(ctx, b, p) }
	}
	opts.Progress, opts.Watch = session.Progress(s.Progress), session.Watch
	s.mine.Outcome, err = lab.Run(ctx, p.Comparisons, opts)
	session.Over(s.mine.Outcome)
	if s.mine.Outcome == nil {
		return err
	}
	err = errors.Join(err, s.upload(ctx))
	if err == nil && s.mine.Outcome.Interrupted {
		return context.Canceled
	}
	return err
}

// meet waits for the others before a play, and keeps its start.
func (s *jobPod) meet(ctx context.Context, b *Barrier, p lab.Play) error {
	began, err := b.Meet(ctx, p.Position, fmt.Sprintf("round %d of %s", p.Round, p.Cell))
	if err == nil {
		began.Comparison, began.Cell, began.Round = p.Comparison, p.Cell, p.Round
		s.mine.Starts = append(s.mine.Starts, began)
	}
	return err
}

// upload uploads the result, also after an interruption.
func (s *jobPod) upload(ctx context.Context) error {
	limit := uploadLimit
	if ctx.Err() != nil {
		limit = endLimit
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	maps, err := NewConfigMaps(s.cluster.Config(), s.namespace)
	size := 0
	if err == nil {
		size, err = maps.Upload(ctx, s.plan.Run, &s.mine)
	}
	if err != nil {
		return fmt.Errorf("upload of the result: %w", err)
	}
	s.Warn(fmt.Sprintf("pod %d/%d uploaded %d bytes", s.index, s.plan.Pods, size))
	return nil
}
